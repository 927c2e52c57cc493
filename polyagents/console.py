"""The output of commands: sentences to standard error, and results, such as tables, to standard output."""

import sys
from collections.abc import Sequence
from typing import Any

from tqdm import tqdm


def duration(seconds: float) -> str:
    """Format a time in words: 41 s, 12 min, 3 h 20 min."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{max(round(seconds), 1)} s"
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def say(sentence: str) -> None:
    """Print to standard error, where progress goes: standard output is for results."""
    tqdm.write(sentence, file=sys.stderr)


def in_columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Format rows of cells as lines with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


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
