"""`polyagents human_eval`: people compare conversations and talk with models, step by step."""

import argparse
import importlib
from collections.abc import Mapping
from typing import Any

from polyagents.arguments import CommandParser
from polyagents.errors import InputError

# Step -> its module in human_eval/steps; imported when it is called.
STEPS = {
    "plan": "plan_study",
    "self_chat": "generate_self_chats",
    "import": "import_logs",
    "pairs": "pair_conversations",
    "invite": "invite_annotators",
    "serve": "serve_annotation",
    "chat": "serve_chats",
    "report": "write_report",
    "export": "export_files",
    "forget": "forget_people",
    "prolific": "run_on_prolific",
    "mturk": "run_on_mturk",
}


def parser() -> argparse.ArgumentParser:
    """Declare the step; its own flags follow it."""
    parser = CommandParser(
        "polyagents human_eval",
        "Human evaluation, by people whom you invite or by a crowd: two conversations side by side, which speaker "
        "would you rather talk to? Flags of a step: polyagents human_eval STEP --help",
    )
    parser.add_argument("step", nargs="?", help=", ".join(STEPS))
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="the step's own")
    return parser


def run(opt: Mapping[str, Any]) -> None:
    """Run a step with the rest of the command line; an InputError says if there is no such step."""
    step = opt["step"]
    if step not in STEPS:
        given = f"{step} is not a step" if step else "No step is given"
        raise InputError(f"{given}; give one of: polyagents human_eval {'|'.join(STEPS)}.")
    module = importlib.import_module(f"polyagents.human_eval.steps.{STEPS[step]}")
    module.run(vars(module.parser().parse_args(opt["arguments"])))
