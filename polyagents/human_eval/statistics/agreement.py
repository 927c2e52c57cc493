"""How far annotators of the same pair agree."""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polyagents.evaluation.intervals import RESAMPLES, Estimate, Floats, bootstrap_interval
from polyagents.human_eval.records import Judgement

Counts = NDArray[np.int64]

FEWEST = 10  # pairs that an interval needs: fewer may all agree by chance, and the interval would have no width


@dataclass(frozen=True)
class Agreement:
    """How far annotators agree on the pairs that at least two of them judged."""

    pairs: int
    share: Estimate  # of two annotators of a pair, drawn at random, how often they agree; 0 to 1, mean over pairs
    # Krippendorff's: 1 full agreement, 0 as by chance, below 0 less than that. None if it is not defined, since nobody
    # ever differed in any matchup, and chance would agree as well.
    alpha: Estimate | None

    @property
    def has_intervals(self) -> bool:
        """Whether there are enough pairs for intervals; otherwise, low and high are NaN."""
        return self.pairs >= FEWEST


def agreement(judgements: Sequence[Judgement], seed: int, resamples: int = RESAMPLES) -> Agreement | None:
    """Estimate agreement on one question, by a bootstrap over pairs; None if no pair was judged twice.

    Pairs are what is drawn again, as they are the sample: the same annotators would judge others. For alpha, what
    chance would do is not drawn again, as in Krippendorff's own bootstrap: with few pairs a matchup, it would come out
    too low in every resample. (Simulated, 10 pairs of each of 60 matchups: the interval then covers the truth .75 of
    the time, this one .93 to .97.)
    """
    counts, groups = shared_pairs(judgements)
    pairs = len(counts)
    if not pairs:
        return None
    # What matters of a pair are its counts, and these take few values: draw how often each comes.
    kinds, times = np.unique(counts, axis=0, return_counts=True)
    draws = np.random.default_rng(seed).multinomial(pairs, times / pairs, size=resamples)
    share = estimate(times @ agreeing(kinds) / pairs, draws @ agreeing(kinds) / pairs, pairs)
    chance = expected_disagreement(counts, groups)
    if chance == 0:
        return Agreement(pairs, share, None)
    alpha = estimate(1 - disagreement(kinds, times) / chance, 1 - disagreement(kinds, draws) / chance, pairs)
    return Agreement(pairs, share, alpha)


def shared_pairs(judgements: Sequence[Judgement]) -> tuple[Counts, Counts]:
    """Count the choices about pairs that two or more annotators judged.

    Returns:
        [U, 2], how many annotators preferred either model of each pair, and [U], the number of its matchup.
    """
    choices: dict[tuple[str, str, str], list[int]] = defaultdict(lambda: [0, 0])
    for judgement in judgements:
        first, second = sorted(judgement.models)
        choices[judgement.pair, first, second][judgement.winner == second] += 1
    shared = {(first, second, pair): counts for (pair, first, second), counts in choices.items() if sum(counts) > 1}
    matchups = sorted({key[:2] for key in shared})
    groups = [matchups.index(key[:2]) for key in shared]
    return np.array(list(shared.values()), dtype=np.int64), np.array(groups, dtype=np.int64)


def estimate(value: Floats, draws: Floats, pairs: int) -> Estimate:
    """Add to a number the interval of its resamples, if there are enough pairs for one."""
    low, high = bootstrap_interval(draws, pairs) if pairs >= FEWEST else (math.nan, math.nan)
    return Estimate(float(value), float(low), float(high))


def agreeing(counts: Counts) -> Floats:
    """Return how often two annotators of a unit agree, [U].

    Args:
        counts: [U, V], how many annotators of each unit, at least two, chose each value.
    """
    raters = counts.sum(1)
    shares: Floats = (counts * (counts - 1)).sum(1) / (raters * (raters - 1))
    return shares


def disagreement(counts: Counts, times: Counts) -> Floats:
    """Return the observed disagreement of Krippendorff's alpha for nominal values, [...].

    After Krippendorff 2011, Computing Krippendorff's Alpha-Reliability, section D: alpha is 1 minus the observed over
    the expected disagreement, and units may have different numbers of annotators.

    Args:
        times: [..., U], how often each unit is in a resample.
    """
    raters = counts.sum(1)
    observed: Floats = times @ (raters * (1 - agreeing(counts))) / (times @ raters)
    return observed


def expected_disagreement(counts: Counts, groups: Counts) -> float:
    """Return the disagreement expected if the same choices were made by chance, which mixes them within each group.

    Annotators who choose between A and B could not have chosen C; if all models were taken as possible values, any
    agreement would look good. With one group it is Krippendorff's.

    Args:
        groups: [U], the number of the matchup of each unit.
    """
    expected = 0.0
    for group in np.unique(groups):
        values = counts[groups == group].sum(0)
        total = values.sum()
        expected += (total**2 - (values**2).sum()) / (total - 1)
    return float(expected / counts.sum())
