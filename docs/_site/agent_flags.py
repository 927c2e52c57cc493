"""The page of the agents' and tasks' flags, from the parser that `train_model` would use."""

import argparse
import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any

from flag_list import default, flag, has_default, heading, is_shown, names, table

import polyagents
import polyagents.tasks

AGENTS = {
    "bi": "BiEncoder",
    "poly": "PolyEncoder",
    "uni": "UniEncoder",
    "cross": "CrossEncoder",
    "Pretrain": "Pretrain",
}
OURS = " (polyagents)"  # ends the titles of our groups in ParlAI's parser

INTRODUCTION = """\
These are the flags that our agents and tasks add to ParlAI's commands: ``train_model``, ``eval_model``,
``interactive``, ``self_chat`` and others. A group is named as in ``polyagents train_model --help -m poly``. The
sentence after a flag says which agents have it: ``bi``, ``poly``, ``uni`` and ``cross``, and ``Pretrain``, which is
``-m polyagents:Pretrain``. In Python, ``Ranker.train`` and ``Ranker.load`` take the same names with underscores.
"""

OTHER_DEFAULTS = """\
These flags are ParlAI's own; our agents give them the defaults of the paper (section 5.1). A dash says that the agent
leaves ParlAI's default as it is.
"""


def page() -> str:
    """The whole page."""
    parsers = {name: training_parser(getattr(polyagents, agent)) for name, agent in AGENTS.items()}
    groups: dict[str, dict[str, dict[str, argparse.Action]]] = {}  # title -> dest -> agent -> flag
    for agent, parser in parsers.items():
        for title, action in our_flags(parser):
            groups.setdefault(title, {}).setdefault(action.dest, {})[agent] = action
    lines = [*heading("Flags of agents and tasks", "="), INTRODUCTION, ".. program:: train_model", ""]
    for title, flags in groups.items():
        lines += heading(title, "-")
        lines += [line for by_agent in flags.values() for line in agent_flag(by_agent)]
    lines += task_flags()
    lines += [*heading("ParlAI's flags with other defaults", "-"), OTHER_DEFAULTS, *other_defaults(parsers)]
    return "\n".join(lines)


def training_parser(*classes: Any) -> argparse.ArgumentParser:
    """The parser of `train_model` with the flags of agents or teachers."""
    from parlai.core.opt import Opt  # takes seconds, as the next one does
    from parlai.scripts.train_model import setup_args

    parser = setup_args()
    for one in classes:
        one.add_cmdline_args(parser, Opt(validation_every_n_epochs=0.5))
    return parser


def our_flags(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.Action]]:
    """The flags in our groups, each with the title of its group."""
    for group in parser._action_groups:
        if (group.title or "").endswith(OURS):
            yield from ((group.title.removesuffix(OURS), one) for one in group._group_actions if is_shown(one))


def agent_flag(by_agent: dict[str, argparse.Action]) -> list[str]:
    """A flag that some agents have; where their defaults differ, each is said."""
    action, *others = by_agent.values()
    notes = [f"For {', '.join(f'``{name}``' for name in by_agent)}."] if len(by_agent) < len(AGENTS) else []
    if any(other.default != action.default for other in others):
        defaults = [f"{default(one)} ({name})" for name, one in by_agent.items() if has_default(one)]
        notes.append(f"Default: {', '.join(defaults)}.")
        action.default = None  # which is said now
    return flag(action, "train_model", notes)


def task_flags() -> list[str]:
    """The flags of our tasks, each under the name of the task."""
    lines: list[str] = []
    for found in pkgutil.iter_modules(polyagents.tasks.__path__):
        task = importlib.import_module(f"polyagents.tasks.{found.name}") if found.ispkg else None
        if teacher := getattr(task, "DefaultTeacher", None):
            flags = [action for _, action in our_flags(training_parser(teacher))]
            if flags:
                lines += heading(f"Task polyagents.tasks.{found.name}", "-")
                lines += [line for action in flags for line in flag(action, "train_model")]
    return lines


def other_defaults(parsers: dict[str, argparse.ArgumentParser]) -> list[str]:
    """A table of ParlAI's flags whose defaults our agents change."""
    from parlai.core.torch_agent import TorchAgent
    from parlai.core.torch_ranker_agent import TorchRankerAgent

    theirs = {one.dest: one for one in training_parser(TorchAgent, TorchRankerAgent)._actions if is_shown(one)}
    ours = {
        agent: {one.dest: one.default for one in parser._actions if one.dest in theirs}
        for agent, parser in parsers.items()
    }
    rows = [("flag", "ParlAI", *AGENTS)]
    for dest, action in theirs.items():
        values = [defaults.get(dest, action.default) for defaults in ours.values()]
        if any(one != action.default for one in values):
            cells = [f"``{one}``" if one != action.default else "-" for one in values]
            rows.append((f"``{names(action)[0]}``", f"``{action.default}``", *cells))
    return table(rows)
