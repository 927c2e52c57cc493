"""Intervals and tests of studies, against sums written out, scipy, and simulated studies."""

import numpy as np
import pytest
from scipy import stats

from polyagents.benchmarks.study.statistics import estimate, of_dialogues, spread_of_mean


def test_one_seed_is_students_t_over_the_examples():
    values = np.random.default_rng(0).normal(0.2, 1, (1, 30))
    theirs = stats.ttest_1samp(values[0], 0)
    ends = theirs.confidence_interval(0.95)
    assert estimate(values) == pytest.approx((values.mean(), ends.low, ends.high, theirs.pvalue))


@pytest.mark.parametrize("effect", [0.0, 3.0])
def test_several_seeds_against_mean_squares_in_loops(effect):
    """A seed's effect makes its mean square larger than what is left; without one, the latter stands in."""
    generator = np.random.default_rng(1)
    values = generator.normal(0, 1, (3, 5)) + generator.normal(0, 1, (1, 5)) + effect * np.array([[0.0], [1.0], [2.0]])
    mean = sum(values[s][e] for s in range(3) for e in range(5)) / 15
    rows = [sum(values[s][e] for e in range(5)) / 5 for s in range(3)]
    columns = [sum(values[s][e] for s in range(3)) / 3 for e in range(5)]
    of_seeds = 5 * sum((row - mean) ** 2 for row in rows) / 2
    of_examples = 3 * sum((column - mean) ** 2 for column in columns) / 4
    left = sum((values[s][e] - rows[s] - columns[e] + mean) ** 2 for s in range(3) for e in range(5)) / 8
    assert (of_seeds > left) == bool(effect) and of_examples > left
    of_seeds = max(of_seeds, left)
    together = of_seeds + of_examples - left
    error, freedom = spread_of_mean(values)
    assert error == pytest.approx((together / 15) ** 0.5)
    assert freedom == pytest.approx(2 * (together / of_seeds) ** 2)
    found = estimate(values)
    assert found.high - mean == pytest.approx(stats.t.ppf(0.975, freedom) * error)
    assert found.p == pytest.approx(2 * stats.t.sf(abs(mean) / error, freedom))


def test_examples_of_a_dialogue_count_together():
    """Each dialogue twice: no new information, so the interval is that of the dialogues once. Of one length or several,
    the mean stays; dialogues of one example are examples."""
    values = np.random.default_rng(2).normal(0.3, 1, (3, 40))
    once, twice = estimate(values), estimate(np.repeat(values, 2, axis=1), [2] * 40)
    assert twice == pytest.approx(once) and estimate(values, [1] * 40) == pytest.approx(once)
    assert estimate(np.repeat(values, 2, axis=1)).high < once.high
    assert of_dialogues(values, [7, 1, 30, 2]).mean() == pytest.approx(values.mean())
    # What is alike everywhere has no variance, whatever the lengths.
    assert estimate(np.ones((3, 40)), [7, 1, 30, 2]).high == 1


def test_values_that_do_not_vary():
    assert estimate(np.zeros((2, 4))) == (0, 0, 0, 1)
    assert estimate(np.ones((2, 4))) == (1, 1, 1, 0)
    alike = np.array([[0.0, 1.0, 1.0, 1.0]] * 2)  # no seed differs: only examples count
    found = estimate(alike)
    assert found.mean == 0.75 and found.high - 0.75 == pytest.approx(1.959964 * 0.25)


@pytest.mark.parametrize(("seeds", "dialogues"), [(1, None), (2, None), (1, [3]), (2, [3])])
def test_one_example_or_dialogue_says_nothing_of_others(seeds, dialogues):
    found = estimate(np.full((seeds, sum(dialogues or [1])), 0.5), dialogues)
    assert found == (0.5, -np.inf, np.inf, 1)
    assert found.as_share() == (0.5, 0, 1, 1)


def test_a_share_ends_at_0_and_1():
    assert estimate(np.array([[1.0, 1.0, 1.0, 0.0]])).high > 1
    assert estimate(np.array([[1.0, 1.0, 1.0, 0.0]])).as_share().high == 1


def simulated(generator, seeds, examples, of_seeds, base=0.0):
    """Right or wrong for each seed and example, where seeds and examples differ in how easy they are."""
    easy = base + of_seeds * generator.standard_normal((seeds, 1)) + 1.5 * generator.standard_normal((1, examples))
    chance = 1 / (1 + np.exp(-easy - 0.5 * generator.standard_normal((seeds, examples))))
    return (generator.random((seeds, examples)) < chance).astype(float)


@pytest.mark.parametrize(("seeds", "of_seeds"), [(1, 0.0), (2, 0.3), (3, 0.0), (3, 0.1), (3, 0.3), (5, 0.1)])
def test_intervals_hold_the_truth_as_often_as_they_say(seeds, of_seeds):
    """By symmetry the true share is a half; 600 studies of 300 examples."""
    generator = np.random.default_rng(2)
    found = [estimate(simulated(generator, seeds, 300, of_seeds)) for _ in range(600)]
    inside = np.mean([one.low <= 0.5 <= one.high for one in found])
    assert 0.925 <= inside <= 0.99
    assert np.mean([one.high - one.low for one in found]) < (1 if seeds == 2 else 0.25)


def test_equal_rows_differ_by_chance_as_seldom_as_p_says_and_others_are_told_apart():
    """Rows of one ease, and of one that is right more often, by what seeds and examples have in common."""
    generator = np.random.default_rng(3)
    alike, apart = [], []
    for _ in range(600):
        first, second = (simulated(generator, 3, 300, 0.1) for _ in range(2))
        alike.append(estimate(first - second).p < 0.05)
        apart.append(estimate(simulated(generator, 3, 300, 0.1, base=0.8) - second).p < 0.05)
    assert np.mean(alike) <= 0.07 and np.mean(apart) > 0.7
