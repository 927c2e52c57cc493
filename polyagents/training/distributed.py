"""Several processes that train as one: their exchanges in a step. In a single process every function does nothing.

Each process reads its own examples. The candidates of all of them are every example's negatives, so the candidates'
texts are gathered, each process encodes its share, and the vectors are gathered with a way back for their gradients. So
two processes of batch B take the step of one process with 2B. The gradients are averaged here rather than by torch's
DistributedDataParallel, which counts one backward pass per weight and step, while `gradient_cache.py` makes several.
Tensors travel from device to device; plain data travels from host to host, so that no host waits for its GPU.
"""

import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed, nn

from polyagents.models.tokens import to_device

T = TypeVar("T")

ALONE = 2**20  # bytes from which on a gradient travels by itself, in its place; smaller ones are packed together
BUCKET = 2**25  # bytes of small ones that travel together: the next are packed while these are on their way


def is_distributed() -> bool:
    """Tell whether this is one of several training processes."""
    return distributed.is_available() and distributed.is_initialized()


def num_workers() -> int:
    """Return the number of training processes."""
    return distributed.get_world_size() if is_distributed() else 1


def process_number() -> int:
    """Return the number of this process, from 0."""
    return distributed.get_rank() if is_distributed() else 0


def gathered(own: T) -> list[T]:
    """Gather plain data of every process, in the order of their ranks."""
    if not is_distributed():
        return [own]
    everyone: list[Any] = [None] * num_workers()
    distributed.all_gather_object(everyone, own, group=hosts(distributed.group.WORLD))
    return everyone


@functools.lru_cache(maxsize=1)
def hosts(world: distributed.ProcessGroup) -> distributed.ProcessGroup:
    """Return a group of the same processes for data of the hosts: NCCL would copy it to the GPUs and back."""
    if distributed.get_backend(world) == "gloo":
        return world
    made: distributed.ProcessGroup = distributed.new_group(backend="gloo")
    return made


def shares(lengths: Sequence[int]) -> list[list[int]]:
    """Distribute texts of these lengths to the processes, so that all take the same time: indices for each."""
    order = sorted(range(len(lengths)), key=lambda row: -lengths[row])
    return [order[rank :: num_workers()] for rank in range(num_workers())]


class GatheredRows(torch.autograd.Function):
    """Vectors of all processes; the gradient of each is the sum of its gradients in all processes' losses."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, dealt: list[list[int]]) -> Tensor:
        """Gather the vectors [c, D], given the indices of each process's texts: [C, D]."""
        mine = torch.tensor(dealt[distributed.get_rank()], dtype=torch.long)
        ctx.mine, ctx.shape = to_device(mine, own.device), own.shape
        longest = max(map(len, dealt))  # all_gather wants equal shapes
        padded = own.new_zeros(longest, own.size(1))
        padded[: len(own)] = own
        parts = [torch.empty_like(padded) for _ in dealt]
        distributed.all_gather(parts, padded)
        places = torch.empty(sum(map(len, dealt)), dtype=torch.long)  # of each text in what was gathered
        for process, texts in enumerate(dealt):
            places[texts] = torch.arange(len(texts)) + process * longest
        return torch.cat(parts)[to_device(places, own.device)]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        """Sum the gradients [C, D] of all processes, and return this process's part [c, D]."""
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
    used = [any(who) for who in zip(*gathered([one.grad is not None for one in parameters]), strict=True)]
    gradients = []
    for parameter in itertools.compress(parameters, used):
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        gradients.append(parameter.grad)
    large = [gradient for gradient in gradients if gradient.nbytes >= ALONE]
    pending = [distributed.all_reduce(gradient, async_op=True) for gradient in large]
    packs = []
    for bucket in buckets([gradient for gradient in gradients if gradient.nbytes < ALONE]):
        packed = torch.cat([gradient.flatten() for gradient in bucket])
        packs.append((bucket, packed))
        pending.append(distributed.all_reduce(packed, async_op=True))
    for work in pending:
        work.wait()
    for bucket, packed in packs:
        parts = packed.split([gradient.numel() for gradient in bucket])
        torch._foreach_copy_(bucket, [part.view_as(to) for part, to in zip(parts, bucket, strict=True)])
    torch._foreach_div_(gradients, num_workers())


def buckets(gradients: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Divide gradients into lists of one type that have about BUCKET bytes each, in their order."""
    bucket: list[Tensor] = []
    size = 0
    for gradient in gradients:
        if bucket and (size >= BUCKET or gradient.dtype != bucket[0].dtype):
            yield bucket
            bucket, size = [], 0
        bucket.append(gradient)
        size += gradient.nbytes
    if bucket:
        yield bucket


def same_weights(module: nn.Module) -> None:
    """Copy the first process's weights to all processes."""
    if is_distributed():
        for weight in module.state_dict().values():
            distributed.broadcast(weight, 0)
