"""Measures how good probabilities are (log loss, Brier score, calibration error, "none of these"), and thresholds.

A threshold answers only what is more probable. Its precision is promised with 95 % confidence. The bound is Clopper and
Pearson's, on examples that the probabilities were not fitted to; and since the best of LEVELS thresholds is chosen on
the same examples, each has a LEVELS-th of the allowed error (Bonferroni).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta, rankdata

from polyagents.decisions.score_map import Scored
from polyagents.evaluation.intervals import CONFIDENCE, Estimate, Floats, resampled

BINS = 15  # of equal mass
LEVELS = 20  # thresholds that are measured
SEED = 0
IN_SCOPE = 0.95  # share of examples with a right option that are kept, at which those without one are counted


class Bin(NamedTuple):
    """Mean probability and share of right choices of a bin of the reliability picture, and how many examples it has."""

    probability: float
    right: float
    examples: int


@dataclass(frozen=True)
class Figures:
    """Figures of E examples."""

    examples: int
    accuracy: float  # share of examples whose choice, "none of these" included, is right
    log_loss: float  # in nats
    brier: float
    ece: Estimate  # expected calibration error of the choice, with its 95 % interval
    in_scope_accuracy: float  # share of examples with a right option for which the best option is right
    # Of p(none): the chance that an example without a right option has a higher one than an example with one; None if
    # all have one, as is the next.
    auroc: float | None
    # Share of examples without a right option that are told at the p(none) at which 95 % of those with one are kept.
    none_recall: float | None

    @property
    def false_accepts(self) -> float | None:
        """The share of examples without a right option that are answered at that p(none)."""
        return None if self.none_recall is None else 1 - self.none_recall


class Choices(NamedTuple):
    """The choices that probabilities lead to: confidence [E], whether they are right [E], the best option's own."""

    confidence: Floats
    right: NDArray[np.bool_]
    option_confidence: Floats
    option_right: NDArray[np.bool_]
    is_option: NDArray[np.bool_]


def choices_of(options: Floats, none: Floats, scored: Scored) -> Choices:
    """Choose by probabilities of options [E, O] and of none [E]."""
    best, rows = options.argmax(1), np.arange(len(options))
    confidence, right = options[rows, best], scored.right[rows, best]
    is_option = confidence >= none
    chosen_right = np.where(is_option, right, ~scored.in_scope)
    return Choices(np.maximum(confidence, none), chosen_right, confidence, right, is_option)


def figures_of(options: Floats, none: Floats, scored: Scored) -> Figures:
    """Measure probabilities of options [E, O] and of none [E]."""
    inside = scored.in_scope
    choices = choices_of(options, none, scored)
    truth = np.where(inside, np.where(scored.right, options, 0).sum(1), none)
    # Of several right options each is an answer; the score asks for their sum.
    wrong = np.where(scored.right, 0, options)
    brier = (wrong**2).sum(1) + np.where(inside, none**2, 0) + (1 - truth) ** 2
    outside = ~inside
    auroc = recall = None
    if outside.any() and inside.any() and none.any():
        ranks = rankdata(none)
        above = ranks[outside].sum() - outside.sum() * (outside.sum() + 1) / 2
        auroc = float(above / (outside.sum() * inside.sum()))
        recall = float((none[outside] > np.quantile(none[inside], IN_SCOPE)).mean())
    return Figures(
        len(scored),
        float(choices.right.mean()),
        float(-np.log(np.maximum(truth, np.finfo(float).tiny)).mean()),
        float(brier.mean()),
        calibration_error(choices.confidence, choices.right, scored.groups),
        float(choices.option_right[inside].mean()) if inside.any() else float("nan"),
        auroc,
        recall,
    )


def calibration_error(confidence: Floats, right: NDArray[np.bool_], groups: NDArray[np.int64]) -> Estimate:
    """Measure the expected calibration error over BINS bins of equal mass, with a bootstrap interval over groups.

    The interval is the basic one: it takes off what resampling adds, as every error of finite bins is above 0.
    """
    order = np.argsort(confidence, kind="stable")
    gaps = (confidence - right)[order]
    groups = groups[order]
    value = binned_error(gaps, np.ones(len(gaps)))
    count = int(groups.max()) + 1
    if count < 2:
        return Estimate(value, np.nan, np.nan)
    draws = [binned_error(gaps, times[groups]) for block in resampled(count, SEED) for times in block]
    low, high = np.quantile(draws, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Estimate(value, max(0.0, float(2 * value - high)), max(0.0, float(2 * value - low)))


def binned_error(gaps: Floats, times: Floats) -> float:
    """Return the error of gaps between confidence and outcome, sorted by confidence, each counted `times` times."""
    mass = np.cumsum(times)
    bins = np.minimum((BINS * (mass - times) / mass[-1]).astype(int), BINS - 1)
    return float(np.abs(np.bincount(bins, gaps * times, BINS)).sum() / mass[-1])


def reliability(confidence: Floats, right: NDArray[np.bool_]) -> list[Bin]:
    """Return the bins of the reliability picture, least sure first."""
    order = np.argsort(confidence, kind="stable")
    parts = np.array_split(order, min(BINS, len(order)))
    return [Bin(float(confidence[part].mean()), float(right[part].mean()), len(part)) for part in parts]


# ---- thresholds ------------------------------------------------------------------------------------------------------


class Level(NamedTuple):
    """How many examples are answered at a threshold, and how many of these are answered right."""

    threshold: float
    answered: int
    right: int


class Threshold(NamedTuple):
    """A threshold, above which a choice is taken, and what it brings."""

    threshold: float
    precision: float  # share of right answers among those given, as measured
    bound: float  # what the precision is at least, with 95 % confidence
    coverage: float  # share of contexts that are answered


def levels_of(confidence: Floats, right: NDArray[np.bool_], answered: NDArray[np.bool_]) -> list[Level]:
    """Measure at most LEVELS thresholds, the strictest first, with as few decimals as tell the same examples apart.

    Args:
        confidence: [E], the probability of the best option; `right` is whether it is right.
        answered: [E], False where "none of these" is more likely.
    """
    given, is_right = confidence[answered], right[answered]
    order = np.sort(given)[::-1]
    found: dict[float, Level] = {}
    for level in range(1, LEVELS + 1):
        if count := -(-len(order) * level // LEVELS):
            weakest = order[count - 1]
            threshold = shortest(max(given[given < weakest], default=0.0), weakest)
            above = given >= threshold
            found[threshold] = Level(threshold, int(above.sum()), int(is_right[above].sum()))
    return list(found.values())


def shortest(above: float, most: float) -> float:
    """Return a number above one limit, and at most the other, with as few decimals as possible, but three or more."""
    cut = (math.floor(most * 10**digits) / 10**digits for digits in range(3, 18))
    return next((value for value in cut if above < value <= most), float(most))


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
