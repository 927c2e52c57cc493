"""A pair: what was said, and what came next; and the line that stands for it while data are made."""

import json
from collections.abc import Sequence
from typing import NamedTuple

from polyagents.files.hashing import text_key, utf8

THREAD_DIGITS = 16


class Pair(NamedTuple):
    """An example.

    Attributes:
        thread: the conversation or document that it is from; pairs of one are in the same split.
        id: no other pair of the same source has it.
        text: the context, a line for each utterance.
        label: what came next, in one line.
    """

    thread: str
    id: str
    text: str
    label: str


def pair_of(thread: str, id: str, turns: Sequence[str], label: str) -> Pair:
    """The pair of some utterances and the next one."""
    return Pair(thread, id, "\n".join(turns), label)


def line_of(pair: Pair) -> bytes:
    """The key by which pairs are put in order, a tab, the thread's key, a tab, and the example as JSON."""
    thread = text_key(utf8(f"thread\n{pair.thread}")).hex()[:THREAD_DIGITS]
    fields = json.dumps({"text": pair.text, "label": pair.label}, ensure_ascii=False)
    return f"{text_key(utf8(f'pair{chr(10)}{pair.id}')).hex()}\t{thread}\t".encode() + utf8(fields) + b"\n"


def thread_of(line: bytes) -> bytes:
    """The thread's key in a line."""
    start = line.index(b"\t") + 1
    return line[start : start + THREAD_DIGITS]


def example_of(line: bytes) -> bytes:
    """What a shard holds of a line."""
    return line.split(b"\t", 2)[2]
