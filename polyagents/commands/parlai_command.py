"""ParlAI's commands under the name `polyagents`: with our agents' short names, our zoo, our recipes and torchrun."""

import importlib.metadata
import itertools
import os
import shlex
import sys
from collections.abc import Sequence
from typing import Any

from polyagents.arguments import with_hyphens
from polyagents.commands.names import AGENTS, BY_EVERY_NAME, OWN_COMMANDS, PARLAI_COMMANDS, TRAIN_COMMANDS
from polyagents.console import LOADING, command, waiting
from polyagents.errors import InputError
from polyagents.faults import INSTALL_PARLAI, OF_PARLAI, parlai_is_installed
from polyagents.options import ENTRY_POINTS
from polyagents.parlai_files import parlai_options
from polyagents.zoo.models import GROUP, find, our_agent

SHORT_NAMES = {name: f"polyagents:{name.title()}Encoder" for name in AGENTS}
NEED_A_TASK = {"eval_model", "multiprocessing_eval", "train_model", "multiprocessing_train", "display_model"}
NAMES_A_TASK = ("-t", "--task", "-pyt", "--pytorch-teacher-task", "-o", "--init-opt")
HELP = ("-h", "--help", "--helpall")
OF_ZOO = ("zoo:", "models:", "izoo:")  # ParlAI's beginnings of names
NAMES_A_MODEL = ("-m", "--model", "-o", "--init-opt")
IN_TWO_PARTS = ("--model=", "--model-file=", "--partner-model-file=", "--init-opt=")


# ---- arguments -------------------------------------------------------------------------------------------------------


def with_full_names(arguments: Sequence[str]) -> list[str]:
    """Replace short names of agents (`-m poly` by `-m polyagents:PolyEncoder`): M.opt then loads in plain `parlai`.

    The flags that we read before ParlAI does get one spelling: `--model_file=M` is `--model-file M`.
    """
    result: list[str] = []
    for argument in map(with_hyphens, arguments):
        result += argument.split("=", 1) if argument.startswith(IN_TWO_PARTS) else [argument]
    for i, (flag, value) in enumerate(itertools.pairwise(list(result))):
        if flag in ("-m", "--model"):
            result[i + 1] = SHORT_NAMES.get(value) or of_another_package(value) or value
    return result


def of_another_package(name: str) -> str | None:
    """Return the agent of a short name that an installed package gives its architecture; None if there is none."""
    if not name.isidentifier() or not importlib.metadata.entry_points(group=ENTRY_POINTS):
        return None
    from polyagents.models.architecture import full_name  # imports torch

    found = full_name(name)
    return found and f"polyagents:{found}"


def with_our_agent(arguments: list[str]) -> list[str]:
    """Return arguments, with our agent for a model of ParlAI's if the command takes one and no flag names it."""
    file = model_file(arguments)
    if file is None or names_a_model(arguments) or not PARLAI_COMMANDS[BY_EVERY_NAME[arguments[0]]].takes_a_model:
        return arguments
    agent = our_agent(file)
    return [*arguments, "-m", agent] if agent else arguments


def check_is_trained(arguments: Sequence[str]) -> None:
    """Say, by an InputError, that a model file is missing before ParlAI misses the flags that only the model knows."""
    file = model_file(arguments)
    if file and os.path.isdir(file) and not os.path.exists(f"{file}.opt"):
        if arguments[0] in OWN_COMMANDS and arguments[0] != "evaluate":
            return  # these commands report errors in it themselves
        raise InputError(
            f"{file} is a folder, which rank, serve and index build take. ParlAI's commands and evaluate need a model "
            f"file: make it with {command('convert_weights', '-mf', file, '--to', 'model-file', '--out', 'M')}."
        )
    if file and not os.path.basename(file) and not os.path.isdir(file):
        raise InputError(f"{file} is not the name of a file; remove the {os.sep} at its end.")
    trains = BY_EVERY_NAME.get(arguments[0]) in TRAIN_COMMANDS
    partner = values_in(arguments).get("--partner-model-file")
    for path, instead in (
        (None if names_a_model(arguments) else file, ", or start a new model with --model poly|bi|uni|cross" * trains),
        (partner, ", or omit --partner-model-file"),
    ):
        if path and not path.startswith(OF_ZOO) and not os.path.exists(f"{path}.opt"):
            raise InputError(
                f"There is no trained model at {path} ({path}.opt is missing). Give the --model-file of "
                f"train_model{instead}."
            )
    for argument in arguments:
        if argument.startswith(f"zoo:{GROUP}/") and argument.endswith("/model"):
            find(argument)  # a wrong name is reported before gigabytes are downloaded


def check_is_theirs(arguments: Sequence[str]) -> None:
    """Refuse a model of ours for a command of ParlAI's that cannot read it, and name our command."""
    name = BY_EVERY_NAME[arguments[0]]
    instead = PARLAI_COMMANDS[name].instead
    if instead is None:  # most can, and need not read M.opt for this
        return
    file, given = model_file(arguments) or "M", values_in(arguments)
    agent = given.get("-m") or given.get("--model") or parlai_options.read(file).get("model")
    if str(agent).startswith("polyagents:"):
        raise InputError(
            f"{name} cannot read a model of polyagents; give polyagents {instead.format(file=shlex.quote(file))}."
        )


def values_in(arguments: Sequence[str]) -> dict[str, str]:
    """Return the word after each flag of a command line."""
    return {flag: value for flag, value in itertools.pairwise(arguments) if flag.startswith("-")}


def model_file(arguments: Sequence[str]) -> str | None:
    """Return the value of `--model-file`; None if there is none."""
    given = values_in(arguments)
    return given.get("-mf") or given.get("--model-file")


def names_a_model(arguments: Sequence[str]) -> bool:
    """Return whether the arguments say which agent to use, by its name or by a file of options."""
    return any(flag in NAMES_A_MODEL for flag in arguments[:-1])


# ---- running ---------------------------------------------------------------------------------------------------------


def run(arguments: Sequence[str]) -> Any:
    """Run a command, by its name or alias, as `parlai` does, but import the script of this command only, not all 29.

    An InputError says that ParlAI or a task is missing, or that the command cannot read a model of ours.
    """
    name = BY_EVERY_NAME[arguments[0]]
    if not parlai_is_installed():
        raise InputError(f"polyagents {name} is a command of ParlAI, which is not installed: {INSTALL_PARLAI}")
    flags = {argument.split("=", 1)[0] for argument in arguments}
    if name in NEED_A_TASK and not {*NAMES_A_TASK, *HELP} & flags:
        raise InputError(f"{name}: {OF_PARLAI['No task specified']}")
    arguments = with_our_agent([*arguments])
    check_is_theirs(arguments)
    script = PARLAI_COMMANDS[name].script or name
    with waiting(LOADING):
        from polyagents.parlai_patches import patches  # imports ParlAI and torch

        patches.load_script(script)
    sys.argv = ["polyagents", *arguments]  # ParlAI reads the user's flags from there
    return patches.run_script(script, arguments)
