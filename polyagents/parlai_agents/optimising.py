"""How our agents update weights: parameter groups, accumulation, several processes, gradients that are no numbers."""

import contextlib
import math
from collections.abc import Iterator
from typing import Any

import torch
from parlai.core.metrics import GlobalAverageMetric, GlobalTimerMetric, SumMetric
from parlai.core.torch_agent import TorchAgent
from parlai.utils.distributed import is_primary_worker
from torch import Tensor, nn

from polyagents.errors import InputError, first_line
from polyagents.files.json_files import fits
from polyagents.files.tensors import misfits
from polyagents.models.poly import ATTENTION_WEIGHTS
from polyagents.training import distributed

SETTING = str | int | float | bool | None | list[str | int | float | bool | None]  # of a group of weights
FAILURES = 30  # updates in a row without finite gradients; fp16 needs up to 16 to find its scale


@contextlib.contextmanager
def refused_where_damaged(what: str) -> Iterator[None]:
    """Say in one sentence that a state cannot be taken over, whatever a library raises where it is not as it should be.

    Raises:
        InputError: it cannot.
    """
    try:
        yield
    except InputError:
        raise
    except (AttributeError, IndexError, KeyError, OverflowError, RuntimeError, TypeError, ValueError) as error:
        raise InputError(
            f"{what} cannot be taken over ({first_line(error)}): it is damaged, or of another training. Give another "
            f"--model-file to train anew, or --init-model with the model itself."
        ) from error


def check_state(optimizer: torch.optim.Optimizer) -> None:
    """Refuse a loaded state that its weights do not fit: torch's fused Adam would write beyond the end of a tensor.

    Raises:
        ValueError: a tensor is missing, not finite, or of another shape or type.
    """
    wanted = {"step", "exp_avg", "exp_avg_sq"} if isinstance(optimizer, torch.optim.Adam) else set()
    for group in optimizer.param_groups:
        for name, value in group.items():
            like = 0.0 if name == "initial_lr" else optimizer.defaults.get(name)
            number = isinstance(like, (int, float)) and not isinstance(value, (int, float))
            if name != "params" and (number or not fits(list(value) if isinstance(value, tuple) else value, SETTING)):
                raise ValueError(f"its {name} is no number")
    for parameter, state in optimizer.state.items():
        tensors = {name: value for name, value in state.items() if isinstance(value, Tensor)}
        if missing := wanted - tensors.keys():
            raise ValueError(f"{min(missing)} is missing")
        step = tensors.pop("step", torch.zeros(1))
        if step.numel() != 1 or not 0 <= float(step) < 2**31:
            raise ValueError("step is no number of steps")
        for factor in ("exp_avg_sq_row", "exp_avg_sq_col"):  # Adafactor's, which torch multiplies and does not write to
            tensors.pop(factor, None)
        if wrong := misfits((name, value, parameter) for name, value in tensors.items()):
            raise ValueError(wrong[0])


