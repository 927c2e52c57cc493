"""`polyagents bench_training`: training speed and memory, compared with ParlAI's and sentence-transformers'."""

import argparse
import os
from collections.abc import Mapping
from typing import Any

from polyagents.arguments import positive_int, positive_ints
from polyagents.commands.task_parser import TaskCommandParser
from polyagents.errors import InputError


def parser() -> argparse.ArgumentParser:
    """Declare the flags: a backbone, a task with its own flags, and what to measure."""
    parser = TaskCommandParser(
        "polyagents bench_training", "Measure training speed and memory against peers, in one run.", task_required=True
    )
    parser.add_argument("--backbone", required=True, help="a pretrained encoder: a folder, or a hub name")
    parser.add_argument(
        "--batch-sizes",
        type=positive_ints,
        default="32,128,512",
        help="two or more; the largest is trained in parts, with --chunk-tokens and similar flags",
    )
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32", help="ParlAI's is always fp32")
    parser.add_argument("--chunk-tokens", type=positive_int, default=2048, help="tokens of a part")
    parser.add_argument(
        "--steps", type=positive_int, default=3, help="timed steps per figure; the figure is their median"
    )
    parser.add_argument("--out", default="bench-output", help="folder for the tables (JSON)")
    return parser


def run(opt: Mapping[str, Any]) -> None:
    """Measure, print tables, write a file."""
    sizes = list(opt["batch_sizes"])
    if len(sizes) < 2 or sizes[0] < 2:
        raise InputError(
            f"--batch-sizes {','.join(map(str, sizes))}: give two sizes or more, none below 2; the largest is trained "
            f"in parts, the others whole."
        )
    from polyagents.benchmarks import report, training  # the peers take seconds to import

    examples = training.draw(opt, sizes[-1] * (opt["steps"] + 1))
    rows, ratios = training.compare(opt["backbone"], examples, sizes, opt["precision"], opt["chunk_tokens"])
    report.publish({"training": rows, "ratios": ratios}, os.path.join(opt["out"], "training.json"))
