"""`polyagents human_eval pairs`: which conversations meet."""

import json

from parlai.core.params import ParlaiParser
from parlai.core.script import ParlaiScript

from polyagents.arguments import positive_int
from polyagents.console import say
from polyagents.errors import InputError
from polyagents.human_eval.conversations import models_in
from polyagents.human_eval.pairing import make_pairs, read_matchups, without_checks
from polyagents.human_eval.reading import read_file
from polyagents.human_eval.records import HUMAN, Conversation, Pair
from polyagents.human_eval.steps.database_flag import add_database_flag, existing_store
from polyagents.human_eval.steps.import_logs import say_malformed


class Pairs(ParlaiScript):
    """Pair conversations."""

    @classmethod
    def setup_args(cls) -> ParlaiParser:
        """Models, how many pairs, checks."""
        parser = ParlaiParser(
            False,
            False,
            "Pair conversations of different models, to be judged side by side. Called again, it adds what is not yet "
            "there (polyagents)",
        )
        parser.add_argument(
            "--matchups", default="all", help=f"which models meet: A:B,A:C, or all; people's side is called {HUMAN}"
        )
        parser.add_argument("--per-matchup", type=positive_int, default=50, help="how many pairs of each two models")
        parser.add_argument("--seed", type=int, default=0, help="draws the pairs and their order")
        parser.add_argument(
            "--checks",
            help="ACUTE-Eval pairings whose onboarding pairs (with a known answer) every annotator gets first",
        )
        add_database_flag(parser)
        return parser

    def run(self) -> None:
        """Read, draw, and only then store; say how many."""
        store, file = existing_store(self.opt["database"]), self.opt.get("checks")
        background, checks = read_checks(file) if file else ([], [])
        conversations = without_checks(store.conversations(), [*store.pairs(), *checks])
        people = [HUMAN] if any(HUMAN in conversation.models.values() for conversation in conversations) else []
        matchups = read_matchups(self.opt["matchups"], [*models_in(conversations), *people])
        pairs = make_pairs(conversations, matchups, self.opt["per_matchup"], self.opt["seed"])
        store.add_conversations(background)
        store.add_pairs(checks)
        added, every = store.add_pairs(pairs), store.pairs()
        real = sum(pair.right is None for pair in every)
        say_earlier(added, len(pairs), real)
        counts = {"added": added, "pairs": real, "checks": len(every) - real}
        print(json.dumps(counts | {"matchups": [":".join(matchup) for matchup in matchups], "database": store.name}))


def say_earlier(added: int, drawn: int, there: int) -> None:
    """What became of the pairs of an earlier call; nothing where there was none.

    Args:
        added: how many are new.
        drawn: how many this call asked for.
        there: all that are stored now.
    """
    if not added:
        say(f"All {drawn:,} pairs were there already: nothing is added. For more give a larger --per-matchup.")
    elif there > added:
        say(
            f"{added:,} pairs are added to {there - added:,} that were there: all {there:,} will be judged. To have "
            f"these alone, give another --database to import and pairs."
        )


def read_checks(file: str) -> tuple[list[Conversation], list[Pair]]:
    """The onboarding pairs of a file, and their conversations.

    Raises:
        InputError: there are none.
    """
    found = read_file(file)
    say_malformed(file, found)
    checks = [pair for pair in found.pairs if pair.right is not None]
    if not checks:
        raise InputError(f"--checks {file} has no onboarding pairs; give ACUTE-Eval pairings with is_onboarding.")
    needed = {side.conversation for pair in checks for side in pair.sides}
    return [conversation for conversation in found.conversations if conversation.name in needed], checks
