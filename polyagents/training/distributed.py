"""Several processes that train as one: what they exchange in a step. Alone, every function here does nothing.

Each process reads its own examples. The candidates of all of them are every example's negatives, so the candidates'
texts are gathered, each process encodes its share, and the vectors are gathered with a way back for their gradients.
Then two processes of batch B make the step of one with 2B. The gradients are averaged here rather than by torch's
DistributedDataParallel, which counts one backward pass per weight and step, and `gradient_cache.py` makes several.
"""

import itertools
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed, nn

T = TypeVar("T")


def is_distributed() -> bool:
    """Whether this is one of several training processes."""
    return distributed.is_available() and distributed.is_initialized()


def num_workers() -> int:
    """How many training processes there are."""
    return distributed.get_world_size() if is_distributed() else 1


def rank() -> int:
    """The number of this process, from 0."""
    return distributed.get_rank() if is_distributed() else 0


def gathered(own: T) -> list[T]:
    """Plain data of every process, in the order of their ranks."""
    if not is_distributed():
        return [own]
    everyone: list[Any] = [None] * num_workers()
    distributed.all_gather_object(everyone, own)
    return everyone


def shares(lengths: Sequence[int]) -> list[list[int]]:
    """Which of the texts of these lengths each process encodes: dealt out longest first, so that all take as long."""
    order = sorted(range(len(lengths)), key=lambda row: -lengths[row])
    return [order[rank :: num_workers()] for rank in range(num_workers())]


def own_share(lengths: Sequence[int]) -> list[int]:
    """Indices of the texts that this process encodes; all of them, in their order, without distributed training.

    Where there are fewer texts than processes, those without a share encode the first text, for nothing: everybody has
    something to encode.
    """
    return (shares(lengths)[distributed.get_rank()] or [0]) if is_distributed() else list(range(len(lengths)))


def gathered_rows(own: Tensor, lengths: Sequence[int]) -> Tensor:
    """The vectors that each process made of its share -> those of all texts [C, D], with a way back for gradients."""
    if not is_distributed():
        return own
    rows: Tensor = GatheredRows.apply(own, shares(lengths))
    return rows


class GatheredRows(torch.autograd.Function):
    """Vectors of all processes; the gradient of each is the sum of what all processes' losses ask of it."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, dealt: list[list[int]]) -> Tensor:
        """[c, D] of every process -> [C, D]."""
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
        """[C, D] -> [c, D]."""
        total = gradient.contiguous()
        distributed.all_reduce(total)
        mine = total.new_zeros(ctx.shape)
        mine[: len(ctx.mine)] = total[ctx.mine]
        return mine, None


def average_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Give every process the mean of all gradients. A weight that one process did not use counts as 0 there."""
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
    """Start all processes from the weights of the first."""
    if is_distributed():
        for weight in module.state_dict().values():
            distributed.broadcast(weight, 0)
