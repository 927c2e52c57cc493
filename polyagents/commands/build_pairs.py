"""`polyagents build_pairs`: pairs to pre-train on, shuffled, from files of any size."""

import argparse
import json
from collections.abc import Mapping
from typing import Any

from polyagents.arguments import CommandParser, positive_int
from polyagents.console import command, number_of, say


def parser() -> argparse.ArgumentParser:
    """Declare the flags: files, a folder."""
    parser = CommandParser(
        "polyagents build_pairs",
        "Make the data of -t polyagents.tasks.pairs: shuffled pairs of a context and the text that came next. To "
        "resume a stopped build, start it again.",
    )
    parser.add_argument(
        "--source",
        required=True,
        help="a file, or a folder of files: JSON lines of pairs, ParlAI's text format, plain text, dumps of Reddit's "
        "comments; as they are, .zst, .gz or .bz2",
    )
    parser.add_argument("--outdir", required=True, help="folder of the data; created if it is missing")
    parser.add_argument(
        "--context-lines",
        type=positive_int,
        default=1,
        help="plain text: at most this many lines before a line are its context; 1 for sentences of running "
        "text (paper 4.1)",
    )
    parser.add_argument(
        "--valid-examples",
        type=positive_int,
        default=10_000,
        help="about this many pairs, in whole threads, for validation, and as many for test; at most a tenth of all",
    )
    return parser


def run(opt: Mapping[str, Any]) -> None:
    """Build; then say what was built, and how to use it."""
    # Imports numpy: errors in flags are reported before.
    from polyagents.tasks.pairs.build_pairs import PairsPlan, build, describe_counts

    made = build(PairsPlan(opt["source"], opt["outdir"], opt["context_lines"], opt["valid_examples"]))
    counts = describe_counts(made["counts"])
    train = command(
        "train_model", "-m", "bi", "-mf", "M", "-t", "polyagents.tasks.pairs", "--pairs-path", opt["outdir"]
    )
    say(
        f"{opt['outdir']}: {number_of(made['examples']['train'], 'pair')} to train on, {made['examples']['valid']:,} "
        f"to validate with ({counts}). Train: {train}"
    )
    print(json.dumps(made["examples"] | {"counts": made["counts"]}))
