"""`polyagents human_eval import`: conversations, pairings and answers from files."""

import argparse
import json
from collections.abc import Mapping
from typing import Any

from polyagents.arguments import CommandParser
from polyagents.console import say
from polyagents.errors import InputError
from polyagents.human_eval.formats.conversation_files import FileContents, read_file
from polyagents.human_eval.steps.database_flag import add_database_flag, existing_store, open_store

SHOWN = 20  # malformed parts of a file that are named


def parser() -> argparse.ArgumentParser:
    """Declare the flags."""
    parser = CommandParser(
        "polyagents human_eval import",
        "Import ParlAI's logs (self_chat, interactive, older ones) or ACUTE-Eval's pairings, or the answers from a "
        "project of Potato (its folder) or Label Studio (its JSON export); what exists is skipped.",
    )
    parser.add_argument("files", nargs="*", help="files of any of the formats, which are detected by their content")
    parser.add_argument(
        "--model-name",
        help="name of the model in these logs; by default its model file, or, if an older log does not say that, the "
        "class of its agent",
    )
    add_database_flag(parser)
    return parser


def run(opt: Mapping[str, Any]) -> None:
    """Read everything, then store it; say what was skipped."""
    files = opt["files"]
    if not files:
        raise InputError("human_eval import needs files of conversations.")
    found = {file: read_file(file, opt["model_name"]) for file in files}
    for file, part in found.items():
        say_malformed(file, part)
    conversations = [conversation for part in found.values() for conversation in part.conversations]
    pairs = [pair for part in found.values() for pair in part.pairs]
    answers = [answer for part in found.values() for answer in part.answers]
    if not (conversations or answers):
        raise InputError(
            f"There is no conversation or answer in {', '.join(files)}; give ParlAI's logs, ACUTE-Eval's pairings, or "
            f"a project's answers."
        )
    store = open_store(opt["database"]) if conversations else existing_store(opt["database"])
    added = {"conversations": store.add_conversations(conversations), "pairs": store.add_pairs(pairs)}
    if answers:
        from polyagents.human_eval.storage.tool_answers import add_answers  # loads SQLAlchemy

        added["answers"] = add_answers(store, answers)
    malformed = sum(len(part.malformed) for part in found.values())
    print(
        json.dumps(added | {"read": len(conversations) + len(answers), "malformed": malformed, "database": store.name})
    )


def say_malformed(file: str, contents: FileContents) -> None:
    """Say which parts of a file were skipped, and why."""
    for where, reason in contents.malformed[:SHOWN]:
        say(f"{file}, {where}, is skipped: {reason}.")
    more = len(contents.malformed) - SHOWN
    if more > 0:
        say(f"{file}: {more:,} more skipped, {len(contents.malformed):,} in all.")
