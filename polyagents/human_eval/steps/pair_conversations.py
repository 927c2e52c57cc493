"""`polyagents human_eval pairs`: the pairs of conversations to compare."""

import argparse
import json
from collections.abc import Mapping
from typing import Any

from polyagents.arguments import CommandParser, positive_int, seed_number
from polyagents.console import number_of, say
from polyagents.errors import InputError
from polyagents.human_eval.formats.conversation_files import read_file
from polyagents.human_eval.pairing import make_pairs, read_matchups, without_checks
from polyagents.human_eval.records import HUMAN, Conversation, ConversationPair
from polyagents.human_eval.steps.database_flag import add_database_flag, existing_store
from polyagents.human_eval.steps.import_logs import say_malformed


def parser() -> argparse.ArgumentParser:
    """Declare the flags."""
    parser = CommandParser(
        "polyagents human_eval pairs",
        "Pair conversations of different models, to be judged side by side. Another call adds the pairs that are "
        "missing.",
    )
    parser.add_argument(
        "--matchups", default="all", help=f"which models are compared: A:B,A:C, or all; people are called {HUMAN}"
    )
    parser.add_argument("--per-matchup", type=positive_int, default=50, help="how many pairs for each two models")
    parser.add_argument("--seed", type=seed_number, default=0, help="draws the pairs and their order")
    parser.add_argument(
        "--checks", help="ACUTE-Eval pairings whose onboarding pairs (with a known answer) every annotator gets first"
    )
    add_database_flag(parser)
    return parser


def run(opt: Mapping[str, Any]) -> None:
    """Read, draw, and only then store the pairs; print how many there are."""
    store, file = existing_store(opt["database"]), opt["checks"]
    background, checks = read_checks(file) if file else ([], [])
    conversations = without_checks(store.conversations(), [*store.pairs(), *checks])
    models = {model for conversation in conversations for model in conversation.models.values()}
    matchups = read_matchups(opt["matchups"], [*sorted(models - {HUMAN}), *(models & {HUMAN})])
    pairs = make_pairs(conversations, matchups, opt["per_matchup"], opt["seed"])
    store.add_conversations(background)
    store.add_pairs(checks)
    added, every = store.add_pairs(pairs), store.pairs()
    real = sum(pair.right is None for pair in every)
    say_earlier(added, real)
    counts = {"added": added, "pairs": real, "checks": len(every) - real}
    print(json.dumps(counts | {"matchups": [":".join(matchup) for matchup in matchups], "database": store.name}))


def say_earlier(added: int, there: int) -> None:
    """Report on the pairs of an earlier call, if there was one."""
    if not added:
        say("These pairs exist already: nothing is added. For more, give a larger --per-matchup.")
    elif there > added:
        say(
            f"{number_of(added, 'pair')} more than the {there - added:,} from before: all {there:,} will be judged. "
            f"To have only the new ones, give another --database to import and pairs."
        )


def read_checks(file: str) -> tuple[list[Conversation], list[ConversationPair]]:
    """Read the onboarding pairs of a file, and their conversations."""
    found = read_file(file)
    say_malformed(file, found)
    checks = [pair for pair in found.pairs if pair.right is not None]
    if not checks:
        raise InputError(f"--checks {file} has no onboarding pairs; give ACUTE-Eval pairings with is_onboarding.")
    needed = {side.conversation for pair in checks for side in pair.sides}
    return [conversation for conversation in found.conversations if conversation.name in needed], checks
