"""The flag that all steps share."""

import os

from parlai.core.params import ParlaiParser

from polyagents.errors import InputError
from polyagents.human_eval.store import Store


def add_database_flag(parser: ParlaiParser) -> None:
    """Where everything is kept."""
    parser.add_argument(
        "--database",
        default="human_eval.db",
        help="the file of an SQLite database, made where it is missing, or postgresql://USER:PASSWORD@HOST/NAME",
    )


def existing_store(database: str) -> Store:
    """The store of a step that comes after others: a mistyped file is not made.

    Raises:
        InputError: there is none.
    """
    if "://" not in database and not os.path.exists(database):
        raise InputError(f"There is no {database}; give --database, the one that human_eval import filled.")
    return Store(database)
