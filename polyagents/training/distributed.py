"""Several processes that train as one: what they exchange in a step. In a single process every function does nothing.

Each process reads its own examples. The candidates of all of them are every example's negatives, so the candidates'
texts are gathered, each process encodes its share, and the vectors are gathered with a way back for their gradients. So
two processes of batch B take the step of one process with 2B. The gradients are averaged here rather than by torch's
DistributedDataParallel, which counts one backward pass per weight and step, while `gradient_cache.py` makes several.
"""

import itertools
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed, nn

T = TypeVar("T")


def is_distributed() -> bool:
    """Tell whether this is one of several training processes."""
    return distributed.is_available() and distributed.is_initialized()


def num_workers() -> int:
    """Return the number of training processes."""
    return distributed.get_world_size() if is_distributed() else 1


def rank() -> int:
    """Return the number of this process, from 0."""
    return distributed.get_rank() if is_distributed() else 0


def gathered(own: T) -> list[T]:
    """Gather plain data of every process, in the order of their ranks."""
    if not is_distributed():
        return [own]
    everyone: list[Any] = [None] * num_workers()
    distributed.all_gather_object(everyone, own)
    return everyone


def shares(lengths: Sequence[int]) -> list[list[int]]:
    """Distribute texts of these lengths to the processes, so that all take the same time: indices for each."""
    order = sorted(range(len(lengths)), key=lambda row: -lengths[row])
    return [order[rank :: num_workers()] for rank in range(num_workers())]


def own_share(lengths: Sequence[int]) -> list[int]:
    """Return the indices of the texts that this process encodes.

    All of them, in their order, without distributed training.

    Where there are fewer texts than processes, those without a share encode the first text, and its vector is not used:
    every process must have something to encode.
    """
    return (shares(lengths)[distributed.get_rank()] or [0]) if is_distributed() else list(range(len(lengths)))


def gathered_rows(own: Tensor, lengths: Sequence[int]) -> Tensor:
    """Gather the vectors of all processes' shares, with a way back for gradients.

    Args:
        own: vectors of this process's share, [c, D].
        lengths: those of all C texts.

    Returns:
        [C, D].
    """
    if not is_distributed():
        return own
    rows: Tensor = GatheredRows.apply(own, shares(lengths))
    return rows


class GatheredRows(torch.autograd.Function):
    """Vectors of all processes; the gradient of each is the sum of its gradients in all processes' losses."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, dealt: list[list[int]]) -> Tensor:
        """Gather the vectors.

        Args:
            ctx: autograd's.
            own: [c, D] of this process.
            dealt: the indices of each process's texts.

        Returns:
            [C, D].
        """
        ctx.mine, ctx.shape = dealt[distributed.get_rank()], own.shape
        longest = max(map(len, dealt))  # all_gather wants equal shapes
        padded = own.new_zeros(longest, own.size(1))
        padded[: len(own)] = own
        parts = [torch.empty_like(padded) for _ in dealt]
        distributed.all_gather(parts, padded)
        rows = own.new_empty(sum(map(len, dealt)), own.size(1))
        for part, places in zip(parts, dealt, strict=True):
            rows[places] = part[: len(places)]
        return rows

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        """Sum the gradients of all processes, and return this process's part.

        Args:
            ctx: autograd's.
            gradient: [C, D].

        Returns:
            [c, D], and None for the indices.
        """
        total = gradient.contiguous()
        distributed.all_reduce(total)
        mine = total.new_zeros(ctx.shape)
        mine[: len(ctx.mine)] = total[ctx.mine]
        return mine, None


def average_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Give every process the mean of all gradients; a weight that one process did not use counts as 0 there."""
    parameters = list(parameters)
    if not is_distributed() or not parameters:
        return
    used = torch.tensor([parameter.grad is not None for parameter in parameters], device=parameters[0].device).byte()
    distributed.all_reduce(used, distributed.ReduceOp.MAX)
    pending = []
    for parameter in itertools.compress(parameters, used.tolist()):
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        pending.append((parameter.grad, distributed.all_reduce(parameter.grad, async_op=True)))
    for gradient, work in pending:
        work.wait()
        gradient /= num_workers()


def same_weights(module: nn.Module) -> None:
    """Copy the first process's weights to all processes."""
    if is_distributed():
        for weight in module.state_dict().values():
            distributed.broadcast(weight, 0)
