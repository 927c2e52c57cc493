"""The output of commands: sentences to standard error, and results, such as tables, to standard output."""

import contextlib
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from tqdm import tqdm

SLOW = 2.0  # seconds that a person waits without a sign that something happens
LOADING = "Loading PyTorch; after a start of the machine this takes longest."


def duration(seconds: float) -> str:
    """Format a time in words: 41 s, 12 min, 3 h 20 min."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{max(round(seconds), 1)} s"
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def say(sentence: str) -> None:
    """Print to standard error, where progress goes: standard output is for results."""
    tqdm.write(sentence, file=sys.stderr)


@contextlib.contextmanager
def waiting(sentence: str) -> Iterator[None]:
    """Print a sentence to a terminal if what is inside takes longer than SLOW.

    Args:
        sentence: what the program does meanwhile.
    """
    timer = threading.Timer(SLOW, say, [sentence])
    timer.daemon = True  # does not keep a program alive that has failed
    if sys.stderr.isatty():
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


def in_columns(rows: Sequence[Sequence[str]], numbers: bool = False) -> list[str]:
    """Format rows of cells as lines with aligned columns.

    Args:
        rows: with the same number of cells each.
        numbers: whether all cells but the first of a row are numbers, which are aligned to the right.

    Returns:
        A line for each row.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    sides = ["<", *(">" if numbers else "<" for _ in widths[1:])]
    return [
        "  ".join(f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths, strict=True)).rstrip()
        for row in rows
    ]


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    """Format rows as a Markdown table, with every column that a row has."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    lines = [columns, ["---"] * len(columns), *[[cell(row.get(name)) for name in columns] for row in rows]]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def cell(value: Any) -> str:
    """Format a value with three significant digits."""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    if isinstance(value, int):
        return f"{value:,}"
    return "" if value is None else str(value)
