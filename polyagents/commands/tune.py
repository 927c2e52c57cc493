"""`polyagents tune`: measure which runtime computes a model's encoders fastest here, for `--backend auto`."""

import argparse
import math
from collections.abc import Mapping
from typing import Any

from polyagents.arguments import CommandParser, add_precision_flag
from polyagents.console import say
from polyagents.zoo.datapath import add_datapath_flag, datapath


def parser() -> argparse.ArgumentParser:
    """Declare the flags: a model, and how it computes."""
    parser = CommandParser(
        "polyagents tune",
        "Measure which runtime computes a model's encoders fastest on this machine, which --backend auto uses from "
        "then on. Without it, the first command that loads such a model measures. Best on an idle machine.",
    )
    parser.add_argument("-mf", "--model-file", required=True, help="a trained model")
    add_precision_flag(parser)
    add_datapath_flag(parser)
    return parser


def run(opt: Mapping[str, Any]) -> None:
    """Measure, and print a line for each runtime, the fastest first."""
    from polyagents.backends.fastest import tune  # imports torch: errors in flags are reported before
    from polyagents.ranker import Ranker
    from polyagents.zoo.resolve import zoo_file

    file = zoo_file(opt["model_file"], datapath(opt["datapath"]))
    overrides = {"precision": opt["precision"]} if opt["precision"] else {}
    model = Ranker.load(file, no_cuda=True, **overrides).model
    times = tune(model, file, anew=True)
    if not times:
        say(
            "There is nothing to choose: no other runtime is installed (pip install 'polyagents[fast]'), none has this "
            "precision, or torch takes less than 5 ms."
        )
    for seconds, name in sorted((seconds, name) for name, seconds in times.items()):
        print(f"{name:<10}{'cannot be used' if seconds == math.inf else f'{1000 * seconds:.1f} ms'}")
    print(f"--backend auto: {model.backend}")
