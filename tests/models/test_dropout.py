"""Our dropout against what dropout is."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from polyagents.models import dropout as module
from polyagents.models.dropout import FastDropout, attention, dropout


@pytest.mark.parametrize("p", [0.001, 0.1, 0.5, 0.9])
def test_the_rate_the_values_and_the_mean(p):
    torch.manual_seed(0)
    x = torch.full((1000, 1003), 2.0)
    y = dropout(x, p)
    kept = y != 0
    n = x.numel()
    assert abs((~kept).sum() - p * n) < 5 * (n * p * (1 - p)) ** 0.5 + n / 2**16
    torch.testing.assert_close(y[kept], torch.full_like(y[kept], 2 / (1 - p)), rtol=2e-4, atol=0)
    assert y.mean() == pytest.approx(2.0, abs=5 * 2 * (p / (1 - p) / n) ** 0.5 + 1e-3)


def test_neighbours_are_dropped_independently():
    torch.manual_seed(0)
    gone = (dropout(torch.ones(400, 1024), 0.3) == 0).float()
    for shift in (1, 2, 3, 4, 8, 512):
        both = (gone[:, shift:] * gone[:, :-shift]).mean()
        assert both == pytest.approx(0.09, abs=0.004)
    assert (gone[1:] * gone[:-1]).mean() == pytest.approx(0.09, abs=0.004)


def test_the_gradient_is_dropped_alike():
    x = torch.randn(50, 7, requires_grad=True)
    y = dropout(x, 0.4)
    y.sum().backward()
    torch.testing.assert_close(x.grad, (y != 0) / (1 - 0.4), rtol=1e-4, atol=0)


@pytest.mark.parametrize("p", [1 - 2**-17, 0.999999, 1.0])
def test_nothing_is_left_at_a_rate_of_one(p):
    x = torch.randn(50, 7, requires_grad=True)
    y = dropout(x, p)
    y.sum().backward()
    assert not y.any() and not x.grad.any()


def test_torchs_seed_decides():
    draws = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        draws.append(dropout(torch.ones(99), 0.5))
    assert torch.equal(draws[0], draws[1]) and not torch.equal(draws[0], draws[2])
    assert not torch.equal(draws[2], dropout(torch.ones(99), 0.5))


@pytest.mark.parametrize("shape", [(), (0,), (1,), (5,), (2, 3, 5)])
def test_any_shape_and_precision(shape):
    for dtype in (torch.float32, torch.bfloat16):
        x = torch.ones(shape, dtype=dtype)
        assert dropout(x, 0.5).shape == x.shape and dropout(x, 0.5).dtype == dtype
        assert dropout(x, 0.5, training=False) is x and dropout(x, 0.0) is x


def test_models_that_know_nothing_of_it_have_it():
    """Modules and functions alike, only inside, and only in training."""
    module, x = nn.Dropout(0.5), torch.ones(64)
    torch.manual_seed(3)
    expected = dropout(x, 0.5)
    for call in (module, lambda x: functional.dropout(x, p=0.5, training=True)):
        with FastDropout():
            torch.manual_seed(3)
            assert torch.equal(call(x), expected)
        torch.manual_seed(3)
        assert not torch.equal(call(x), expected)
    with FastDropout():
        assert torch.equal(module.eval()(x), x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("mask", ["none", "added", "boolean"])
def test_attention_is_torchs(mask, dtype):
    torch.manual_seed(0)
    query, key, value = (torch.randn(2, 3, 7, 4, dtype=dtype, requires_grad=True) for _ in range(3))
    sees = torch.rand(2, 1, 7, 7) > 0.4
    sees[..., 0] = True
    given = {"none": None, "boolean": sees, "added": torch.zeros(sees.shape, dtype=dtype).masked_fill(~sees, -1e30)}
    expected = functional.scaled_dot_product_attention(query, key, value, attn_mask=given[mask], scale=0.3)
    found = attention(query, key, value, given[mask], 0.0, 0.3)
    close = {"rtol": 1e-5, "atol": 1e-6} if dtype == torch.float32 else {"rtol": 0.05, "atol": 0.05}
    torch.testing.assert_close(found, expected, **close)
    sides = [torch.autograd.grad(of.float().square().sum(), [query, key, value]) for of in (found, expected)]
    torch.testing.assert_close(*sides, rtol=close["rtol"] * 2, atol=close["atol"] * 10)


@pytest.mark.parametrize(
    ("given", "is_ours"),
    [
        ({"dropout_p": 0.5}, True),
        ({"dropout_p": 0.5, "is_causal": False, "attn_mask": None}, True),
        ({}, False),  # torch's is faster in fp32
        ({"dropout_p": 0.5, "is_causal": True}, False),
        ({"dropout_p": 0.5, "enable_gqa": True}, False),
    ],
)
def test_which_attention_is_ours(given, is_ours, monkeypatch):
    called = []
    monkeypatch.setattr(module, "attention", lambda *args, **named: called.append(1) or attention(*args, **named))
    query, key, value = torch.randn(3, 2, 2, 50, 4)
    with FastDropout():
        found = functional.scaled_dot_product_attention(query, key, value, **given)
    assert bool(called) == is_ours and found.shape == value.shape
    if is_ours:  # half of the weights are dropped: the mean stays, single values do not
        plain = functional.scaled_dot_product_attention(query, key, value)
        draws = torch.stack([attention(query, key, value, dropout_p=0.5) for _ in range(400)])
        assert (draws[0] - plain).abs().max() > 0.05 and (draws.mean(0) - plain).abs().max() < 0.15
