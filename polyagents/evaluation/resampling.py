"""How sure a mean over examples is, and a difference of two, where examples come from dialogues.

The examples of one dialogue have its persona and its history in common, so they are not independent, and intervals
that take them so are too narrow. What is drawn at random is therefore a dialogue, with all of its examples; the number
of interest stays the mean over examples. Where every dialogue has one example, this is the plain bootstrap over them.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from polyagents.evaluation.intervals import RESAMPLES, Estimate, Floats, bootstrap_interval

RANDOMISATIONS = 10_000  # so that the smallest p is 1/10,001, and one near .05 has a standard error of .002
AT_ONCE = 2**22  # numbers drawn together: 32 MB of them in fp64

Ints = NDArray[np.int64]


def estimates(values: Floats, dialogues: Ints, seed: int) -> list[Estimate]:
    """The mean over examples of each of M columns, with its 95 % interval over dialogues.

    Args:
        values: [E, M].
        dialogues: [E], which dialogue each example is from, numbered from 0.
        seed: the same one draws the same dialogues.

    Returns:
        M estimates; the ends of their intervals are not-a-number where there is only one dialogue.
    """
    sums, sizes = by_dialogue(values, dialogues)
    means = values.mean(0)
    if len(sizes) < 2:
        return [Estimate(float(mean), np.nan, np.nan) for mean in means]
    draws = np.concatenate([times @ sums / (times @ sizes)[:, None] for times in resampled(len(sizes), seed)])
    low, high = bootstrap_interval(draws, len(sizes))
    return [Estimate(*map(float, ends)) for ends in zip(means, low, high, strict=True)]


def by_dialogue(values: Floats, dialogues: Ints) -> tuple[Floats, Floats]:
    """The sum of the values [E, M] of each of K dialogues, [K, M], and how many examples each has, [K]."""
    sizes = np.bincount(dialogues).astype(np.float64)
    sums = np.zeros((len(sizes), values.shape[1]))
    np.add.at(sums, dialogues, values)
    return sums, sizes


def resampled(units: int, seed: int) -> Iterator[Floats]:
    """How often each unit is in each of `RESAMPLES` draws of as many with replacement, in blocks [b, units]."""
    generator = np.random.default_rng(seed)
    for size in blocks(RESAMPLES, units):
        yield generator.multinomial(units, np.full(units, 1 / units), size).astype(np.float64)


def randomisation_p(differences: Floats, dialogues: Ints, seed: int) -> list[float]:
    """How often two equal systems would differ at least as much as these do: the paired randomisation test.

    Of equal systems nobody could tell which was which. So the two are exchanged in a random half of the dialogues,
    again and again, and the share of draws whose difference is as far from 0 is the p, two-sided (Smucker et al.
    2007, A Comparison of Statistical Significance Tests for Information Retrieval Evaluation). The observed
    difference counts as one of the draws, so that no p is 0.

    Args:
        differences: [E, M] of M metrics, one system's less the other's.
        dialogues: [E], numbered from 0.
        seed: decides what is exchanged.

    Returns:
        M of them, not adjusted for other tests.
    """
    sums, sizes = by_dialogue(differences, dialogues)
    observed = np.abs(sums.sum(0)) * (1 - 1e-9)  # what differs only by rounding is as far
    generator = np.random.default_rng(seed)
    as_far = np.zeros(sums.shape[1])
    for size in blocks(RANDOMISATIONS, len(sizes)):
        signs = generator.integers(0, 2, (size, len(sizes)), dtype=np.int8) * 2.0 - 1
        as_far += (np.abs(signs @ sums) >= observed).sum(0)
    return [float(p) for p in (1 + as_far) / (1 + RANDOMISATIONS)]


def blocks(draws: int, units: int) -> Iterator[int]:
    """Sizes of blocks that so many draws of so many units are made in, to fit the memory."""
    most = max(AT_ONCE // units, 1)
    for start in range(0, draws, most):
        yield min(most, draws - start)
