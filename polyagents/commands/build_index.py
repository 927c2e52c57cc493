"""`polyagents build_index`: another name of `polyagents index build`; with --append or --delete, of add and remove."""

import argparse
from collections.abc import Mapping
from typing import Any

from polyagents.arguments import CommandParser
from polyagents.commands import index


def parser() -> argparse.ArgumentParser:
    """Declare the flags: a model, a file, a folder."""
    parser = CommandParser(
        "polyagents build_index",
        "Encode candidates into an index, which rank --index-dir searches. To resume a stopped build, start it "
        "again. Several processes or machines that share the folder: torchrun --nproc-per-node 4 -m polyagents "
        "build_index ...",
    )
    index.add_flags(parser, required=True)
    change = parser.add_mutually_exclusive_group()
    change.add_argument("--append", action="store_true", help="add the candidates to an existing index")
    change.add_argument("--delete", action="store_true", help="remove the candidates from an index")
    return parser


def run(opt: Mapping[str, Any]) -> None:
    """Build an index, add to it or remove from it; then report its content."""
    index.do("add" if opt["append"] else "remove" if opt["delete"] else "build", opt)
