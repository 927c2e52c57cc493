"""What follows from the length of a run and from the data, in both loops, where nothing is given."""

import itertools
import json
import math
from types import SimpleNamespace

import pytest
import torch
from commands import colour_dialogues, run, train, write_task

from polyagents import Ranker
from polyagents.training_loop import trainer
from polyagents.training_loop.budget import (
    Budget,
    fitting_batch,
    fitting_epochs,
    fitting_rate,
    held_out_examples,
    validations,
)
from polyagents.training_loop.callbacks import Callback
from polyagents.training_loop.schedule import Schedule

PAIRS = [{"context": text, "label": label} for text, label, _ in colour_dialogues(24)]
SMALL = {"model": "bi", "backbone": "scratch:tiny", "dropout": 0.0, "progress": False, "text_truncate": 64}


class Notes(Callback):
    """Remembers the trainer, and the rate of every update."""

    def __init__(self):
        self.rates, self.evaluated = [], []

    def on_train_begin(self, trainer):
        self.trainer = trainer

    def on_log(self, trainer, report):
        self.rates.append(report["lr"])

    def on_evaluate(self, trainer, report):
        self.evaluated.append(trainer.updates)


def test_the_progress_of_a_run_is_that_of_the_limit_that_comes_first():
    assert Budget().progress(5, 1.0, 9.0) is None
    assert Budget(steps=10).progress(5, 1.0, 9.0) == 0.5
    assert Budget(10, 4.0, 10.0).progress(5, 1.0, 9.0) == 0.9
    assert Budget(10, 4.0, 10.0).progress(5, 5.0, 9.0) == 1.0
    assert Budget(seconds=10.0).progress(5, 5.0, 7.0, begun=4.0) == 0.5


def test_the_rate_fits_the_width_in_both_loops(tmp_path):
    assert [fitting_rate(width) for width in (768, 384)] == [5e-5, 1e-4]
    ranker = Ranker.train(PAIRS, max_train_steps=1, **SMALL)
    wide = fitting_rate(ranker.model.context_encoder.width)
    assert ranker.model.settings.saved["learningrate"] == wide
    task = write_task(tmp_path, colour_dialogues(24))
    flags = ("--backbone", "scratch:tiny", "--max-train-steps", 1, "-veps", -1, "--short-final-eval", True)
    run("train_model", "-m", "polyagents:BiEncoder", "-mf", tmp_path / "M", *task, *flags)
    assert json.loads((tmp_path / "M.opt").read_text())["learningrate"] == wide


@pytest.mark.parametrize(
    ("examples", "batch", "epochs"), [(1, 2, 20), (50, 6, 20), (1_000, 32, 10), (17_000, 32, 3), (130_000, 32, 3)]
)
def test_batch_and_epochs_fit_the_examples(examples, batch, epochs):
    assert (fitting_batch(32, examples), fitting_epochs(examples, batch)) == (batch, epochs)
    assert 2 <= fitting_batch(32, examples, 4) <= batch


def test_validations_take_a_share_of_the_run():
    assert [validations(affordable) for affordable in (0.1, 2, 5.5, 11, 1e9)] == [1, 1, 4, 10, 10]
    assert [held_out_examples(affordable, 5_000) for affordable in (10, 3_000, 20_000)] == [32, 1_500, 5_000]
    assert held_out_examples(math.inf, 5_000) == 5_000  # the examples are not counted
    assert held_out_examples(10, 20) == 20


def rates(progress, **more):
    """Return the rates at some progress, as shares of the full one."""
    schedule = Schedule(
        torch.optim.AdamW([torch.nn.Parameter(torch.zeros(2))], lr=1.0), "linear", has_progress=True,
        **{"warmup_updates": None, "warmup_rate": 0.0, "last_update": None} | more,
    )  # fmt: skip
    found = []
    for updates, now in progress:
        schedule.after_update(updates, now)
        found.append(schedule.optimizer.param_groups[0]["lr"])
    return found


