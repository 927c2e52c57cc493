"""Flags of an argparse parser as reStructuredText."""

import argparse
from collections.abc import Iterable, Sequence

from sphinx.util.rst import escape

TITLES = {"positional arguments": "Arguments", "options": "Flags"}  # of argparse's own groups


def heading(text: str, line: str) -> list[str]:
    """A heading, underlined with a character."""
    return [text, line * len(text), ""]


def table(rows: Iterable[Sequence[str]], widths: str = "auto") -> list[str]:
    """A table in reStructuredText.

    Args:
        rows: their cells, which may hold markup; the first row is the head.
        widths: those of the columns, as `list-table` takes them.

    Returns:
        The lines of the table.
    """
    lines = [".. list-table::", "   :header-rows: 1", f"   :widths: {widths}", ""]
    for row in rows:
        lines += [f"   {'*' if i == 0 else ' '} - {cell}" for i, cell in enumerate(row)]
    return [*lines, ""]


def flags(parser: argparse.ArgumentParser, program: str) -> list[str]:
    """All flags of a parser, under the titles of their groups.

    Args:
        parser: what has the flags.
        program: the command that they belong to, which their anchors begin with.

    Returns:
        Lines of reStructuredText.
    """
    lines = [f".. program:: {program}", ""]
    for group in parser._action_groups:
        actions = [action for action in group._group_actions if is_shown(action)]
        if actions:
            lines += heading(TITLES.get(group.title, group.title), "-")
            lines += [line for action in actions for line in flag(action, parser.prog)]
    return lines


def is_shown(action: argparse.Action) -> bool:
    """Whether help shows a flag; -h itself needs no word."""
    return action.help is not argparse.SUPPRESS and action.dest != "help"


def flag(action: argparse.Action, prog: str, notes: Sequence[str] = ()) -> list[str]:
    """Describe one flag: its names and value, its help, what it may be, and its default.

    Args:
        action: the flag.
        prog: the name of its command, for help texts that hold it.
        notes: further sentences in reStructuredText.

    Returns:
        Lines of reStructuredText.
    """
    facts = []
    if action.choices is not None and action.metavar is None:
        facts.append("One of " + ", ".join(f"``{choice}``" for choice in action.choices) + ".")
    if action.option_strings and action.required:
        facts.append("Required.")
    facts += notes
    if has_default(action):
        facts.append(f"Default: {default(action)}.")
    text = (action.help or "") % {**vars(action), "prog": prog}  # as argparse does
    return [
        f".. option:: {', '.join(f'{name}{value(action)}' for name in names(action))}",
        "",
        f"   {' '.join([escape(sentence(text)), *facts])}",
        "",
    ]


def names(action: argparse.Action) -> list[str]:
    """The names of a flag; an argument without a flag has that of its value."""
    return [*action.option_strings] or [action.metavar if isinstance(action.metavar, str) else action.dest]


def value(action: argparse.Action) -> str:
    """What follows the name of a flag."""
    if not action.option_strings or action.nargs == 0:
        return ""
    metavar = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    return f" {metavar}" + (" ..." if action.nargs in ("+", "*", argparse.REMAINDER) else "")


def has_default(action: argparse.Action) -> bool:
    """Whether a flag has a default that says something: a flag without a value is off where it is not given."""
    silent = action.default is None or action.default in (argparse.SUPPRESS, "")
    return bool(action.option_strings) and action.nargs != 0 and not silent


def default(action: argparse.Action) -> str:
    """The default of a flag, as a user would type it."""
    typed = str(action.default)
    return f"``{typed.lower() if isinstance(action.default, bool) else typed}``"


def sentence(text: str) -> str:
    """A help text as a sentence: with a capital letter, unless it begins with a name or code, and a full stop."""
    text = " ".join(text.split())
    first = text.split(" ")[0]
    if first.rstrip(",;").isalpha() and first.islower():  # neither "--flag" nor "m:"
        text = text[:1].upper() + text[1:]
    return text if not text or text.endswith((".", "?", "!")) else f"{text}."
