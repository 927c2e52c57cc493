"""How many judgements show a difference, by the test of the report."""

import numpy as np
from scipy.stats import binom

from polyagents.human_eval.statistics.win_rates import SIGNIFICANT


def judgements_needed(difference: float, power: float) -> int:
    """Return the fewest judgements from which on equality is refused with at least this probability.

    Args:
        difference: how far the preferred model's win rate is above a half.
        power: 0 to 1; the probability that the two-sided binomial test of the report gives p < SIGNIFICANT.
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
