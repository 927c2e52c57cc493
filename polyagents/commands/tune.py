"""`polyagents tune`: measure which runtime computes a model's encoders fastest here, for `--backend auto`."""

import argparse
from collections.abc import Mapping
from typing import Any

from polyagents.arguments import AUTO, CommandParser, add_precision_flag, model_overrides
from polyagents.errors import InputError
from polyagents.zoo.datapath import add_datapath_flag, datapath


def parser() -> argparse.ArgumentParser:
    """Declare the flags: a model, and how it computes."""
    parser = CommandParser(
        "polyagents tune",
        "Measure which installed runtime computes a model's encoders fastest on this machine. rank, decide and serve "
        "use it from then on (--backend auto). Run it on an idle machine, and again for other weights.",
    )
    parser.add_argument("-mf", "--model-file", required=True, help="a trained model")
    add_precision_flag(parser)
    add_datapath_flag(parser)
    return parser


def run(opt: Mapping[str, Any]) -> None:
    """Measure, and print a line for each runtime, the fastest first."""
    from polyagents import timings  # imports torch, as the next lines do: errors in flags are reported before
    from polyagents.backends.fastest import tune, what_is_measured
    from polyagents.ranker import Ranker
    from polyagents.zoo.resolve import zoo_file

    file = zoo_file(opt["model_file"], datapath(opt["datapath"]))
    model = Ranker.load(file, no_cuda=True, **model_overrides(opt)).model
    times, refused = tune(model, file)
    for seconds, name in sorted((seconds, name) for name, seconds in times.items()):
        print(f"{name:<10}{1000 * seconds:.1f} ms")
    for name, reason in refused.items():
        print(f"{name:<10}{reason}")
    if timings.remembered(what_is_measured(model)) != times:
        raise InputError(
            f"{timings.folder()} cannot be written to, so --backend {AUTO} does not learn these times; let the "
            f"environment variable {timings.FOLDER} name a folder that can be."
        )
    print(f"--backend {AUTO}: {model.backend}")
