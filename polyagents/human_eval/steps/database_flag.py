"""The flag --database, which all steps share."""

import argparse
import os
from typing import TYPE_CHECKING

from polyagents.errors import InputError
from polyagents.human_eval.study import Study

if TYPE_CHECKING:
    from polyagents.human_eval.storage.evaluation_store import EvaluationStore


def add_database_flag(parser: argparse.ArgumentParser) -> None:
    """Add --database, which says where everything is stored."""
    parser.add_argument(
        "--database",
        default="human_eval.db",
        help="the file of an SQLite database, which the first step creates, or postgresql://USER:PASSWORD@HOST/NAME",
    )


def open_store(database: str, study: Study | None = None) -> "EvaluationStore":
    """Open the store of a step that may be the first; it is created if it is missing."""
    from polyagents.human_eval.storage.evaluation_store import EvaluationStore  # loads SQLAlchemy

    return EvaluationStore(database, study)


def existing_store(database: str, first_step: str = "import FILE ...", study: Study | None = None) -> "EvaluationStore":
    """Open the store of a step that comes after others, so that a mistyped file is refused, and not made."""
    from polyagents.human_eval.storage.database import is_sqlite, parsed_url  # loads SQLAlchemy

    url = parsed_url(database)
    if is_sqlite(url) and not os.path.exists(str(url.database)):
        raise InputError(
            f"There is no {database}; run polyagents human_eval {first_step} first, or give its --database."
        )
    return open_store(database, study)
