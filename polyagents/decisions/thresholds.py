"""Thresholds: how many decisions are answered above a probability, and how many of these are right.

A precision is promised with 95 % confidence. The bound is Clopper and Pearson's, on examples that the probabilities
were not fitted to; and since the best of LEVELS thresholds is chosen on the same examples, each has a LEVELS-th of the
allowed error (Bonferroni).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta

from polyagents.evaluation.intervals import CONFIDENCE, Floats

LEVELS = 20


class Level(NamedTuple):
    """How many examples are answered at a threshold, and how many of these are answered right."""

    threshold: float
    answered: int
    right: int


class Threshold(NamedTuple):
    """A threshold, above which a choice is taken, and what it brings.

    Attributes:
        precision: the share of right answers among those given, as measured.
        bound: what the precision is at least, with 95 % confidence.
        coverage: the share of contexts that are answered.
    """

    threshold: float
    precision: float
    bound: float
    coverage: float


def levels_of(confidence: Floats, right: NDArray[np.bool_], answered: NDArray[np.bool_]) -> list[Level]:
    """Measure at most LEVELS thresholds, the strictest first.

    Args:
        confidence: [E], the probability of the best option.
        right: [E], whether it is right.
        answered: [E], False where "none of these" is more likely.
    """
    given, is_right = confidence[answered], right[answered]
    order = np.sort(given)[::-1]
    found: dict[float, Level] = {}
    for level in range(1, LEVELS + 1):
        if count := -(-len(order) * level // LEVELS):
            threshold = float(order[count - 1])
            above = given >= threshold
            found[threshold] = Level(threshold, int(above.sum()), int(is_right[above].sum()))
    return list(found.values())


def threshold_for(levels: Sequence[Level], examples: int, precision: float) -> Threshold | None:
    """Return the threshold that answers most contexts with at least this precision; None if none is sure to."""
    bounds = lower_bounds(levels)
    possible = [(level, bound) for level, bound in zip(levels, bounds, strict=True) if bound >= precision]
    if not possible:
        return None
    level, bound = max(possible, key=lambda one: one[0].answered)
    return Threshold(level.threshold, level.right / level.answered, bound, level.answered / examples)


def lower_bounds(levels: Sequence[Level]) -> list[float]:
    """Return what the precision of each level is at least (one-sided), for all levels together with 95 % confidence."""
    right = np.array([level.right for level in levels])
    wrong = np.array([level.answered for level in levels]) - right
    found = beta.ppf((1 - CONFIDENCE) / LEVELS, np.maximum(right, 1), wrong + 1)
    return [float(bound) for bound in np.where(right, found, 0)]
