"""Examples of a window -> updates of equal size, made of chunks in which all are about as long.

Padding is work thrown away; sorted by length a window of thousands of examples needs almost none. Chunks, and so the
lengths in an update, are in random order.
"""

import math
import random
from collections.abc import Sequence

Chunk = list[int]
"""Rows of the window."""


def chunks(lengths: Sequence[int], tokens: int, draw: random.Random) -> list[Chunk]:
    """Rows of similar length together, at most `tokens` of them with padding, but one row at least."""
    order = sorted(range(len(lengths)), key=lambda row: (-lengths[row], draw.random()))
    made, start = [], 0
    while start < len(order):
        stop = start + max(tokens // max(lengths[order[start]], 1), 1)
        made.append(order[start:stop])
        start = stop
    return made


def split_up(made: list[Chunk], count: int) -> list[Chunk]:
    """As many chunks as are wanted, where there are rows enough: the fullest are halved."""
    made = sorted(made, key=len)
    while len(made) < count and len(made[-1]) > 1:
        fullest = made.pop()
        middle = len(fullest) // 2
        made += [fullest[:middle], fullest[middle:]]
        made.sort(key=len)
    return made


def updates(made: list[Chunk], count: int, draw: random.Random) -> list[list[Chunk]]:
    """Chunks in random order, dealt out to `count` updates; as many to each, as nearly as can be."""
    made = list(made)
    draw.shuffle(made)
    size = math.ceil(len(made) / count)
    made = split_up(made, size * count)
    draw.shuffle(made)
    return [made[place::count] for place in range(count)]
