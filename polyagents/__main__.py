"""The `polyagents` command: all of ParlAI's commands with our agents' short names, and our own commands.

Starting a command needs only its name; the command imports what it needs.
"""

import importlib
import platform
import sys
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from polyagents import __version__, threads
from polyagents.commands import parlai_command, recipe
from polyagents.commands.names import BY_EVERY_NAME, OWN_COMMANDS, TRAIN_COMMANDS, listing
from polyagents.console import LOADING, say, take_over_streams, waiting
from polyagents.errors import InputError, did_you_mean
from polyagents.faults import users_fault

STOPPED = 130  # the exit code of shells for SIGINT


def main() -> None:
    """Run the command that the command line names: the entry point of `polyagents`."""
    name = sys.argv[1] if len(sys.argv) > 1 else "help"
    # ParlAI imports pkg_resources, which announces its end at every start; setup.py pins a version that has it.
    warnings.filterwarnings("ignore", message="pkg_resources is deprecated", category=UserWarning)
    try:
        take_over_streams()
        try:
            check_characters(sys.argv[1:])
            start(parlai_command.with_full_names(sys.argv[1:]))
        finally:
            print(end="", flush=True)  # an error in it is one of the command
    except KeyboardInterrupt:
        sys.stderr.write(f"\npolyagents {name}: stopped by Ctrl-C.\n")
        sys.exit(STOPPED)
    except Exception as error:
        extra = OWN_COMMANDS[name].extra if name in OWN_COMMANDS else "parlai"
        sentence = users_fault(error, extra)
        if sentence is None:
            raise
        say(f"polyagents: {sentence}")
        sys.exit(2)


def check_characters(arguments: Sequence[str]) -> None:
    """Refuse arguments that are not UTF-8: names that no file, page or JSON of ours can hold."""
    for argument in arguments:
        try:
            argument.encode("utf-8")
        except UnicodeEncodeError as error:
            shown = argument.encode("utf-8", "replace").decode()
            raise InputError(f"{shown} is not in UTF-8; give the file a name that is.") from error


def start(arguments: Sequence[str]) -> None:
    """Run a command of ours or of ParlAI's.

    Raises:
        InputError: there is no such command, or its input cannot work.
    """
    arguments = recipe.as_training(arguments)
    name = arguments[0] if arguments else "help"
    if name in ("help", "h", "-h", "--help", "helpall", "--helpall"):
        print(listing(with_hidden=name.endswith("helpall")))
    elif name == "--version":
        print(versions())
    elif name in OWN_COMMANDS:
        if name != "init_model":  # which writes it
            parlai_command.check_is_trained(arguments)
        run_own(name, arguments[1:])
    elif name in BY_EVERY_NAME:
        parlai_command.check_is_trained(arguments)
        chosen = threads.choose()
        if chosen and BY_EVERY_NAME[name] in TRAIN_COMMANDS and not set(parlai_command.HELP) & set(arguments):
            say(chosen)
        parlai_command.run(arguments)
    else:
        hint = did_you_mean(name, [*OWN_COMMANDS, *BY_EVERY_NAME])
        raise InputError(f"There is no command {name}{hint}; polyagents --help lists all commands.")


def versions() -> str:
    """Return the versions of polyagents and of the libraries below, for fault reports, without importing any."""
    from importlib import metadata  # no other command needs it

    found = []
    for name in ("ParlAI", "torch", "transformers"):
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            found.append(f"no {name}")
    return f"polyagents {__version__} ({', '.join(found)}, Python {platform.python_version()})"


def run_own(name: str, arguments: Sequence[str]) -> Any:
    """Run one of our commands; the result is what its `run` returns."""
    command, chosen = OWN_COMMANDS[name], threads.choose()
    module = importlib.import_module(f"polyagents.commands.{name}")
    with waiting(LOADING):
        opt = module.parser().parse_args(list(arguments))  # flags of a task are known to ParlAI only
        if command.loads_models:
            importlib.import_module("polyagents.ranker")
    if chosen and command.computes:
        say(chosen)
    return module.run(opt if isinstance(opt, Mapping) else vars(opt))


if __name__ == "__main__":
    main()
