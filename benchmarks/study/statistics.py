"""Means with 95 % intervals, and the test whether two rows differ, from values [S, E] of S seeds and E examples.

Both a row's mean and the difference of two rows, whose values are paired by seed and example, are means over examples
and seeds that were drawn at random, and the interval is for other seeds and other examples: every value is taken as the
sum of a mean, a part of its seed, a part of its example, and a rest, and the variance of the mean follows from the mean
squares of these parts. That is how radiology compares two methods with several readers of the same cases (Dorfman,
Berbaum and Metz 1992; degrees of freedom by Hillis 2007, A comparison of denominator degrees of freedom methods for
multiple observer ROC analysis). With one seed, it is Student's t over the examples, and says nothing of other seeds.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from polyagents.evaluation.intervals import CONFIDENCE

Floats = NDArray[np.float64]


class Estimate(NamedTuple):
    """A mean, the ends of its 95 % interval, and the p of it being 0 (two-sided, not adjusted for other tests)."""

    mean: float
    low: float
    high: float
    p: float

    def as_share(self) -> "Estimate":
        """Return the estimate of a number between 0 and 1, with the ends cut to that range."""
        return self._replace(low=max(self.low, 0.0), high=min(self.high, 1.0))


def of_dialogues(values: Floats, lengths: Sequence[int]) -> Floats:
    """Return values [S, N] of N dialogues instead of their E examples, with the same mean.

    A dialogue's value is how far the sum of its examples is from their number times the mean: a long dialogue counts as
    its examples do, and that lengths differ adds no variance (the linearised ratio; Cochran 1977, 2.11).
    """
    mean, starts = values.mean(), np.cumsum([0, *lengths[:-1]])
    sums = np.add.reduceat(values - mean, starts, axis=1)
    return np.asarray(mean + sums * (len(lengths) / values.shape[1]))


class Spread(NamedTuple):
    """The standard error of a mean, and its degrees of freedom."""

    error: float
    freedom: float


def spread_of_mean(values: Floats) -> Spread:
    """Estimate how far the mean of values [S, E] is from the mean over all seeds and examples.

    The mean squares, as in an analysis of variance: of seeds, of examples, and of the rest.
    """
    seeds, examples = values.shape
    if examples == 1:  # one example, or one dialogue, says nothing of others
        return Spread(np.inf, 1)
    if seeds == 1:
        return Spread(float(values.std(ddof=1) / examples**0.5), examples - 1)
    mean = values.mean()
    of_seed, of_example = values.mean(1, keepdims=True) - mean, values.mean(0, keepdims=True) - mean
    rest = values - mean - of_seed - of_example
    between_examples = seeds * (of_example**2).sum() / (examples - 1)
    left = (rest**2).sum() / ((seeds - 1) * (examples - 1))
    between_seeds = max(examples * (of_seed**2).sum() / (seeds - 1), left)  # a negative estimate is chance
    together = between_seeds + max(between_examples - left, 0.0)
    # Without a difference between seeds, the degrees of freedom are infinite.
    freedom = (together / between_seeds) ** 2 * (seeds - 1) if between_seeds > 1e-12 * together else np.inf
    return Spread(float((together / (seeds * examples)) ** 0.5), float(freedom))


def estimate(values: Floats, dialogues: Sequence[int] | None = None) -> Estimate:
    """Estimate the mean of values [S, E] with its interval.

    Args:
        dialogues: how many successive examples each dialogue has; then the interval is for other dialogues. None if
            each example is alone.
    """
    if dialogues is not None:
        values = of_dialogues(values, dialogues)
    mean, spread = float(values.mean()), spread_of_mean(values)
    if spread.error == 0:
        return Estimate(mean, mean, mean, float(mean == 0))
    reach = stats.t.ppf((1 + CONFIDENCE) / 2, spread.freedom) * spread.error
    p = 2 * stats.t.sf(abs(mean) / spread.error, spread.freedom)
    return Estimate(mean, float(mean - reach), float(mean + reach), float(p))
