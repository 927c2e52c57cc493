"""Persona dialogues from the tables, the same on every machine.

Of `random.Random` only `random()` is used: the one method whose sequence Python promises to keep.
"""

import functools
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from .tables import BACK, CHAT, MORE, TOPICS

SEEDS = {"train": 1, "valid": 2, "test": 3}
EPISODES = {"train": 2_000, "valid": 250, "test": 250}
CANDIDATES = 20
FACTS = 3  # persona lines
SAME_TOPIC = 4  # candidates that would fit the question, but another persona

T = TypeVar("T")


@dataclass(frozen=True)
class Turn:
    """What the partner says, the right reply, and the candidates; the first turn's text begins with the persona."""

    text: str
    label: str
    candidates: tuple[str, ...]


@functools.cache
def dialogues(split: str) -> tuple[tuple[Turn, ...], ...]:
    """Generate all dialogues of "train", "valid" or "test". No persona is in two splits."""
    rng = Random(SEEDS[split])
    made: list[tuple[Turn, ...]] = []
    while len(made) < EPISODES[split]:
        persona = {topic: pick(rng, list(TOPICS[topic].replies)) for topic in draw(rng, TOPICS, FACTS)}
        if split_of(persona) == split:
            made.append(tuple(dialogue(rng, persona)))
    return tuple(made)


def replies() -> list[str]:
    """Return all replies, as the candidates of a chat."""
    facts = [text for topic in TOPICS.values() for texts in topic.replies.values() for text in texts]
    return facts + [text for _, texts in CHAT.values() for text in texts]


def split_of(persona: dict[str, str]) -> str:
    """Return the split of a persona, by a checksum of its sorted facts: a tenth each for valid and test."""
    return {0: "valid", 1: "test"}.get(zlib.crc32(repr(sorted(persona.items())).encode()) % 10, "train")


def dialogue(rng: Random, persona: dict[str, str]) -> Iterator[Turn]:
    """Yield the turns of a dialogue, in which the partner asks about each fact, in one of several ways."""
    head = "".join(f"your persona: {tell(rng, topic, value)}\n" for topic, value in persona.items())
    if rng.random() < 0.3:
        said, fitting = CHAT["hello"]
        label = pick(rng, fitting)
        yield Turn(head + pick(rng, said), label, candidates(rng, persona, label, fitting))
        head = ""
    for topic in draw(rng, persona, FACTS):
        right = TOPICS[topic].replies[persona[topic]]
        text, also = pick(rng, TOPICS[topic].ask), None
        if rng.random() < 0.4:
            also = pick(rng, [value for value in TOPICS[topic].replies if value != persona[topic]])
            text = f"{tell(rng, topic, also)} {pick(rng, BACK)}"
        label = pick(rng, right)
        yield Turn(head + text, label, candidates(rng, persona, label, right, topic, also))
        head = ""
        if rng.random() < 0.25:
            label = pick(rng, [other for other in right if other != label])
            yield Turn(pick(rng, MORE), label, candidates(rng, persona, label, right, topic))
    if rng.random() < 0.2:
        said, fitting = CHAT["bye"]
        label = pick(rng, fitting)
        yield Turn(pick(rng, said), label, candidates(rng, persona, label, fitting))


def candidates(
    rng: Random,
    persona: dict[str, str],
    label: str,
    right: Sequence[str],
    topic: str | None = None,
    also: str | None = None,
) -> tuple[str, ...]:
    """Return the label and 19 others, in random order.

    The others are what the persona would say to other questions, what other people would say to this one (the partner
    among them, if `also` is given), and what has nothing to do with either; never another wording of the right reply.
    """
    wrong = dict.fromkeys(pick(rng, TOPICS[t].replies[v]) for t, v in persona.items() if t != topic)
    if topic is not None:
        others = [value for value in TOPICS[topic].replies if value not in (persona[topic], also)]
        values = ([] if also is None else [also]) + draw(rng, others, SAME_TOPIC)
        wrong |= dict.fromkeys(pick(rng, TOPICS[topic].replies[value]) for value in values[:SAME_TOPIC])
    everything = replies()
    while len(wrong) < CANDIDATES - 1:
        text = pick(rng, everything)
        if text not in right:
            wrong[text] = None
    return tuple(draw(rng, [label, *wrong], CANDIDATES))


def tell(rng: Random, topic: str, value: str) -> str:
    """Return somebody's own words about a fact."""
    return pick(rng, TOPICS[topic].tell).format(value)


def draw(rng: Random, items: Iterable[T], count: int) -> list[T]:
    """Return different items in random order."""
    return sorted(items, key=lambda _: rng.random())[:count]


def pick(rng: Random, items: Sequence[T]) -> T:
    """Return one random item."""
    return items[int(rng.random() * len(items))]
