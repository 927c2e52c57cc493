"""ParlAI's commands under the name `polyagents`: with our agents' short names, our zoo, our recipes and torchrun."""

import itertools
import os
import sys
from collections.abc import Sequence
from typing import Any

from polyagents.commands.names import BY_EVERY_NAME, PARLAI_COMMANDS
from polyagents.errors import InputError
from polyagents.faults import INSTALL_PARLAI, parlai_is_installed
from polyagents.zoo.models import GROUP, find, our_agent

SHORT_NAMES = {"bi": "polyagents:BiEncoder", "poly": "polyagents:PolyEncoder", "cross": "polyagents:CrossEncoder"}
NAMES_A_MODEL = ("-m", "--model", "-o", "--init-opt")


# ---- arguments -------------------------------------------------------------------------------------------------------


def with_full_names(arguments: Sequence[str]) -> list[str]:
    """`-m poly` -> `-m polyagents:PolyEncoder`, so that M.opt loads in plain `parlai` too."""
    result: list[str] = []
    for argument in arguments:  # --model=poly in two parts
        result += argument.split("=", 1) if argument.startswith(("--model=", "--model-file=")) else [argument]
    for i, (flag, value) in enumerate(itertools.pairwise(list(result))):
        if flag in ("-m", "--model"):
            result[i + 1] = SHORT_NAMES.get(value, value)
    return result


def with_our_agent(arguments: list[str]) -> list[str]:
    """The arguments of a ParlAI command, which load a model that one of ParlAI's agents wrote with ours.

    They stay as they are where `--model` says which agent to use, and where the command has no such flag.
    """
    file = model_file(arguments)
    if file is None or names_a_model(arguments) or not PARLAI_COMMANDS[BY_EVERY_NAME[arguments[0]]].takes_a_model:
        return arguments
    agent = our_agent(file)
    return [*arguments, "-m", agent] if agent else arguments


def check_model_file(arguments: Sequence[str]) -> None:
    """Say that a model file is missing before ParlAI complains about flags that only the model would have known.

    Raises:
        InputError: it is missing, or zoo: names no model.
    """
    file = model_file(arguments)
    if file and not names_a_model(arguments) and not file.startswith("zoo:") and not os.path.exists(f"{file}.opt"):
        raise InputError(
            f"There is no trained model at {file} ({file}.opt is missing). Give the path that was --model-file of "
            f"train_model, or start a new model with --model poly|bi|cross."
        )
    for argument in arguments:
        if argument.startswith(f"zoo:{GROUP}/") and argument.endswith("/model"):
            find(argument)  # a wrong name is said before gigabytes are downloaded


def model_file(arguments: Sequence[str]) -> str | None:
    """What follows `--model-file`; None where nothing does."""
    given = {flag: value for flag, value in itertools.pairwise(arguments) if flag.startswith("-")}
    return given.get("-mf") or given.get("--model-file")


def names_a_model(arguments: Sequence[str]) -> bool:
    """Whether the arguments say which agent to use, by its name or by a file of options."""
    return any(flag in NAMES_A_MODEL for flag in arguments[:-1])


# ---- running ---------------------------------------------------------------------------------------------------------


def run(arguments: Sequence[str]) -> Any:
    """Run one of ParlAI's commands as `parlai` does, but import the script of this command only, not all 29.

    Args:
        arguments: the command line, beginning with the command's name or alias.

    Raises:
        InputError: ParlAI is not installed.
    """
    name = BY_EVERY_NAME[arguments[0]]
    if not parlai_is_installed():
        raise InputError(f"polyagents {name} is a command of ParlAI, which is not installed: {INSTALL_PARLAI}")
    from polyagents.parlai_agents import scripts  # imports ParlAI and torch, which take seconds

    arguments = with_our_agent([*arguments])
    sys.argv = ["polyagents", *arguments]  # ParlAI looks there for what the user gave
    return scripts.run(PARLAI_COMMANDS[name].script or name, arguments)
