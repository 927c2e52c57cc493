"""A cross-encoder as teacher: the loss against its definition, and students that come nearer to it."""

import math

import pytest
import torch
from commands import KINDS, colour_dialogues, evaluate, run, train, write_task

from polyagents import Ranker
from polyagents.errors import InputError
from polyagents.training.distillation import distillation_loss, hardest, teacher_scores


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
    assert hardest(scores, torch.tensor([1, 3]), mask, 9)[0].shape == (2, 4)


@pytest.mark.parametrize("kind", ["bi", "poly"])
@pytest.mark.parametrize("loss", ["kl", "margin_mse"])
def test_a_student_comes_nearer_to_its_teacher(kind, loss, trained, tmp_path):
    task = write_task(tmp_path, colour_dialogues(16))
    flags = ("--candidates", "inline", "--max-train-steps", 30, "-lr", 3e-3, "--chunk-tokens", 200)
    teacher = trained("cross")
    distances = {}
    for name, more in (("alone", ()), ("taught", ("--teacher-model-file", teacher, "--distillation-loss", loss))):
        train(kind, tmp_path / name, *task, *flags, *more)
        student, wanted = Ranker.load(str(tmp_path / name)), Ranker.load(teacher)
        found = [ranker.score("i like red more than blue", [f"so you like {c}" for c in ("red", "blue", "pink")])
                 for ranker in (student, wanted)]  # fmt: skip
        rows = [torch.tensor(scores)[None] for scores in found]
        distances[name] = float(distillation_loss(*rows, torch.ones(1, 3).bool(), loss))
    assert distances["taught"] < distances["alone"]
    assert evaluate(tmp_path / "taught", *task)["exs"] == 16  # which needs no teacher


def test_the_teacher_scores_as_it_ranks(trained):
    ranker = Ranker.load(trained("cross"))
    contexts, texts = ["hi", "how are you\nfine"], [["hello", "bye"], ["bye", "good"]]
    scores = teacher_scores(ranker.model, contexts, texts)
    for row, context, own in zip(scores, contexts, texts, strict=True):
        assert row.tolist() == pytest.approx(ranker.score(context, own).tolist(), abs=1e-4)


def test_teachers_that_cannot_teach(trained, colours, tmp_path):
    flags = ("train_model", "-m", KINDS["bi"], "-mf", tmp_path / "M", *colours, "--backbone", "scratch:tiny", "-bs", 4)
    with pytest.raises(InputError, match="give a trained cross-encoder"):
        run(*flags, "--teacher-model-file", trained("poly"))
    with pytest.raises(InputError, match="There is no trained model at"):
        run(*flags, "--teacher-model-file", tmp_path / "none")
