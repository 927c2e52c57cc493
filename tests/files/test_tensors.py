"""What tensors of a file must be like."""

import math

import pytest
import torch

from polyagents.files.tensors import is_finite, wrong_tensors


@pytest.mark.parametrize("kind", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", [0, 7, -1])
def test_one_number_that_is_not_finite_is_found(kind, number, place):
    tensor = torch.linspace(-3, 3, 12, dtype=kind)
    assert is_finite(tensor) and is_finite(torch.full((3,), torch.finfo(kind).max, dtype=kind))
    tensor[place] = number
    assert not is_finite(tensor.view(3, 4))


def test_what_is_wrong_with_tensors_is_said_of_each():
    own = {"a": torch.zeros(2), "b": torch.zeros(2), "c": torch.zeros(2), "d": torch.zeros(0), "e": torch.zeros(1)}
    given = {
        "a": torch.zeros(3),
        "b": torch.zeros(2).double(),
        "c": [0.0, 0.0],
        "d": torch.zeros(0),
        "f": torch.ones(1),
    }
    assert wrong_tensors(own, given) == [
        "a has shape (3,) instead of (2,)",
        "b is float64 instead of float32",
        "c is not a tensor",
        "e is missing",
        "f is unknown",
    ]
