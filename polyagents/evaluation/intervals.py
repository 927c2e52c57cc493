"""A number with its 95 % interval, and a difference of two with its p.

The examples of one dialogue share its persona and its history, so they are not independent, and intervals that assume
it are too narrow. Therefore dialogues are drawn at random, each with all of its examples; the number of interest is
still the mean over examples. If every dialogue has one example, this is the plain bootstrap over them.
"""

from collections.abc import Iterator
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


def bootstrapped(values: Floats, draws: Floats, units: int) -> list[Estimate]:
    """Add to each of M numbers the interval of its resamples [R, M]."""
    low, high = bootstrap_interval(draws, units)
    return [Estimate(*map(float, ends)) for ends in zip(values, low, high, strict=True)]


RANDOMISATIONS = 10_000  # so that the smallest p is 1/10,001, and one near .05 has a standard error of .002
AT_ONCE = 2**22  # numbers drawn together: 32 MB of them in fp64

Ints = NDArray[np.int64]


def estimates(values: Floats, dialogues: Ints, seed: int) -> list[Estimate]:
    """Estimate the means of M columns, each with its 95 % interval over dialogues.

    Args:
        values: [E, M].
        dialogues: [E], the dialogue of each example, numbered from 0; if there is only one, ends are not-a-number.
    """
    sums, sizes = by_dialogue(values, dialogues)
    means = values.mean(0)
    if len(sizes) < 2:
        return [Estimate(float(mean), np.nan, np.nan) for mean in means]
    draws = np.concatenate([times @ sums / (times @ sizes)[:, None] for times in resampled(len(sizes), seed)])
    return bootstrapped(means, draws, len(sizes))


def by_dialogue(values: Floats, dialogues: Ints) -> tuple[Floats, Floats]:
    """Sum the values [E, M] of each of K dialogues: sums [K, M], and how many examples each dialogue has, [K]."""
    sizes = np.bincount(dialogues).astype(np.float64)
    sums = np.zeros((len(sizes), values.shape[1]))
    np.add.at(sums, dialogues, values)
    return sums, sizes


def resampled(units: int, seed: int) -> Iterator[Floats]:
    """Draw `RESAMPLES` resamples with replacement, in blocks [b, units]: how often each unit is in each resample."""
    generator = np.random.default_rng(seed)
    for size in blocks(RESAMPLES, units):
        yield generator.multinomial(units, np.full(units, 1 / units), size).astype(np.float64)


def randomisation_p(differences: Floats, dialogues: Ints, seed: int) -> list[float]:
    """Compute how often two equal systems would differ at least as much as these do: the paired randomisation test.

    If two systems are equal, their results are exchangeable. So they are exchanged in a random half of the dialogues,
    many times, and the share of draws whose difference is as far from 0 is the p, two-sided (Smucker et al. 2007, A
    Comparison of Statistical Significance Tests for Information Retrieval Evaluation). The observed difference counts
    as one of the draws, so that no p is 0.

    Args:
        differences: [E, M] of M metrics, one system's minus the other's.
        dialogues: [E], numbered from 0.

    Returns:
        The p of each metric, not adjusted for other tests.
    """
    sums, sizes = by_dialogue(differences, dialogues)
    observed = np.abs(sums.sum(0)) * (1 - 1e-9)  # a difference by rounding only counts as equal
    generator = np.random.default_rng(seed)
    as_far = np.zeros(sums.shape[1])
    for size in blocks(RANDOMISATIONS, len(sizes)):
        signs = generator.integers(0, 2, (size, len(sizes)), dtype=np.int8) * 2.0 - 1
        as_far += (np.abs(signs @ sums) >= observed).sum(0)
    return [float(p) for p in (1 + as_far) / (1 + RANDOMISATIONS)]


def blocks(draws: int, units: int) -> Iterator[int]:
    """Split draws of `units` numbers each into blocks that fit the memory; yield the size of each block."""
    most = max(AT_ONCE // units, 1)
    for start in range(0, draws, most):
        yield min(most, draws - start)
