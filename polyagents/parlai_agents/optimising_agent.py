"""How our agents update weights in ParlAI's training loop; the step itself is in training/optimising.py."""

from collections.abc import Mapping
from typing import Any

import torch
from parlai.core.metrics import GlobalAverageMetric, GlobalTimerMetric, SumMetric
from parlai.core.torch_agent import TorchAgent
from parlai.utils import logging
from parlai.utils.distributed import is_primary_worker

from polyagents.console import say
from polyagents.training import optimising
from polyagents.training.watch import Watch
from polyagents.training_loop.schedule import ENDING, Schedule


class RunScheduler:
    """A `Schedule` that falls to zero at the end of the run, with the methods of ParlAI's schedulers."""

    def __init__(self, opt: Mapping[str, Any], optimizer: torch.optim.Optimizer):
        steps, warm_up = opt.get("max_train_steps", -1), opt.get("warmup_updates")
        is_counted = steps > 0 >= max(opt.get("num_epochs", -1), opt.get("max_train_time", -1))
        self.schedule = Schedule(
            optimizer,
            opt["lr_scheduler"],
            None if warm_up is None else max(warm_up, 0),
            opt["warmup_rate"],
            steps if is_counted else None,
            has_progress=True,
        )

    def step(self, updates: int) -> None:
        """Set the rate after an update, if the rate depends on the number of updates."""
        self.schedule.after_update(updates, None if self.schedule.last_update else self.schedule.progress)

    def follow(self, progress: float | None) -> None:
        """Set the rate by the progress of the run, which the loop gives after each batch."""
        if self.schedule.last_update is None:
            self.schedule.after_update(self.schedule.updates, progress)

    def valid_step(self, metrics: Any) -> None:
        """Do nothing: no validation changes the rate."""

    def _is_lr_warming_up(self) -> bool:
        return self.schedule.is_warming_up

    def get_last_lr(self) -> float:
        """Return the rate of the next update."""
        return float(self.schedule.optimizer.param_groups[0]["lr"])

    def get_initial_number_training_updates(self) -> int:
        """Return 0: a checkpoint says it."""
        return 0

    def get_state_dict(self) -> dict[str, Any]:
        """Return nothing: the rate is the optimiser's, the progress the loop's."""
        return {}

    def get_warmup_state_dict(self) -> None:
        """Return None: there is no scheduler of its own for the warm-up."""


class OptimisingAgent(TorchAgent):
    """The optimiser part of a TorchAgent.

    Attributes:
        scaler: scales the loss in fp16, so that small gradients are not lost.
        watch: notices updates that were skipped; only the agent that trains has one, and not its clones.
        rate: of the last update; None before the first.
    """

    rate: float | None = None

    scaler: torch.amp.GradScaler
    watch: Watch
    _number_grad_accum: int  # TorchAgent's: batches since the last update

    def init_optim(self, params: Any, *args: Any, **kwargs: Any) -> bool:
        """Make the optimiser like TorchAgent, with our groups of weights, and betas and eps for every Adam.

        ParlAI passes `--betas` and `--adam-eps` on to some optimisers and silently not to AdamW.
        """
        opt = self.opt
        # ParlAI omits a decay of 0, and torch's AdamW then uses 0.01: so each group has its own.
        groups = optimising.weight_groups(
            self.model, opt["learningrate"], opt.get("codes_learningrate"), opt.get("weight_decay")
        )
        is_new = not (args and args[0]) and not kwargs.get("optim_states")
        name, possible = opt["optimizer"], "adamw, adam, adamax, sgd or rmsprop"
        unusable = optimising.refused(lambda why: f"--optimizer {name} cannot be used here ({why}); give {possible}.")
        damaged = optimising.refused_where_damaged("The optimiser's state of the checkpoint")
        with unusable if is_new else damaged:
            was_reset: bool = super().init_optim(groups, *args, **kwargs)
            optimising.check_state(self.optimizer)
        optimising.fuse(self.optimizer)
        for group in self.optimizer.param_groups:
            if "betas" in group:
                group["betas"] = tuple(opt["betas"])
            if "betas" in group and "eps" in group:
                group["eps"] = opt["adam_eps"]
        return was_reset

    def build_lr_scheduler(self, states: dict[str, Any] | None = None, hard_reset: bool = False) -> None:
        """Make the scheduler like TorchAgent, without two errors in resuming.

        Building a LambdaLR steps once, so the first update has the rate of the second, or of the very start. And
        if there is no scheduler the count of updates begins anew.
        """
        if states and "optimizer" not in states:  # M itself, not its checkpoint: the training starts from the beginning
            states, hard_reset = {}, True
        rates = [group["lr"] for group in self.optimizer.param_groups]
        with optimising.refused_where_damaged("The learning rates of the checkpoint"):
            if self.opt["lr_scheduler"] in ENDING:
                self.scheduler = RunScheduler(self.opt, self.optimizer)
                self._number_training_updates = 0
            else:
                super().build_lr_scheduler(states, hard_reset)
        if states and not hard_reset:
            for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
                group["lr"] = rate
            self._number_training_updates = states.get("number_training_updates", 0)

    def update_params(self) -> None:
        """Do TorchAgent's step, unless the gradients are not finite."""
        if self._number_grad_accum != 0:
            return
        limit = self.opt.get("gradient_clip", -1)
        parameters = [p for p in self.model.parameters() if p.requires_grad]
        self.rate = self.optimizer.param_groups[0]["lr"]
        self.watch.saw_update(optimising.step(self.optimizer, self.scaler, parameters, limit))
        self._number_training_updates += 1
        skipped = self._look() if self.watch.is_due else 0
        if getattr(self, "scheduler", None) and not skipped:
            self.scheduler.step(self._number_training_updates)

    def _look(self) -> int:
        """Report the updates since the last look, and no longer count those that were skipped: return their number."""
        if "watch" not in vars(self):
            return 0
        found, limit = self.watch.look(self._number_training_updates), self.opt.get("gradient_clip", -1)
        self._number_training_updates -= found.skipped
        for norm in found.norms:
            self.global_metrics.add("gnorm", GlobalAverageMetric(norm))
            if limit > 0:
                self.global_metrics.add("clip", GlobalAverageMetric(float(norm > limit)))
        if is_primary_worker():  # all processes step together
            if found.norms:
                self.global_metrics.add("ups", GlobalTimerMetric(len(found.norms)))
            if found.skipped:
                self.global_metrics.add("skipped_updates", SumMetric(found.skipped))
        report = logging.error if is_primary_worker() else say  # ParlAI silences the log of the others
        for sentence in found.wrong:
            report(sentence)
        return found.skipped

    def report(self) -> dict[str, Any]:
        """Return TorchAgent's report, of all updates so far, with the rate of the last one."""
        self._look()
        report = dict(super().report())
        return report | ({"lr": GlobalAverageMetric(self.rate)} if "lr" in report and self.rate is not None else {})

    def state_dict(self) -> dict[str, Any]:
        """Return TorchAgent's state, with the number of the updates that were not skipped."""
        self._look()
        return dict(super().state_dict())
