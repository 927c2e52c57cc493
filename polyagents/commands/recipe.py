"""`polyagents recipe`: the paper's numbers, the flags that should reach each of them, and a report of results."""

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from polyagents.arguments import CommandParser
from polyagents.errors import InputError
from polyagents.zoo.recipes import describe
from polyagents.zoo.recipes.recipe_flags import SMOKE, find

USAGE = (
    "polyagents recipe list, polyagents recipe show NAME, polyagents recipe run NAME -mf M [--smoke] [flags of "
    "train_model], or polyagents recipe report FOLDER"
)


def parser() -> argparse.ArgumentParser:
    """Declare the arguments: what to do, and with which recipe."""
    parser = CommandParser(
        "polyagents recipe",
        "One recipe for each number of the paper: list, show NAME, run NAME -mf M [--smoke] [flags of train_model], "
        "report FOLDER.",
    )
    parser.add_argument("what", nargs="?", help="list, show, run or report")
    parser.add_argument("name", nargs="?", help="a name that list shows; for report, a folder of trained models")
    return parser


def run(opt: Mapping[str, Any]) -> None:
    """List, show or report; `run` is `train_model` (as_training)."""
    what, name = opt["what"], opt["name"]
    if what not in ("list", "show", "report") or (what == "list") != (name is None):
        raise InputError(f"Give one of: {USAGE}.")
    if what == "list":
        print(describe.text_table())
    elif what == "show":
        print(describe.in_full(find(name)))
    else:
        from polyagents.commands.recipe_report import print_report  # imports torch

        print_report(name)


def as_training(arguments: Sequence[str]) -> list[str]:
    """Replace `recipe run NAME ...` by `train_model -o NAME ...`; any other command line stays."""
    arguments = list(arguments)
    if arguments[:2] != ["recipe", "run"] or {"-h", "--help"} & set(arguments):
        return arguments
    if not arguments[2:] or arguments[2].startswith("-"):
        raise InputError(f"recipe run needs a NAME first; give one of: {USAGE}.")
    name, rest = find(arguments[2]).name, arguments[3:]
    flags = {argument.split("=")[0] for argument in rest}
    if not {"-mf", "--model-file"} & flags:
        raise InputError(f"recipe run {name} needs -mf M, the file to write the model to.")
    if {"-o", "--init-opt"} & flags:
        raise InputError(f"recipe run {name} is train_model -o {name}; for more files give train_model -o {name},FILE.")
    smoke = SMOKE if "--smoke" in rest or arguments[2].endswith(SMOKE) else ""
    return ["train_model", "-o", f"{name}{smoke}", *(argument for argument in rest if argument != "--smoke")]
