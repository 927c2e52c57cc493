"""How commands talk in a terminal: sentences go to standard error, results to standard output."""

import sys
from collections.abc import Sequence

from tqdm import tqdm


def duration(seconds: float) -> str:
    """A time in words: 41 s, 12 min, 3 h 20 min."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{max(round(seconds), 1)} s"
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def say(sentence: str) -> None:
    """Print to standard error, where progress goes: standard output is for results."""
    tqdm.write(sentence, file=sys.stderr)


def in_columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of cells as lines whose columns stand below each other."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
