"""Intervals and tests over dialogues, against slow ones and SciPy's."""

import numpy as np
import pytest
from scipy import stats

from polyagents.evaluation import intervals
from polyagents.evaluation.intervals import RESAMPLES, bootstrap_interval, estimates, randomisation_p, share

EACH_ITS_OWN = np.arange(200)


def test_a_share_has_wilsons_interval():
    z = stats.norm.ppf(0.975)
    middle, half = (0.7 + z * z / 20) / (1 + z * z / 10), z * np.sqrt(0.7 * 0.3 / 10 + z * z / 400) / (1 + z * z / 10)
    assert share(7, 10) == pytest.approx((0.7, middle - half, middle + half))


@pytest.fixture
def values():
    """200 examples of a yes-or-no metric and of one that lies between."""
    draw = np.random.default_rng(0)
    return np.stack([draw.random(200) < 0.4, draw.random(200)], axis=1).astype(float)


def test_the_interval_is_that_of_a_loop_over_resampled_dialogues(values):
    """Dialogues of different lengths: a draw's mean is over its examples."""
    dialogues = np.sort(np.random.default_rng(1).integers(0, 40, 200))
    dialogues = np.unique(dialogues, return_inverse=True)[1]
    units = dialogues.max() + 1
    (times,) = intervals.resampled(units, 7)
    means = [
        np.concatenate([values[dialogues == unit] for unit in np.repeat(np.arange(units), row.astype(int))]).mean(0)
        for row in times
    ]
    assert len(means) == RESAMPLES
    found = estimates(values, dialogues, 7)
    np.testing.assert_allclose([one.value for one in found], values.mean(0))
    np.testing.assert_allclose([(one.low, one.high) for one in found], bootstrap_interval(np.array(means), units).T)


def test_one_example_a_dialogue_is_the_interval_of_students_t(values):
    for column, one in zip(values.T, estimates(values, EACH_ITS_OWN, 0), strict=True):
        expected = stats.t.interval(0.95, 199, column.mean(), stats.sem(column))
        np.testing.assert_allclose((one.low, one.high), expected, atol=0.012)


def test_examples_that_repeat_within_their_dialogue_say_nothing_new(values):
    """Taken as independent, five copies of each would narrow the interval to 1/√5."""
    once, again = (
        estimates(values, EACH_ITS_OWN, 3),
        estimates(np.repeat(values, 5, axis=0), np.repeat(EACH_ITS_OWN, 5), 3),
    )
    np.testing.assert_allclose(np.array(again), np.array(once))


def test_the_same_seed_draws_the_same_in_blocks_of_any_size(values, monkeypatch):
    before = estimates(values, EACH_ITS_OWN, 5)
    assert estimates(values, EACH_ITS_OWN, 5) == before != estimates(values, EACH_ITS_OWN, 6)
    monkeypatch.setattr(intervals, "AT_ONCE", 7 * 200)
    after = estimates(values, EACH_ITS_OWN, 5)
    np.testing.assert_allclose(np.array(after), np.array(before))


def test_of_one_dialogue_no_interval_is_known(values):
    (one, _) = estimates(values, np.zeros(200, int), 0)
    assert one.value == values[:, 0].mean() and np.isnan(one.low) and np.isnan(one.high)


@pytest.mark.parametrize("shift", [0.0, 0.3, 0.8])
def test_the_p_is_near_that_of_scipys_exact_test(shift):
    draw = np.random.default_rng(2)
    first, second = draw.normal(size=11), draw.normal(size=11) + shift

    def mean_difference(a, b):
        return (a - b).mean()

    exact = stats.permutation_test(
        (second, first), mean_difference, permutation_type="samples", n_resamples=np.inf, alternative="two-sided"
    )
    (p,) = randomisation_p((second - first)[:, None], np.arange(11), 0)
    assert p == pytest.approx(exact.pvalue, abs=0.015)


def test_a_dialogue_is_exchanged_as_a_whole():
    """Ten examples that all differ by the same are ten coins, or one where they are one dialogue."""
    differences = np.ones((10, 1))
    (apart,), (together,) = (randomisation_p(differences, of, 0) for of in (np.arange(10), np.zeros(10, int)))
    assert apart == pytest.approx(2 / 1024, abs=0.002) and together == 1.0


def test_equal_models_do_not_differ():
    assert randomisation_p(np.zeros((50, 2)), np.arange(50), 0) == [1.0, 1.0]


def test_no_p_is_nothing():
    (p,) = randomisation_p(np.ones((100, 1)), np.arange(100), 0)
    assert p == 1 / (1 + intervals.RANDOMISATIONS)
