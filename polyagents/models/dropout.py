"""Dropout on the CPU without torch's slow generator.

torch draws one Bernoulli variable after the other, 7.5 ns each, which is a fifth of a training step on two cores. Here
numpy's SFC64 fills 64 bits at a time, which decide about four numbers: 0.5 ns each (both measured on one Xeon;
docs/speed.md). The generator is seeded from torch's, so torch's seed and random state decide as always.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

STEPS = 2**16  # probabilities are multiples of 1 / STEPS
READ = ("attn_mask", "dropout_p", "scale")  # what `attention` reads, by torch's names


class FastDropout(TorchFunctionMode):
    """A context in which dropout of CPU tensors is the fast one, whichever model calls it, also in attention."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Replace a call of torch's dropout, and pass every other call on to torch."""
        given = kwargs or {}
        if func is functional.dropout and args[0].device.type == "cpu":
            return dropout(*args, **given)
        if func is functional.scaled_dot_product_attention and len(args) == 3 and args[0].device.type == "cpu":
            # torch's fused attention has no dropout, or a slow backward pass: up to 8 times ours in bf16.
            is_slow = given.get("dropout_p") or args[0].dtype == torch.bfloat16
            if is_slow and not any(value for name, value in given.items() if name not in READ):
                return attention(*args, **{name: value for name, value in given.items() if name in READ})
        return func(*args, **given)


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    scale: float | None = None,
) -> Tensor:
    """Compute torch's scaled_dot_product_attention with dropout, which has no fused kernel for it on a CPU either.

    Queries [..., T, d], keys and values [..., S, d] -> [..., T, d].

    Args:
        attn_mask: [..., T, S], added to the logits, or False where a query does not attend.
    """
    logits = query @ key.transpose(-2, -1) * (query.size(-1) ** -0.5 if scale is None else scale)
    if attn_mask is not None:
        added = attn_mask.dtype != torch.bool
        logits = logits + attn_mask if added else logits.masked_fill(~attn_mask, -torch.inf)
    return dropout(logits.softmax(-1), dropout_p).to(value.dtype) @ value


def dropout(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Compute what torch.nn.functional.dropout does on the CPU; the result is a new tensor, whatever `inplace` says."""
    threshold = round(p * STEPS)
    if not training or threshold == 0:
        return x
    if threshold == STEPS:
        return x * 0
    dropped: Tensor = Dropout.apply(x, threshold)
    return dropped


class Dropout(torch.autograd.Function):
    """The product of x with a random mask and the factor that keeps the mean, with its gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, threshold: int) -> Tensor:
        """Set elements of x to 0 whose random number, one of STEPS, is below the threshold, and scale the others."""
        seed = int(torch.randint(2**62, (1,)))
        words = np.random.SFC64(seed).random_raw((x.numel() + 3) // 4)
        lanes = torch.from_numpy(words.view(np.int16)[: x.numel()])  # even on -STEPS / 2 to STEPS / 2 - 1
        mask = (lanes >= threshold - STEPS // 2).view(x.shape)
        ctx.save_for_backward(mask)
        ctx.scale = STEPS / (STEPS - threshold)
        return (x * mask).mul_(ctx.scale)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        """Apply the same mask and factor to the gradient."""
        (mask,) = ctx.saved_tensors
        return (gradient * mask).mul_(ctx.scale), None
