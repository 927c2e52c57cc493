"""The learning rate of every update: the rates of ParlAI's schedulers, with which our agents train."""

import math
from typing import Any

import torch

from polyagents.errors import InputError

SCHEDULES = ("reduceonplateau", "linear", "cosine", "invsqrt", "none")
ENDING = ("linear", "cosine")  # those that reach 0 at the last update


class Schedule:
    """A warm-up, and the schedule after it.

    `tests/training/test_schedule.py` compares the rates with ParlAI's. Two of its peculiarities remain: the first rate
    after a warm-up of w updates is the last one within it if a plateau decides (lower than the full one by a
    fraction of 1/w), and `none` has no warm-up.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        kind: str,
        warmup_updates: int,
        warmup_rate: float,
        last_update: int | None,
        decay: float = 0.4,
        patience: int = 0,
    ):
        """Set the first update's rate.

        Args:
            optimizer: each of its groups of weights has a rate of its own, which is the full one.
            kind: one of SCHEDULES.
            warmup_rate: the fraction of the full rate with which the warm-up begins.
            last_update: how many updates there will be; None if that is not known.
            decay: the factor of the rate at a plateau.
            patience: evaluations without a smaller loss that are not a plateau yet.

        Raises:
            InputError: the rate should end with the last update, and its number is not known.
        """
        if kind in ENDING and last_update is None:
            raise InputError(f"--lr-scheduler {kind} ends with the last update; give max_train_steps.")
        self.optimizer, self.kind, self.warmup_rate = optimizer, kind, warmup_rate
        self.warmup = warmup_updates if kind != "none" else 0
        self.span = max((last_update or 0) - self.warmup, 1)
        for group in optimizer.param_groups:
            group.setdefault("initial_lr", group["lr"])
        self.plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=decay, patience=patience)
        self.after_update(0)

    def after_update(self, updates: int) -> None:
        """Set the rate of the next update: within the warm-up, or by a formula; a plateau's does not change here."""
        self.updates = updates
        if self.updates < self.warmup:
            part = self.warmup_rate + (1.0 - self.warmup_rate) * (self.updates / self.warmup)
        elif self.kind in ("linear", "cosine", "invsqrt"):
            step = self.updates - self.warmup + (self.warmup > 0)
            done = min(step / self.span, 1.0)
            # invsqrt as in ParlAI without --invsqrt-lr-decay-gamma, which is the warm-up then.
            part = {
                "linear": 1.0 - done,
                "cosine": math.cos(math.pi * done / 2),
                "invsqrt": math.sqrt(max(1, self.warmup)) / math.sqrt(max(1, self.warmup + step)),
            }[self.kind]
        else:
            return
        for group in self.optimizer.param_groups:
            group["lr"] = group["initial_lr"] * part

    def after_evaluation(self, loss: float) -> None:
        """Lower the rate where the loss of an evaluation has ceased to fall; not during the warm-up."""
        if self.kind == "reduceonplateau" and self.updates >= self.warmup:
            self.plateau.step(loss)

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint stores; the rates themselves are the optimiser's."""
        return {"best": self.plateau.best, "num_bad_epochs": self.plateau.num_bad_epochs}

    def restore(self, state: dict[str, Any], updates: int) -> None:
        """Resume after these updates from a checkpoint; the optimiser has its rates already.

        Raises:
            KeyError, TypeError, ValueError: the state is damaged.
        """
        self.plateau.best, self.plateau.num_bad_epochs = float(state["best"]), int(state["num_bad_epochs"])
        self.updates = updates
