"""Distillation losses against their definitions, and which negatives they are taken over."""

import math

import torch

from polyagents.training.distillation import distillation_loss, hardest


def softmax(values):
    total = sum(map(math.exp, values))
    return [math.exp(value) / total for value in values]


def test_both_losses_against_their_definitions():
    student = torch.tensor([[1.0, 0.5, 9.0], [2.0, -1.0, 0.0]])
    teacher = torch.tensor([[3.0, 1.0, 5.0], [0.5, 0.0, 1.0]])
    mask = torch.tensor([[True, True, False], [True, True, True]])
    expected = []
    for s, t in (([1.0, 0.5], [3.0, 1.0]), ([2.0, -1.0, 0.0], [0.5, 0.0, 1.0])):
        expected.append(sum(q * math.log(q / p) for p, q in zip(softmax(s), softmax(t), strict=True)))
    torch.testing.assert_close(distillation_loss(student, teacher, mask, "kl"), torch.tensor(expected))
    expected = [(0.5 - 2.0) ** 2, ((3.0 - 0.5) ** 2 + (2.0 + 0.5) ** 2) / 2]
    torch.testing.assert_close(distillation_loss(student, teacher, mask, "margin_mse"), torch.tensor(expected))


def test_nothing_is_lost_where_both_agree_and_without_negatives():
    scores = torch.tensor([[1.0, 2.0, 3.0]])
    for kind in ("kl", "margin_mse"):
        assert distillation_loss(scores, scores + 4, torch.ones(1, 3).bool(), kind).abs().max() < 1e-6
        assert distillation_loss(scores, scores * 2, torch.tensor([[True, False, False]]), kind) == 0


def test_the_hardest_negatives_are_taken_and_masked_ones_do_not_count():
    scores = torch.tensor([[5.0, 1.0, 3.0, 4.0], [0.0, 1.0, 2.0, 3.0]])
    mask = torch.tensor([[True, True, True, False], [True, False, False, True]])
    columns, counted = hardest(scores, torch.tensor([1, 3]), mask, 2)
    assert columns[0].tolist() == [1, 0, 2] and counted[0].tolist() == [True] * 3
    assert columns[1, :2].tolist() == [3, 0] and counted[1].tolist() == [True, True, False]
    columns, counted = hardest(scores, torch.tensor([1, 3]), mask, 9)
    assert columns.shape == counted.shape == (2, 4) and counted.dtype == torch.bool
    assert columns[0].sort().values.tolist() == [0, 1, 2, 3] and columns[1, :2].tolist() == [3, 0]
    assert counted.tolist() == [[True, True, True, False], [True, True, False, False]]


def test_a_label_alone_has_no_negatives():
    columns, counted = hardest(torch.tensor([[2.0], [3.0]]), torch.tensor([0, 0]), torch.ones(2, 1).bool(), 5)
    assert columns.tolist() == [[0], [0]] and counted.tolist() == [[True], [True]]
