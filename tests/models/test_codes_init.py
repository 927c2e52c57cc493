"""Where codes start: how they are drawn, and the centres of what the training contexts are made of."""

import pytest
import torch

from polyagents.errors import InputError
from polyagents.models.codes_init import centres, drawn


@pytest.mark.parametrize(
    ("init", "mean", "deviation"),
    [("normal", 0.0, 0.02), ("uniform", 0.5, 12**-0.5), ("unit", 64**-0.5, 1.0), ("kmeans", 0.0, 0.02)],
)
def test_codes_are_drawn_from_what_the_flag_says(init, mean, deviation):
    torch.manual_seed(0)
    codes = drawn(init, 3000, 64)
    assert codes.shape == (3000, 64)
    assert float(codes.mean()) == pytest.approx(mean, abs=0.01 * deviation)
    assert float(codes.std()) == pytest.approx(deviation, rel=0.01)
    assert init != "uniform" or (codes.min() >= 0 and codes.max() <= 1)


# ---- centres ---------------------------------------------------------------------------------------------------------


def test_every_centre_is_the_mean_of_the_states_nearest_to_it():
    """Lloyd's condition."""
    states = torch.randn(120, 3, generator=torch.Generator().manual_seed(1))
    found = centres(states, 4)
    assert found.shape == (4, 3) and found.dtype == torch.float32 and torch.equal(found, centres(states, 4))
    nearest = torch.cdist(states, found).argmin(1)
    means = torch.stack([states[nearest == code].mean(0) for code in range(4)])
    torch.testing.assert_close(found, means, atol=1e-4, rtol=0)


def test_as_many_centres_as_states_are_the_states():
    states = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
    assert (torch.cdist(centres(states, 6), states).min(0).values < 1e-5).all()


def test_states_that_have_no_centres():
    with pytest.raises(InputError, match=r"found 3 tokens .* too few for --poly-n-codes 4"):
        centres(torch.randn(3, 8), 4)
    with pytest.raises(InputError, match="the encoder's outputs are not finite"):
        centres(torch.tensor([[1.0, torch.nan], [1.0, 2.0]]), 1)
