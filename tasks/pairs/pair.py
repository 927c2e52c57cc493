"""A pair (what was said, and what came next), and the line that represents it while data are made."""

import json
from typing import NamedTuple

from polyagents.files.hashing import text_key, utf8

THREAD_DIGITS = 16


class Pair(NamedTuple):
    """An example.

    Attributes:
        thread: the conversation or document that it is from; pairs of one are in the same split.
        id: unique among the pairs of a source.
        text: the context, one line per utterance.
        label: what came next, in one line.
    """

    thread: str
    id: str
    text: str
    label: str


def line_of(pair: Pair) -> bytes:
    """Return the sort key of a pair, a tab, the thread's key, a tab, and the example as JSON."""
    thread = text_key(utf8(f"thread\n{pair.thread}")).hex()[:THREAD_DIGITS]
    fields = json.dumps({"text": pair.text, "label": pair.label}, ensure_ascii=False)
    return f"{text_key(utf8(f'pair{chr(10)}{pair.id}')).hex()}\t{thread}\t".encode() + utf8(fields) + b"\n"


def thread_of(line: bytes) -> bytes:
    """Return the thread's key in a line."""
    start = line.index(b"\t") + 1
    return line[start : start + THREAD_DIGITS]


def example_of(line: bytes) -> bytes:
    """Return the part of a line that is written to a shard."""
    return line.split(b"\t", 2)[2]
