"""A page for every command of ours, from its parser."""

import importlib

from flag_list import flags, heading, table
from sphinx.util.rst import escape

from polyagents.commands.human_eval import STEPS
from polyagents.commands.names import OWN_COMMANDS, PARLAI_COMMANDS, OwnCommand


def pages() -> dict[str, str]:
    """Path in docs/generated -> text: a page for each command, and the list of all."""
    named = {f"commands/{name}.rst": command_page(name, command) for name, command in OWN_COMMANDS.items()}
    steps = {f"commands/human_eval_{step}.rst": step_page(step, module) for step, module in STEPS.items()}
    return {"commands.rst": list_of_commands(), **named, **steps}


def list_of_commands() -> str:
    """The page that lists ours and ParlAI's."""
    ours = [(f":doc:`commands/{name}`", f"{escape(command.summary)}.") for name, command in OWN_COMMANDS.items()]
    theirs = [
        (", ".join(f"``{one}``" for one in (name, *command.aliases)), f"{escape(command.summary)}.")
        for name, command in PARLAI_COMMANDS.items()
    ]
    lines = [
        *heading("Commands", "="),
        "``polyagents COMMAND --help`` shows the flags of a command in a terminal. This page and those below it are",
        "generated from the same parsers.",
        "",
        *table([("command", "what it does"), *ours], "25 75"),
        *heading("ParlAI's commands", "-"),
        "``polyagents`` starts every command of ParlAI, with our agents as ``--model bi``, ``poly``, ``uni`` or",
        "``cross``. Their flags are ParlAI's, and those of the agent: :doc:`agent-flags`.",
        "",
        *table([("command", "what it does"), *theirs], "40 60"),
        ".. toctree::",
        "   :hidden:",
        "",
        *(f"   commands/{name}" for name in OWN_COMMANDS),
        "",
    ]
    return "\n".join(lines)


def command_page(name: str, command: OwnCommand) -> str:
    """The page of one command: what it does, what it needs, and its flags or steps."""
    parser = importlib.import_module(f"polyagents.commands.{name}").parser()
    needs = f"It needs ``pip install 'polyagents[{command.extra}]'``." if command.extra else ""
    lines = [*heading(name, "="), escape(parser.description or command.summary), "", needs, ""]
    if name == "human_eval":
        return "\n".join([*lines, *steps_of_human_eval()])
    return "\n".join([*lines, *flags(parser, f"polyagents {name}")])


def steps_of_human_eval() -> list[str]:
    """List the steps of `human_eval`, each of which has a page."""
    return [
        "Its steps, each with a page of its own, in the order in which they are usually run:",
        "",
        ".. toctree::",
        "",
        *(f"   human_eval_{step}" for step in STEPS),
        "",
    ]


def step_page(step: str, module: str) -> str:
    """The page of one step of `human_eval`."""
    parser = importlib.import_module(f"polyagents.human_eval.steps.{module}").parser()
    title = heading(f"human_eval {step}", "=")
    return "\n".join([*title, escape(parser.description or ""), "", *flags(parser, f"polyagents human_eval {step}")])
