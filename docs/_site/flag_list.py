"""Flags of an argparse parser as reStructuredText."""

import argparse
from collections.abc import Iterable, Sequence
from typing import Any

from sphinx.util.rst import escape

TITLES = {"positional arguments": "Arguments", "options": "Flags"}  # of argparse's own groups


def heading(text: str, line: str) -> list[str]:
    """A heading, underlined with a character."""
    return [text, line * len(text), ""]


def table(rows: Iterable[Sequence[str]], widths: str = "auto") -> list[str]:
    """A table; the first row is its head, and cells hold markup."""
    lines = [".. list-table::", "   :header-rows: 1", f"   :widths: {widths}", ""]
    for row in rows:
        lines += [f"   {'*' if i == 0 else ' '} - {cell}" for i, cell in enumerate(row)]
    return [*lines, ""]


def flags(parser: argparse.ArgumentParser, program: str) -> list[str]:
    """All flags of a parser, under the titles of their groups where it has more than argparse's own."""
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
    """One flag: its names and value, its help, its default, and further sentences in reStructuredText."""
    facts = [*notes]
    if action.choices is not None and action.metavar is None:
        facts.append("One of " + ", ".join(f"``{choice}``" for choice in action.choices) + ".")
    if action.option_strings and action.required:
        facts.append("Required.")
    if has_default(action):
        facts.append(f"Default: ``{action.default}``.")
    text = (action.help or "").replace("%(prog)s", prog).replace("%%", "%")
    return [
        f".. option:: {', '.join(f'{name}{value(action)}' for name in names(action))}",
        "",
        f"   {' '.join([escape(sentence(text)), *facts])}",
        "",
    ]


def names(action: argparse.Action) -> list[str]:
    """The names of a flag; ParlAI's parser also has each with underscores, which is not shown."""
    if not action.option_strings:
        return [action.metavar if isinstance(action.metavar, str) else action.dest]
    return [name for name in action.option_strings if "_" not in name] or [*action.option_strings]


def value(action: argparse.Action) -> str:
    """What follows the name of a flag."""
    if not action.option_strings or action.nargs == 0:
        return ""
    metavar = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    return f" {metavar}" + (" ..." if action.nargs in ("+", "*", argparse.REMAINDER) else "")


def has_default(action: argparse.Action) -> bool:
    """Whether a flag has a default that says something."""
    silent: tuple[Any, ...] = (None, False, argparse.SUPPRESS, "")
    return bool(action.option_strings) and not any(action.default is one or action.default == one for one in silent)


def sentence(text: str) -> str:
    """A help text as a sentence: with a capital letter, unless it begins with a name or code, and a full stop."""
    text = " ".join(text.split())
    first = text.split(" ")[0]
    if first.rstrip(",;").isalpha() and first.islower():  # neither "--flag" nor "m:"
        text = text[:1].upper() + text[1:]
    return text if not text or text.endswith((".", "?", "!")) else f"{text}."