class OptimisingAgent(TorchAgent):
    """A TorchAgent's optimiser.

    Attributes:
        scaler: scales the loss in fp16, so that small gradients are not lost.
        failed_updates: how many in a row had gradients that are no numbers.
    """

    scaler: torch.amp.GradScaler
    failed_updates: int
    _number_grad_accum: int  # TorchAgent's: batches since the last update

    def init_optim(self, params: Any, *args: Any, **kwargs: Any) -> bool:
        """Decay for weight matrices only (as for BERT), own rate for the codes, betas and eps for every Adam.

        A learnt sharpness has the codes' rate: both begin untrained, where the encoder begins trained, and an Adam
        moves each number by the rate in an update at most. At 5e-5 ten thousand updates would change the sharpness by
        e^0.5, at 1e-2 a hundred change it by e.

        ParlAI passes `--betas` and `--adam-eps` on to some optimisers and silently not to AdamW.
        """
        named = [(name, p) for name, p in self.model.named_parameters() if p.requires_grad]
        attentions = [p for name, p in named if name in ATTENTION_WEIGHTS]
        matrices = [p for name, p in named if p.ndim > 1 and name not in ATTENTION_WEIGHTS]
        vectors = [p for name, p in named if p.ndim <= 1 and name not in ATTENTION_WEIGHTS]
        rate = self.opt.get("codes_learningrate") or self.opt["learningrate"]
        decay = self.opt.get("weight_decay") or 0.0  # ParlAI leaves 0 away, and torch's AdamW then takes 0.01
        groups: list[dict[str, Any]] = [{"params": matrices, "weight_decay": decay}]
        groups.append({"params": vectors, "weight_decay": 0.0})
        groups.append({"params": attentions, "weight_decay": 0.0, "lr": rate})
        if not all(math.isfinite(one) and one >= 0 for one in (rate, self.opt["learningrate"], decay)):
            raise InputError(
                f"--learningrate {self.opt['learningrate']}, --codes-learningrate {rate} and --weight-decay {decay} "
                f"must be finite numbers, and not below 0."
            )
        with refused_where_damaged("The optimiser's state of the checkpoint"):
            was_reset: bool = super().init_optim([g for g in groups if g["params"]], *args, **kwargs)
            check_state(self.optimizer)
        for group in self.optimizer.param_groups:
            if isinstance(self.optimizer, torch.optim.Adam):  # AdamW is one
                group |= {"fused": True, "foreach": None}  # one pass over the weights instead of ten
            if "betas" in group:
                group["betas"] = tuple(self.opt["betas"])
            if "betas" in group and "eps" in group:
                group["eps"] = self.opt["adam_eps"]
        return was_reset

    def build_lr_scheduler(self, states: dict[str, Any] | None = None, hard_reset: bool = False) -> None:
        """TorchAgent's, without two slips on resuming.

        Building a LambdaLR steps once, so the first update has the rate of the second, or that of the very start. And
        where there is no scheduler the count of updates begins anew.
        """
        if states and "optimizer" not in states:  # M itself, not its checkpoint: the training begins anew
            states, hard_reset = {}, True
        rates = [group["lr"] for group in self.optimizer.param_groups]
        with refused_where_damaged("The learning rates of the checkpoint"):
            super().build_lr_scheduler(states, hard_reset)
        if states and not hard_reset:
            for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
                group["lr"] = rate
            self._number_training_updates = states.get("number_training_updates", 0)

    def backward(self, loss: Tensor, **kwargs: Any) -> None:
        """TorchAgent's, for one model that no wrapper synchronises, with the loss scaled in fp16."""
        accumulated = self.opt.get("update_freq", 1)
        self._number_grad_accum = (self._number_grad_accum + 1) % accumulated
        if loss.requires_grad:  # that of a process without examples follows from nothing
            self.scaler.scale(loss / accumulated).backward(**kwargs)

    def update_params(self) -> None:
        """TorchAgent's step, left out where the gradients are no numbers: the weights would never be numbers again."""
        if self._number_grad_accum != 0:
            return
        parameters = [p for p in self.model.parameters() if p.requires_grad]
        distributed.average_gradients(parameters)
        self.scaler.unscale_(self.optimizer)
        norm = nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
        if torch.isfinite(norm):
            self._update(parameters, norm)
        self.scaler.update()
        self._count_failure(bool(torch.isfinite(norm)))

    def _update(self, parameters: list[nn.Parameter], norm: Tensor) -> None:
        self.global_metrics.add("gnorm", GlobalAverageMetric(float(norm)))
        limit = self.opt.get("gradient_clip", -1)
        if limit > 0:
            nn.utils.clip_grads_with_norm_(parameters, limit, norm)
            self.global_metrics.add("clip", GlobalAverageMetric(float(norm > limit)))
        self.optimizer.step()
        self._number_training_updates += 1
        if is_primary_worker():  # all processes step together
            self.global_metrics.add("ups", GlobalTimerMetric(1))
        if getattr(self, "scheduler", None):
            self.scheduler.step(self._number_training_updates)

    def _count_failure(self, fine: bool) -> None:
        """End a training that cannot recover; in fp16 the first gradients always overflow, until their scale fits."""
        self.failed_updates = 0 if fine else self.failed_updates + 1
        if fine:
            return
        if is_primary_worker():
            self.global_metrics.add("skipped_updates", SumMetric(1))
        if self.failed_updates >= FAILURES:
            raise InputError(
                f"The gradients of {FAILURES} updates in a row were not finite, the last at update "
                f"{self._number_training_updates}; none of them changed the weights. Lower --learningrate, or train "
                f"with --precision fp32."
            )
