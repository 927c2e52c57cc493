"""Short help for ParlAI's commands: the most common flags, and ours; `--helpall` lists all of them."""

import argparse
import sys
from typing import Any

OURS = "(polyagents)"  # with which the titles of our groups end
MOST_USED = (
    "model",
    "task",
    "model_file",
    "init_model",
    "init_opt",
    "datatype",
    "datapath",
    "batchsize",
    "learningrate",
    "num_epochs",
    "max_train_steps",
    "max_train_time",
    "validation_every_n_epochs",
    "validation_metric",
    "num_examples",
    "fixed_candidates_path",
    "num_self_chats",
    "outfile",
)


def format_help(everything: Any, parser: argparse.ArgumentParser) -> str:
    """Return the help, a short one unless all flags are asked for."""
    return str(everything(parser)) if "--helpall" in sys.argv else short_help(parser)


def short_help(parser: argparse.ArgumentParser) -> str:
    """Write the help of a command of ParlAI's, whose parser has the flags of its agent and task."""
    formatter = parser._get_formatter()
    known = {action.dest: action for action in parser._actions if action.help != argparse.SUPPRESS}
    formatter.add_text(f"usage: {parser.prog} {'-m poly -t TASK -mf FILE ' if 'model' in known else ''}[flags]")
    formatter.start_section("The most common flags")
    formatter.add_arguments([known[name] for name in MOST_USED if name in known])
    formatter.end_section()
    ours = [group for group in parser._action_groups if (group.title or "").endswith(OURS)]
    for group in ours:
        formatter.start_section(group.title)
        formatter.add_text(group.description)
        formatter.add_arguments(group._group_actions)
        formatter.end_section()
    text = formatter.format_help()
    if "model" in known and not any(group.title.startswith("Encoder") for group in ours if group.title):
        text += f"\nThe flags of an agent of ours: {parser.prog} -m bi|poly|uni|cross --help\n"
    return f"{text}\nAll flags, ParlAI's too: {parser.prog} --helpall\n"
