"""How often one model was preferred over another, whether that may be chance, and how many judgements show it."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import binom, binomtest

from polyagents.evaluation.intervals import Estimate, share
from polyagents.human_eval.records import Judgement

SIGNIFICANT = 0.05  # the p-value below which a difference is called one


@dataclass(frozen=True)
class Matchup:
    """Two models that were compared."""

    models: tuple[str, str]
    wins: tuple[int, int]  # how often each of them was preferred

    @property
    def judgements(self) -> int:
        """How many judgements compare the two models."""
        return sum(self.wins)

    @property
    def rate(self) -> Estimate:
        """The share of judgements that prefer the first model, with Wilson's interval; it takes them as independent."""
        return share(self.wins[0], self.judgements)

    @property
    def p_value(self) -> float:
        """How often two equal models would differ at least this much: the exact two-sided binomial test of a half."""
        return float(binomtest(self.wins[0], self.judgements).pvalue)

    def reverse(self) -> "Matchup":
        """Return the same comparison, seen from the other model."""
        return Matchup(self.models[::-1], self.wins[::-1])


def matchups(judgements: Sequence[Judgement]) -> list[Matchup]:
    """Count the wins of all pairs of models that were compared, by name."""
    wins: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for judgement in judgements:
        first, second = sorted(judgement.models)
        wins[first, second][judgement.winner == second] += 1
    return [Matchup(models, (first, second)) for models, (first, second) in sorted(wins.items())]


def judgements_needed(difference: float, power: float) -> int:
    """Return the fewest judgements from which on equality is refused with at least this probability.

    Args:
        difference: how far the preferred model's win rate is above a half.
        power: the probability that the two-sided binomial test of the report gives p < SIGNIFICANT.
    """
    rate = 0.5 + difference
    most = 64
    while True:
        judgements = np.arange(1, most + 1)
        # The fewest wins of one side that are significant; the power rises and falls with n, as wins are whole.
        wins = binom.isf(SIGNIFICANT / 2, judgements, 0.5) + 1
        powers = binom.sf(wins - 1, judgements, rate) + binom.cdf(judgements - wins, judgements, rate)
        too_few = judgements[powers < power]
        if too_few[-1] < most / 2:
            return int(too_few[-1]) + 1
        most *= 2
