"""One step of an optimiser: groups of weights, several processes, clipping, gradients that are not finite.

ParlAI's agents and the trainer of Ranker.train take this same step.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from polyagents.errors import InputError, first_line
from polyagents.files.json_files import fits
from polyagents.files.tensors import misfits
from polyagents.models.poly import CODES
from polyagents.training import distributed

SETTING = str | int | float | bool | None | list[str | int | float | bool | None]  # of a group of weights


def weight_groups(
    module: nn.Module, learningrate: float, codes_learningrate: float | None, weight_decay: float | None
) -> list[dict[str, Any]]:
    """Group the weights that learn for an optimiser: decay for matrices only (as for BERT), a rate for the codes.

    Codes start untrained, while the encoder starts trained, and an Adam changes each number by the rate in an update at
    most. Without a rate of their own (None) they have the others'.
    """
    rate, decay = codes_learningrate or learningrate, weight_decay or 0.0
    named = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
    codes = [p for name, p in named if name == CODES]
    matrices = [p for name, p in named if p.ndim > 1 and name != CODES]
    vectors = [p for name, p in named if p.ndim <= 1]
    groups: list[dict[str, Any]] = [{"params": matrices, "weight_decay": decay}]
    groups.append({"params": vectors, "weight_decay": 0.0})
    groups.append({"params": codes, "weight_decay": 0.0, "lr": rate})
    return [group for group in groups if group["params"]]


def align_weights(module: nn.Module) -> None:
    """Move weights of a file to multiples of 64 bytes, as torch aligns its own.

    At other addresses matrix products round differently, and a resumed training would not end with exactly the weights
    of an uninterrupted one.
    """
    for parameter in module.parameters():
        parameter.data = parameter.data.clone()


def fuse(optimizer: torch.optim.Optimizer) -> None:
    """Let an Adam (AdamW is one) pass over the weights once instead of ten times, whatever a loaded state says."""
    if isinstance(optimizer, torch.optim.Adam):
        for group in optimizer.param_groups:
            group |= {"fused": True, "foreach": None}


def step(
    optimizer: torch.optim.Optimizer, scaler: torch.amp.GradScaler, parameters: Sequence[nn.Parameter], limit: float
) -> Tensor:
    """Update the weights by their gradients, unless these are not finite, which would spoil the weights forever.

    Args:
        optimizer: has the weights. A fused Adam decides on the device whether it changes them; for others the host
            waits for the norm.
        scaler: scaled the loss in fp16; not enabled otherwise.
        limit: of the norm of the gradients, which are scaled down to it; 0 or below is none.

    Returns:
        The norm of the gradients of all processes, before it was limited; not finite if nothing was changed.
    """
    distributed.average_gradients(parameters)
    scaler.unscale_(optimizer)
    norm = nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
    if limit > 0:
        nn.utils.clip_grads_with_norm_(parameters, limit, norm)
    if all(group.get("fused") for group in optimizer.param_groups):
        vars(optimizer)["found_inf"] = (~torch.isfinite(norm)).float()  # where torch's GradScaler says it
        optimizer.step()
    elif torch.isfinite(norm):
        optimizer.step()
    scaler.update()
    return norm


# ---- state from a file -----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def refused(sentence: Callable[[str], str]) -> Iterator[None]:
    """Turn any error of a library into one sentence about its reason, an InputError."""
    try:
        yield
    except InputError:
        raise
    except (AttributeError, IndexError, KeyError, OverflowError, RuntimeError, TypeError, ValueError) as error:
        raise InputError(sentence(first_line(error))) from error


def refused_where_damaged(what: str) -> contextlib.AbstractContextManager[None]:
    """Turn any error of a library that loads a damaged state into one sentence, an InputError."""
    return refused(
        lambda why: (
            f"{what} cannot be loaded ({why}): it is damaged or belongs to another run. Give another --model-file to "
            f"start again, or --init-model with the model itself."
        )
    )


def check_state(optimizer: torch.optim.Optimizer) -> None:
    """Refuse, by a ValueError, a state that its weights do not fit: torch's fused Adam would write beyond a tensor."""
    wanted = {"step", "exp_avg", "exp_avg_sq"} if isinstance(optimizer, torch.optim.Adam) else set()
    for group in optimizer.param_groups:
        for name, value in group.items():
            like = 0.0 if name == "initial_lr" else optimizer.defaults.get(name)
            number = isinstance(like, (int, float)) and not isinstance(value, (int, float))
            if name != "params" and (number or not fits(list(value) if isinstance(value, tuple) else value, SETTING)):
                raise ValueError(f"its {name} is not a number")
    for parameter, state in optimizer.state.items():
        tensors = {name: value for name, value in state.items() if isinstance(value, Tensor)}
        if missing := wanted - tensors.keys():
            raise ValueError(f"{min(missing)} is missing")
        step = tensors.pop("step", torch.zeros(1))
        if step.numel() != 1 or not 0 <= float(step) < 2**31:
            raise ValueError("its step is not a number of steps")
        for factor in ("exp_avg_sq_row", "exp_avg_sq_col"):  # Adafactor's, which torch multiplies and does not write to
            tensors.pop(factor, None)
        if wrong := misfits((name, value, parameter) for name, value in tensors.items()):
            raise ValueError(wrong[0])
