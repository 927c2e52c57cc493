"""The pairs of conversations: balanced over models and conversations, and the same for the same seed."""

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from random import Random
from typing import TypeVar

from polyagents.console import number_of
from polyagents.errors import InputError
from polyagents.human_eval.conversations import make_pair, sides_of
from polyagents.human_eval.records import HUMAN, Conversation, ConversationPair, Side

T = TypeVar("T")

Matchup = tuple[str, str]
"""Two models that meet."""


def read_matchups(given: str, models: Sequence[str]) -> list[Matchup]:
    """Parse `A:B,A:C` or `all`; names of models may have colons and commas of their own. B:A is the matchup A:B.

    A model that is not there, or meets itself, is an InputError.
    """
    there = ", ".join(models) or "none"
    if given == "all":
        found = list(itertools.combinations([model for model in models if model != HUMAN], 2))
        if not found:
            raise InputError(f"--matchups all needs two models, and there are conversations of {there}; import more.")
        return found
    named = {f"{one}:{other}": (min(one, other), max(one, other)) for one, other in itertools.permutations(models, 2)}
    met: dict[Matchup, None] = {}
    rest = given
    while rest:
        name = max((name for name in named if f"{rest},".startswith(f"{name},")), key=len, default=None)
        if name is None:
            raise InputError(
                f"--matchups {given}: {rest.split(',')[0]!r} is not a pair of two different models; there are "
                f"{there}. Give all, or for instance A:B,A:C."
            )
        met[named[name]] = None
        rest = rest[len(name) + 1 :]
    return list(met)


def make_pairs(
    conversations: Iterable[Conversation], matchups: Sequence[Matchup], per_matchup: int, seed: int
) -> list[ConversationPair]:
    """Make pairs in the order in which they should be judged.

    Within a matchup all conversations of a model are used equally often (once more or less), and no two meet twice.
    One pair of every matchup comes before the second of any, so that an evaluation that is stopped early is balanced,
    too. More pairs with the same seed begin with the same ones. A matchup with too few conversations is an InputError.
    """
    sides: dict[str, list[Side]] = defaultdict(list)
    for conversation in conversations:
        for model, side in sides_of(conversation).items():
            sides[model].append(side)
    columns = []
    for first, second in matchups:
        pairs = list(meetings(sides[first], sides[second], f"{seed} {first}:{second}", per_matchup))
        if len(pairs) < per_matchup:
            had = f"{number_of(len(sides[first]), 'conversation')} of {first}, {len(sides[second])} of {second}"
            raise InputError(
                f"{first}:{second} gives {number_of(len(pairs), 'pair')} ({had}), not {per_matchup}; import more "
                f"conversations, or give a smaller --per-matchup."
            )
        columns.append(pairs)
    rng = Random(seed)
    return [pair for row in zip(*columns, strict=True) for pair in shuffled(rng, row)]


def meetings(first: Sequence[Side], second: Sequence[Side], seed: str, count: int) -> Iterator[ConversationPair]:
    """Yield at most `count` different pairs of two models' sides, each side as often as the others of its model.

    Both go round their circles; if both are back at the beginning, the second goes a step on, so that no two meet
    twice. Two speakers of one conversation are not a pair.
    """
    rng = Random(seed)
    first, second = shuffled(rng, first), shuffled(rng, second)
    possible = range(len(first) * len(second))
    met = (
        (first[k % len(first)], second[(k + k // math.lcm(len(first), len(second))) % len(second)]) for k in possible
    )
    different = (sides for sides in met if sides[0].conversation != sides[1].conversation)
    return itertools.starmap(make_pair, itertools.islice(different, count))


def shuffled(rng: Random, items: Sequence[T]) -> list[T]:
    """Return items in random order, drawn by random() only, whose sequence Python promises to keep."""
    return sorted(items, key=lambda _: rng.random())


def without_checks(conversations: Mapping[str, Conversation], pairs: Iterable[ConversationPair]) -> list[Conversation]:
    """Return the conversations that do not belong to an onboarding check."""
    checks = {side.conversation for pair in pairs if pair.right is not None for side in pair.sides}
    return [conversation for name, conversation in conversations.items() if name not in checks]
