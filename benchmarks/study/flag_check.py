"""Checks whether train_model accepts the flags of every row, before anything runs."""

import contextlib
import io
import os
from collections.abc import Mapping

from parlai.scripts.train_model import TrainModel

from polyagents.benchmarks.study.plan import OWN_FLAGS, Row, Study, command_line
from polyagents.errors import InputError, first_line
from polyagents.parlai_patches import patches
from polyagents.parlai_patches.compat import quiet


def check_flags(study: Study, values: Mapping[str, str]) -> None:
    """Let train_model parse the flags of every row that is trained.

    Raises:
        InputError: a flag is unknown, has a short name, or a value that it cannot have.
    """
    patches.apply()
    for row in study.rows:
        if not row.is_pipeline:
            check_row(row, study, values)


def check_row(row: Row, study: Study, values: Mapping[str, str]) -> None:
    """Let train_model parse the flags of a row, with names of files that need not exist."""
    nowhere = os.path.join(os.devnull, "M")
    words = command_line(row, study, {**values, "SEED": "0"}, dict.fromkeys(row.builds_on, nowhere))
    said, parser = io.StringIO(), TrainModel.setup_args()
    parser.prog = "polyagents train_model"
    try:
        with quiet(), contextlib.redirect_stderr(said):
            parser.parse_args([*words, "--model-file", nowhere])
    except SystemExit as end:
        raise InputError(f"Row {row.name!r}: {said.getvalue().strip()}") from end
    except Exception as error:  # ParlAI's parser raises plain ones
        raise InputError(f"Row {row.name!r}: {first_line(error)}.") from error
    for name in row.flags:
        action = parser._option_string_actions.get(f"--{name}")
        own = action.dest.replace("_", "-") if action else name
        if own != name and f"--{own}" in parser._option_string_actions:
            how = "which is not for flags; the study itself says it" if own in OWN_FLAGS else "the name to give here"
            raise InputError(f"Row {row.name!r}: --{name} is --{own}, {how}.")
