"""A trained model as teacher: its scores, and students that come nearer to it."""

import pytest
import torch
from commands import KINDS, colour_dialogues, evaluate, run, train, write_task

from polyagents import Ranker
from polyagents.errors import InputError
from polyagents.training.distillation import distillation_loss, teacher_scores


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "loss", "teacher"),
    [
        ("bi", "kl", "cross"),
        ("poly", "margin_mse", "uni"),
        pytest.param("cross", "margin_mse", "poly", marks=pytest.mark.release),
        pytest.param("bi", "margin_mse", "cross", marks=pytest.mark.release),
        pytest.param("poly", "kl", "cross", marks=pytest.mark.release),
    ],
)
def test_a_student_comes_nearer_to_its_teacher(kind, loss, teacher, trained, tmp_path):
    task = write_task(tmp_path, colour_dialogues(8))
    flags = ("--candidates", "inline", "--max-train-steps", 12, "-lr", 3e-3, "--chunk-tokens", 200)
    teacher = trained(teacher)
    distances = {}
    for name, more in (("alone", ()), ("taught", ("--teacher-model-file", teacher, "--distillation-loss", loss))):
        train(kind, tmp_path / name, *task, *flags, *more)
        student, wanted = Ranker.load(str(tmp_path / name)), Ranker.load(teacher)
        found = [ranker.score("i like red more than blue", [f"so you like {c}" for c in ("red", "blue", "pink")])
                 for ranker in (student, wanted)]  # fmt: skip
        rows = [torch.tensor(scores)[None] for scores in found]
        distances[name] = float(distillation_loss(*rows, torch.ones(1, 3).bool(), loss))
    assert distances["taught"] < distances["alone"]
    assert evaluate(tmp_path / "taught", *task)["exs"] == 8  # which needs no teacher


@pytest.mark.parametrize("kind", ["poly", "uni", "cross"])
def test_the_teacher_scores_as_it_ranks(kind, trained):
    ranker = Ranker.load(trained(kind))
    contexts, texts = ["hi", "how are you\nfine"], [["hello", "bye"], ["bye", "good"]]
    scores = teacher_scores(ranker.model, contexts, texts)
    for row, context, own in zip(scores, contexts, texts, strict=True):
        assert row.tolist() == pytest.approx(ranker.score(context, own).tolist(), abs=1e-4)


def test_teachers_that_cannot_teach(trained, colours, tmp_path):
    flags = ("train_model", "-m", KINDS["bi"], "-mf", tmp_path / "M", *colours, "--backbone", "scratch:tiny", "-bs", 4)
    with pytest.raises(InputError, match="There is no trained model at"):
        run(*flags, "--teacher-model-file", tmp_path / "none")
