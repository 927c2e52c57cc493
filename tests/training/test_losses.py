"""The training loss, and the penalty beside it, against their definitions."""

import math

import torch

from polyagents.models.reduction import ContextVectors
from polyagents.training.losses import context_similarity, ranking_loss


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


# ---- the penalty on equal context vectors ----------------------------------------------------------------------------


def slow_similarity(vectors):
    """The mean cosine over all pairs, each with itself too (MINER); 0 without any vector."""
    cosines = [torch.cosine_similarity(one, other, dim=0) for one in vectors for other in vectors]
    return torch.stack(cosines).mean() if cosines else torch.zeros(())


def test_similarity_is_the_mean_cosine_of_all_pairs_of_real_vectors():
    vectors = torch.randn(4, 6, 5, generator=torch.Generator().manual_seed(0)).requires_grad_()
    mask = torch.arange(6) < torch.tensor([6, 3, 1, 0]).unsqueeze(1)
    found = context_similarity(ContextVectors(vectors, mask))
    expected = torch.stack([slow_similarity(list(v[real])) for v, real in zip(vectors, mask, strict=True)])
    torch.testing.assert_close(found, expected)
    (ours,) = torch.autograd.grad(found.sum(), vectors)
    (theirs,) = torch.autograd.grad(expected.sum(), vectors)
    torch.testing.assert_close(ours, theirs)
    assert (ours[~mask] == 0).all() and found[3] == 0


def test_similarity_of_equal_and_of_orthogonal_vectors():
    equal, orthogonal = torch.ones(4, 4) * torch.tensor([[1.0], [2.0], [0.5], [9.0]]), 3 * torch.eye(4)
    context = ContextVectors(torch.stack([equal, orthogonal]), torch.ones(2, 4).bool())
    torch.testing.assert_close(context_similarity(context), torch.tensor([1.0, 0.25]))


def test_vectors_that_padding_left_at_zero_spoil_no_gradient():
    vectors = torch.tensor([[[1.0, 2.0], [0.0, 0.0]]], requires_grad=True)
    context_similarity(ContextVectors(vectors, torch.tensor([[True, False]]))).sum().backward()
    assert torch.isfinite(vectors.grad).all() and (vectors.grad[0, 1] == 0).all()
