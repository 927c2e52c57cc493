"""Flags of the steps that load models: the steps' own, and those for ParlAI and its agents.

ParlAI's agents have hundreds of flags, which only ParlAI knows. What a step does not know itself is kept for them.
"""

import argparse
import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

from polyagents.arguments import CommandParser, add_precision_flag, flag_of
from polyagents.errors import InputError
from polyagents.faults import INSTALL_PARLAI, parlai_is_installed

SHORT = {"-t": "--task", "-dt": "--datatype", "-fcp": "--fixed-candidates-path", "-m": "--model", "-mf": "--model-file"}
# Of our own flags those that ParlAI and its agents have, too.
SHARED = ("task", "datatype", "fixed_candidates_path", "precision", "model", "model_file")


class ModelStepParser(CommandParser):
    """A parser that collects the flags that it does not know in `model_flags`, for ParlAI and its agents."""

    def parse_args(  # type: ignore[override]  # argparse's type is overloaded for other namespaces
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> argparse.Namespace:
        """Parse the flags that the step knows.

        ParlAI's short names are kept from argparse, which would take -histsz for -h, and -tr for -t, were -t declared.
        """
        given = [SHORT.get(argument) or re.sub(r"^(?=-[a-zA-Z]\w)", "--", argument) for argument in args or ()]
        parsed, rest = self.parse_known_args(given, namespace)
        parsed.model_flags = [re.sub(r"^--(?=-)", "", argument) for argument in rest]
        # argparse would also take a value of an unknown flag for a file.
        parsed.files = list(itertools.takewhile(lambda argument: not argument.startswith("-"), given))
        return parsed


def add_shared_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that all models of a step share."""
    parser.add_argument("--task", help="(-t) a task of ParlAI, polyagents.tasks.NAME, or fromfile:parlaiformat")
    parser.add_argument("--datatype", default="valid", help="(-dt) the part of the task: train, valid or test")
    parser.add_argument(
        "--fixed-candidates-path",
        help="(-fcp) the replies of rankers, a text file with one per line; by default all labels of the task",
    )
    add_precision_flag(parser, "of our models; by default as in training")


def flags_for_parlai(opt: Mapping[str, Any], **changes: Any) -> list[str]:
    """Return what ParlAI and its agents read of a command line; `changes` take the place of the step's values."""
    values = {name: changes.get(name, opt.get(name)) for name in SHARED}
    given = [(flag_of(name), str(value)) for name, value in values.items() if value is not None]
    return [*itertools.chain.from_iterable(given), *opt["model_flags"]]


def check_parlai(what: str) -> None:
    """Refuse, with an InputError, what needs ParlAI where it is not installed."""
    if not parlai_is_installed():
        raise InputError(f"{what} needs ParlAI, which is not installed: {INSTALL_PARLAI}")
