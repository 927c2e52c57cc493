"""Numbers and names as they are shown."""

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from polyagents.console import decimals

if TYPE_CHECKING:
    from polyagents.evaluation.intervals import Estimate  # loads SciPy

LONGEST_NAME = 34  # characters


def interval(estimate: "Estimate") -> str:
    """Write an interval in percent, 55.1 to 68.4; "" if it is not known."""
    return "" if math.isnan(estimate.low) else f"{100 * estimate.low:.1f} to {100 * estimate.high:.1f}"


def percent(estimate: "Estimate") -> str:
    """Write a share in percent, with its interval: 62.0 % (55.1 to 68.4)."""
    ends = interval(estimate)
    return f"{100 * estimate.value:.1f} %" + (f" ({ends})" if ends else "")


def number(estimate: "Estimate") -> str:
    """Write a number with its interval: 0.31 (0.20 to 0.42)."""
    value, low, high = (decimals(part, 2) for part in estimate)
    return f"{value} ({low} to {high})" if not math.isnan(estimate.low) else value


def p_value(p: float) -> str:
    """Write a p-value: 0.0312, or < 0.0001."""
    return "< 0.0001" if p < 0.0001 else f"{p:.4f}"


def printable(text: str) -> str:
    """Replace characters that would move a terminal's cursor or turn the direction of writing."""
    return "".join(letter if letter.isprintable() else "�" for letter in text)


def short_names(models: Sequence[str]) -> list[str]:
    """Shorten names: folders that all share are omitted, and long rests are cut; numbers tell those that look alike."""
    names = [printable(model) for model in models]
    if max(map(len, names)) > LONGEST_NAME:
        paths = without_shared_start([name.split("/") for name in names])
        paths = without_shared_start([path[::-1] for path in paths])
        names = ["/".join(path[::-1]) for path in paths]
    half = LONGEST_NAME // 2
    return [name if len(name) <= LONGEST_NAME else f"{name[: half - 1]} … {name[-half + 2 :]}" for name in names]


def without_shared_start(paths: Sequence[list[str]]) -> list[list[str]]:
    """Remove from paths the parts at their start that all of them share; the last part of each stays."""
    columns = zip(*(path[:-1] for path in paths), strict=False)
    shared = sum(1 for _ in itertools.takewhile(lambda parts: len(set(parts)) == 1, columns))
    return [path[shared:] for path in paths]
