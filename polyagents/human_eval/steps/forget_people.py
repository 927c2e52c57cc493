"""`polyagents human_eval forget`: people's identifiers are removed."""

import argparse
import json
from collections.abc import Mapping
from typing import Any

from polyagents.arguments import CommandParser, Whole
from polyagents.errors import InputError
from polyagents.human_eval.steps.database_flag import add_database_flag, existing_store

MOST_DAYS = 100_000  # some 270 years: Python's dates go back to the year 1 only


def parser() -> argparse.ArgumentParser:
    """Declare the flags."""
    parser = CommandParser(
        "polyagents human_eval forget",
        "Remove the identifiers of a person, or of everybody whose part in a study is long over. The answers stay, "
        "under a pseudonym, unless --answers is given.",
    )
    parser.add_argument("person", nargs="?", help="the name that the platform, or you, gave; or the pseudonym")
    parser.add_argument(
        "--older-than", type=Whole(1, MOST_DAYS), help="days: forget everybody who did nothing for so long"
    )
    parser.add_argument("--answers", action="store_true", help="remove what was judged and said, too")
    add_database_flag(parser)
    return parser


def run(opt: Mapping[str, Any]) -> None:
    """Remove, and print how much."""
    person, days = opt["person"], opt["older_than"]
    if (person is None) == (days is None):
        raise InputError("human_eval forget needs a PERSON or --older-than DAYS, and not both.")
    store = existing_store(opt["database"])
    from polyagents.human_eval.storage.people_records import forget, forget_older  # loads SQLAlchemy

    done = forget_older(store, days, opt["answers"]) if days else forget(store, person, opt["answers"])
    print(json.dumps(done))
    store.close()
