"""Updates of equal size from a window of examples: chunks in which all examples have about the same length.

Padding is wasted work; sorted by length, a window of thousands of examples needs almost none. The chunks, and therefore
the lengths in an update, are in random order.
"""

import math
import random
from collections.abc import Sequence

Chunk = list[int]
"""Rows of the window."""


def chunks(lengths: Sequence[int], tokens: int, draw: random.Random) -> list[Chunk]:
    """Group rows of similar length into chunks of at most `tokens` tokens, padding included, but of at least one row.

    Args:
        lengths: the number of tokens of each row.
    """
    order = sorted(range(len(lengths)), key=lambda row: (-lengths[row], draw.random()))
    made, start = [], 0
    while start < len(order):
        stop = start + max(tokens // max(lengths[order[start]], 1), 1)
        made.append(order[start:stop])
        start = stop
    return made


def split_up(made: list[Chunk], count: int) -> list[Chunk]:
    """Halve the fullest chunks until there are `count` of them, if there are enough rows."""
    made = sorted(made, key=len)
    while len(made) < count and len(made[-1]) > 1:
        fullest = made.pop()
        middle = len(fullest) // 2
        made += [fullest[:middle], fullest[middle:]]
        made.sort(key=len)
    return made


def updates(made: list[Chunk], count: int, draw: random.Random) -> list[list[Chunk]]:
    """Distribute chunks in random order over `count` updates, as evenly as possible: the chunks of each."""
    made = list(made)
    draw.shuffle(made)
    size = math.ceil(len(made) / count)
    made = split_up(made, size * count)
    draw.shuffle(made)
    return [made[place::count] for place in range(count)]
