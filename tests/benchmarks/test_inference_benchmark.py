"""The comparison of a search with brute force, as `bench_inference` counts it."""

import numpy as np
import pytest

from polyagents.benchmarks.inference import is_best

SCORES = np.array([1.0, 5.0, 3.0, 3.000002, 4.0], dtype=np.float32)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param([1, 4, 3], True, id="the best"),
        pytest.param([1, 4, 2], True, id="one of two that differ by rounding"),
        pytest.param([1, 3, 4], False, id="another order"),
        pytest.param([1, 4, 0], False, id="one that is not among the best"),
    ],
)
def test_candidates_are_the_best_whatever_rounding_swaps(found, expected):
    assert is_best(np.array(found), SCORES) == expected