def test_the_rate_rises_over_a_tenth_and_falls_to_zero_whatever_ends_the_run():
    expected = pytest.approx([0.0, 0.5, 1.0, 0.5, 0.0])
    assert rates([(0, 0.0), (1, 0.05), (2, 0.1), (9, 0.55), (13, 1.0)]) == expected
    assert rates([(u, None) for u in (0, 1, 2, 11, 20)], last_update=20) == expected
    assert rates([(0, 0.0), (2, 0.2), (4, 0.4), (7, 0.7), (10, 1.0)], warmup_updates=4) == expected


def test_a_training_of_some_seconds_ends_in_time_with_a_rate_of_zero(monkeypatch):
    """A clock that each look moves by a hundredth."""
    monkeypatch.setattr(trainer, "time", SimpleNamespace(monotonic=itertools.count(step=0.01).__next__))
    notes = Notes()
    more = SMALL | {"log_every_n_steps": 1, "validation_patience": 0, "learningrate": 1e-3}
    Ranker.train(PAIRS, valid=PAIRS, callbacks=[notes], max_train_time=1.0, **more)
    assert notes.trainer.seconds < 1.5 and notes.trainer.budget == Budget(seconds=1.0)
    assert notes.evaluated[0] == 0 and notes.evaluated[-1] == notes.trainer.updates
    top = notes.rates.index(max(notes.rates))
    assert notes.rates[: top + 1] == sorted(notes.rates[: top + 1])
    assert notes.rates[top:] == sorted(notes.rates[top:], reverse=True) and notes.rates[-1] < 0.15e-3


@pytest.mark.slow
def test_train_model_spreads_rate_and_validations_over_its_seconds(tmp_path, monkeypatch):
    """By a clock that moves only when the loop looks at it."""
    ticks = itertools.count()
    monkeypatch.setattr("parlai.utils.misc.time", SimpleNamespace(time=lambda: 0.005 * next(ticks)))
    task = write_task(tmp_path, colour_dialogues(24))
    flags = ("--max-train-time", 2, "--log-every-n-steps", 1, "--validation-patience", 0, "--validation-cutoff", 2)
    train("bi", tmp_path / "M", *task, *flags, "--validation-every-n-secs", 0.5, "-vme", 8)
    stats = json.loads((tmp_path / "M.trainstats").read_text())
    found = [report["lr"] for report in stats["train_reports"]]
    assert max(found) > 0.8e-3 and found[-1] < 0.2 * max(found)
    assert stats["final_valid_report"]["lr"] == found[-1]
    evaluated = [report["train_steps"] for report in stats["valid_reports"]]
    assert evaluated[0] == 0 and evaluated[-1] == stats["train_steps"] > 3


def test_a_large_validation_is_cut(monkeypatch, capsys):
    """And one line says what was chosen."""
    monkeypatch.setattr(
        trainer, "validate", lambda *_: {"loss": 1.0, "hits@1": 0.5, "candidates": 1, "no_candidates": 0}
    )
    monkeypatch.setattr("polyagents.training_loop.progress_bar.METRICS", ("loss",))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    notes = Notes()
    Ranker.train(PAIRS, valid=PAIRS * 20, callbacks=[notes], max_train_steps=2, **SMALL | {"progress": True})
    assert len(notes.trainer.valid) == 32 and notes.evaluated == [0, 2]
    chosen = (
        "batchsize 3; learningrate 0.0003; reduction_type mean; similarity dot; precision fp32; lr_scheduler linear, "
        "warm-up a tenth of the run; 1 thread."
    )
    assert f"Chosen for 24 examples: {chosen}\n" in capsys.readouterr().err


def test_the_rate_of_a_stream_whose_end_is_not_known_follows_the_validations(trained):
    notes = Notes()
    Ranker.train(iter(PAIRS), init_model=trained("bi"), callbacks=[notes], batchsize=8, progress=False)
    assert (notes.trainer.schedule.kind, notes.trainer.schedule.warmup) == ("reduceonplateau", 100)
