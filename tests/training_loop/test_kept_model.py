"""Which of the validated models a run keeps, by both loops."""

import json
from types import SimpleNamespace

import pytest
from parlai.scripts.train_model import TrainLoop

from polyagents.parlai_patches import run_plan, train_loop, wrapped
from polyagents.training_loop import trainer
from polyagents.training_loop.trainer import Trainer, TrainingProgress

# Twenty examples: the standard error of .75 is .097, of .5 .112.
CASES = {
    "the best": ("hits@1", "linear", [0.5, 0.6, 0.75], 2),
    "a later one, one example below": ("hits@1", "linear", [0.5, 0.75, 0.7], 2),
    "the best, two examples above": ("hits@1", "linear", [0.5, 0.75, 0.65], 1),
    "of the best, not of the one kept": ("hits@1", "cosine", [0.3, 0.5, 0.4, 0.35], 2),
    "not one below the start": ("hits@1", "linear", [0.75, 0.7, 0.7], 0),
    "one as good as the start": ("hits@1", "linear", [0.75, 0.7, 0.75, 0.7], 2),
    "the first of equals, at a rate that stays": ("hits@1", "fixed", [0.5, 0.75, 0.75, 0.7], 1),
    "a loss has no such error": ("loss", "linear", [0.9, 0.6, 0.61], 1),
    "nor has one above 1": ("loss", "linear", [2.5, 1.6, 1.6, 1.61], 2),
}


@pytest.mark.parametrize(("metric", "scheduler", "values", "expected"), CASES.values(), ids=CASES.keys())
@pytest.mark.parametrize("kept_by", ["trainer", "parlai"])
def test_which_model_is_kept(kept_by, metric, scheduler, values, expected, monkeypatch):
    kept, last = {"trainer": kept_by_trainer, "parlai": kept_by_parlai}[kept_by](metric, scheduler, values, monkeypatch)
    assert kept == expected
    assert last == pytest.approx(values[expected])


def best_of(metric, values):
    """Return the best of some values of a metric."""
    return min(values) if metric == "loss" else max(values)


def kept_by_trainer(metric, scheduler, values, monkeypatch):
    """Return the index and the value of the model that our loop keeps."""
    saved, given = [], iter(values)
    monkeypatch.setattr(trainer, "validate", lambda *_: {"loss": 1.0, "hits@1": 0.5} | {metric: next(given)})
    loop = object.__new__(Trainer)
    loop.progress, loop.valid, loop.model, loop.callbacks = TrainingProgress(), range(20), None, ()
    loop.options = SimpleNamespace(validation_metric=metric, lr_scheduler=scheduler, batchsize=1)
    loop.files = SimpleNamespace(keep_best=lambda _: saved.append(loop.progress.updates))
    loop._look = loop._log = lambda: None
    for update in range(len(values)):
        loop.progress.updates = update
        loop._validate(in_turn=False)
    assert loop.progress.is_start == (saved[-1] == 0)
    return saved[-1], loop.progress.kept


def kept_by_parlai(metric, scheduler, values, monkeypatch):
    """Return the index and the value of the model that ParlAI's loop keeps."""
    saved, given = [], iter(values)
    wrapped.wrap_loop()
    loop = object.__new__(TrainLoop)
    loop.opt = dict.fromkeys(("tensorboard_log", "wandb_log", "clearml_log"), False)
    loop.opt |= {
        "save_after_valid": True,
        "validation_metric": metric,
        "validation_metric_mode": "min" if metric == "loss" else "max",
        "validation_cutoff": best_of(metric, values),
        "model_file": "M",
    }
    loop.opt |= {"validation_patience": 0, "validation_max_exs": -1, "lr_scheduler": scheduler}
    loop.agent = SimpleNamespace(opt=loop.opt, phase={}, ranking=None)
    loop.agent.save = lambda file: saved.append((file, json.loads(loop.agent.progress)))
    loop.train_reports, loop.final_valid_report, loop.final_test_report, loop.final_extra_valid_report = [], {}, {}, {}
    loop.valid_optim = -1 if metric == "loss" else 1
    loop.valid_worlds, loop.valid_reports, loop.best_valid, loop.impatience = [], [], None, 0
    loop.validates, loop._total_epochs, loop._total_exs, loop.parleys, loop.saved = True, 5, 0, 0, False
    loop.train_time = loop.validate_time = SimpleNamespace(time=lambda: 0.0, reset=lambda: None)
    monkeypatch.setattr(loop, "_run_eval", lambda *_: {metric: next(given), "exs": 20}, raising=False)
    monkeypatch.setattr(loop, "_save_train_stats", lambda _: None, raising=False)
    ends = []
    for update in range(len(values)):
        loop._train_steps = update
        ends += [update] if loop.validate() else []
    assert ends == [update for update in [values.index(loop.opt["validation_cutoff"])] if update > 0]
    for file, written in saved:  # a run that is resumed goes on from this
        so_far = values[: written["train_steps"] + 1]
        best = best_of(metric, so_far)
        assert written["best_valid"] == best
        assert file == "M" or written["impatience"] == len(so_far) - 1 - so_far.index(best)
    kept = [written["train_steps"] for file, written in saved if file == "M"]
    assert [written["train_steps"] for file, written in saved if file != "M"] == [*range(len(values))]
    report = run_plan.kept_report(loop)
    assert report["train_steps"] == kept[-1]
    return kept[-1], report[metric]


CUTOFFS = [("accuracy", {}, 1.0), ("rank", {}, 1.0), ("task/loss", {}, 0.0), ("loss", {"validation_cutoff": 0.5}, 0.5)]


@pytest.mark.parametrize(("metric", "given", "expected"), CUTOFFS)
def test_a_training_ends_at_a_perfect_validation_or_at_the_cutoff_given(metric, given, expected):
    opt = {"validation_metric": metric, "validation_metric_mode": None, "validation_cutoff": 1.0} | given
    opt["override"] = given
    train_loop.of_training_data(lambda *_: None, None, opt)
    assert opt["validation_cutoff"] == expected
