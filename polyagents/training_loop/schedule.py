"""What changes during a run: the learning rate, by the rates of ParlAI's schedulers, and when dropout begins."""

import math
from typing import Any

import torch

from polyagents.errors import InputError
from polyagents.models.backbone import dropouts_of
from polyagents.ranking.ranking_model import RankingModel
from polyagents.training_loop.budget import WARM_UP

SCHEDULES = ("reduceonplateau", "linear", "cosine", "invsqrt", "none")
ENDING = ("linear", "cosine")  # those that reach 0 at the end of the run


class Schedule:
    """A warm-up, and the schedule after it.

    `tests/training_loop/test_schedule.py` compares the rates with ParlAI's. Two of its peculiarities remain: the first
    rate after a warm-up of w updates is the last one within it if a plateau decides (lower than the full one by a
    fraction of 1/w), and `none` has no warm-up.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        kind: str,
        warmup_updates: int | None,
        warmup_rate: float,
        last_update: int | None,
        decay: float = 0.4,
        patience: int = 0,
        has_progress: bool = False,
    ):
        """Set the first update's rate.

        Args:
            optimizer: each of its groups of weights has a rate of its own, which is the full one.
            kind: one of SCHEDULES.
            warmup_updates: None for a tenth of the run, which only ENDING schedules know.
            warmup_rate: the fraction of the full rate with which the warm-up begins.
            last_update: how many updates there will be; None if that is not known.
            decay: the factor of the rate at a plateau.
            patience: evaluations without a smaller loss that are not a plateau yet.
            has_progress: whether the progress of the run is known even if the last update is not.

        Raises:
            InputError: the rate should end with the run, and nothing says when that is.
        """
        if kind in ENDING and last_update is None and not has_progress:
            raise InputError(f"--lr-scheduler {kind} ends with the last update; give max_train_steps.")
        self.optimizer, self.kind, self.warmup_rate = optimizer, kind, warmup_rate
        self.warmup = warmup_updates if kind != "none" else 0
        self.last_update = last_update
        for group in optimizer.param_groups:
            group.setdefault("initial_lr", group["lr"])
        self.plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=decay, patience=patience)
        self.after_update(0)

    @property
    def is_warming_up(self) -> bool:
        """Whether the next update is one of the warm-up."""
        return self.progress < WARM_UP if self.warmup is None else self.updates < self.warmup

    def after_update(self, updates: int, progress: float | None = None) -> None:
        """Set the rate of the next update: within the warm-up, or by a formula; a plateau's does not change here.

        Args:
            progress: of the run, 0 to 1; None to count updates.
        """
        if progress is None:
            progress = min(updates / self.last_update, 1.0) if self.last_update else 0.0
        self.updates, self.progress = updates, progress
        if self.is_warming_up:
            risen = progress / WARM_UP if self.warmup is None else updates / self.warmup
            part = self.warmup_rate + (1.0 - self.warmup_rate) * risen
        elif self.kind in ("linear", "cosine", "invsqrt"):
            warmup = self.warmup or 0
            step = updates - warmup + (self.warmup != 0)  # ParlAI's count
            if self.warmup is not None and self.last_update is not None:
                fallen = min(step / max(self.last_update - self.warmup, 1), 1.0)
            else:
                risen = WARM_UP if self.warmup is None else progress * self.warmup / max(updates, 1)
                fallen = (progress - risen) / max(1.0 - risen, 1e-9)
            # invsqrt as in ParlAI without --invsqrt-lr-decay-gamma, which is the warm-up then.
            part = {
                "linear": 1.0 - fallen,
                "cosine": math.cos(math.pi * fallen / 2),
                "invsqrt": math.sqrt(max(1, warmup)) / math.sqrt(max(1, warmup + step)),
            }[self.kind]
        else:
            return
        for group in self.optimizer.param_groups:
            group["lr"] = group["initial_lr"] * part

    def after_evaluation(self, loss: float) -> None:
        """Lower the rate if the loss of an evaluation has ceased to fall; not during the warm-up."""
        if self.kind == "reduceonplateau" and not self.is_warming_up:
            self.plateau.step(loss)

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint stores; the rates themselves are the optimiser's."""
        return {"best": self.plateau.best, "num_bad_epochs": self.plateau.num_bad_epochs}

    def restore(self, state: dict[str, Any], updates: int, progress: float | None = None) -> None:
        """Resume after these updates from a checkpoint; the optimiser has its rates already.

        Raises:
            KeyError, TypeError, ValueError: the state is damaged.
        """
        self.plateau.best, self.plateau.num_bad_epochs = float(state["best"]), int(state["num_bad_epochs"])
        self.updates, self.progress = updates, progress or 0.0


class LateDropout:
    """The dropout of a run: the model's own in all passes but the first, in which no example can be known by heart.

    `--dropout` decides for all passes. So does a rate that does not fall to the end of the run, as the paper's.
    In short runs, whose first pass is most of them or all, this costs less time and ranks better (docs/results.md).
    """

    def __init__(self, model: RankingModel, scheduler: str):
        self.own = dropouts_of(model.module) if is_late(scheduler, model.settings.encoder.dropout) else []

    def follow(self, epochs: float) -> None:
        """Drop in the next batch what belongs to the passes that are completed."""
        for module, name, value in self.own:
            setattr(module, name, value if epochs >= 1 else 0.0)


def is_late(scheduler: str, dropout: float | None) -> bool:
    """Return whether a run drops nothing in its first pass; a dropout of None is the backbone's own."""
    return scheduler in ENDING and dropout is None
