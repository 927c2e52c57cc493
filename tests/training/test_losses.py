"""The training loss, and the penalty beside it, against their definitions."""

import math

import torch

from polyagents.models.formulas import ranking_loss


def test_loss_is_cross_entropy_over_what_counts():
    scores = torch.tensor([[1.0, 2.0, 3.0, 9.0], [0.5, 0.0, -1.0, 4.0]])
    mask = torch.tensor([[True, True, True, False], [True, False, True, True]])
    labels = torch.tensor([1, 3])
    expected = [
        math.log(math.e + math.e**2 + math.e**3) - 2.0,
        math.log(math.e**0.5 + math.e**-1 + math.e**4) - 4.0,
    ]
    torch.testing.assert_close(ranking_loss(scores, labels, mask), torch.tensor(expected))


def test_one_candidate_costs_nothing():
    loss = ranking_loss(torch.tensor([[3.0]], requires_grad=True), torch.tensor([0]), torch.tensor([[True]]))
    assert loss.tolist() == [0.0]


def test_masked_candidates_get_no_gradient():
    scores = torch.tensor([[1.0, 2.0, 3.0]], requires_grad=True)
    ranking_loss(scores, torch.tensor([0]), torch.tensor([[True, True, False]])).sum().backward()
    assert scores.grad[0, 2] == 0
