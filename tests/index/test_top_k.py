"""The best of given scores, in an order that is always the same."""

import numpy as np
import pytest

from polyagents.index.top_k import TopCandidates, top_k


@pytest.mark.parametrize("k", [1, 3, 10, 50])
def test_top_k_is_a_stable_sort(k):
    generator = np.random.default_rng(0)
    for _ in range(20):
        scores = generator.integers(0, 5, 10).astype(np.float32)
        last = generator.random(10) < 0.3
        expected = sorted(range(10), key=lambda i: (-scores[i], i))[:k]
        assert top_k(scores, k).tolist() == expected
        expected = sorted(range(10), key=lambda i: (-scores[i], last[i], i))[:k]
        assert top_k(scores, k, last).tolist() == expected


def test_top_k_puts_scores_that_are_no_numbers_last():
    assert top_k(np.full(5, np.nan, np.float32), 2).tolist() == [0, 1]
    assert top_k(np.array([np.nan, 1, 2, 3], np.float32), 2).tolist() == [3, 2]


@pytest.mark.parametrize("k", [1, 2, 15, 29, 30, 31])
def test_top_k_of_different_scores_is_a_sort(k):
    for seed in range(30):
        scores = np.random.default_rng(seed).normal(size=30).astype(np.float32)
        assert top_k(scores, k).tolist() == np.argsort(-scores)[:k].tolist()


@pytest.mark.parametrize("k", [1, 500, 2_000, 4_500])
def test_top_k_of_thousands_is_a_sort(k):
    """So many that numpy does not sort them all to find one."""
    scores = np.random.default_rng(0).normal(size=5_000).astype(np.float32)
    assert top_k(scores, k).tolist() == np.argsort(-scores)[:k].tolist()


@pytest.mark.parametrize("k", [1, 3, 9])
def test_the_top_candidates_of_a_batch_are_those_of_each_row(k):
    scores = np.random.default_rng(0).integers(0, 4, (5, 7)).astype(np.float32)
    found = TopCandidates.of(scores, k)
    for row, indices, values in zip(scores, found.indices, found.scores, strict=True):
        assert indices.tolist() == top_k(row, k).tolist()
        assert values.tolist() == row[indices].tolist()
