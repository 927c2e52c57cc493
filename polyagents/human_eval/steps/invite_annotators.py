"""`polyagents human_eval invite`: a link for each annotator."""

import argparse
from collections.abc import Mapping
from typing import Any

from polyagents.arguments import CommandParser
from polyagents.console import one_line
from polyagents.errors import InputError
from polyagents.human_eval.records import ANNOTATE_PATH
from polyagents.human_eval.steps.database_flag import add_database_flag, open_store


def parser() -> argparse.ArgumentParser:
    """Declare the flags."""
    parser = CommandParser(
        "polyagents human_eval invite",
        "Invite annotators: print a secret link path for each; a repeated name gets the same link.",
    )
    parser.add_argument("names", nargs="*", help="the names of the annotators")
    add_database_flag(parser)
    return parser


def run(opt: Mapping[str, Any]) -> None:
    """Print a line per annotator: name, tab, path of the link."""
    if not opt["names"]:
        raise InputError("human_eval invite needs the names of annotators.")
    for annotator in open_store(opt["database"]).invite(opt["names"]):
        print(f"{one_line(annotator.name)}\t{ANNOTATE_PATH}{annotator.token}")
