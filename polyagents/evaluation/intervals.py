"""A number with its 95 % interval."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

CONFIDENCE = 0.95
RESAMPLES = 1_000  # draws of a bootstrap; between seeds, the ends of an interval differ by some 2 to 4 % of its width

Floats = NDArray[np.float64]


class Estimate(NamedTuple):
    """A number with the ends of its 95 % interval."""

    value: float
    low: float
    high: float


def share(count: int, of: int) -> Estimate:
    """Estimate a share, 0 to 1, with Wilson's score interval, of `count` independent cases `of` at least 1.

    The interval stays within 0 and 1, has a width also if all or none are counted, and covers the true share about as
    often as it says for small counts, which the textbook's p ± 1.96 standard errors does not (Brown et al. 2001,
    Interval Estimation for a Binomial Proportion).
    """
    ends = stats.binomtest(count, of).proportion_ci(CONFIDENCE, method="wilson")
    return Estimate(count / of, float(ends.low), float(ends.high))


def bootstrap_interval(draws: Floats, units: int) -> Floats:
    """Return the ends of the expanded percentile interval, lower and upper: draws [R, ...] of the number -> [2, ...].

    The plain percentiles of a bootstrap over few units, at least 2, are too narrow: a resample of n units varies by a
    factor of √((n - 1)/n) too little, and takes no account of n being small, as Student's t does. So the percentiles
    are taken further out, by both (Hesterberg 2015, What Teachers Should Know About the Bootstrap).
    """
    distance = stats.t.ppf((1 + CONFIDENCE) / 2, units - 1) * np.sqrt(units / (units - 1))
    tail = stats.norm.cdf(-distance)
    ends: Floats = np.quantile(draws, [tail, 1 - tail], axis=0)
    return ends
