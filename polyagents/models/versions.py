"""Tells whether weights have changed, without reading them: 60 microseconds for the 200 tensors of a BERT-base."""

import operator
import weakref
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.optim.optimizer import register_optimizer_step_post_hook


class Numbers(NamedTuple):
    """The identity of weights and buffers, and of the numbers in them.

    Attributes:
        tensors: the ids of all; torch could not swap tensors to which there are weak references.
        versions: how often each was changed in place; None if one was made in inference mode, which does not count.
        storages: their addresses.
    """

    tensors: list[int]
    versions: list[int] | None
    storages: list[int]


class Versions:
    """The weights and buffers of a module at the last look.

    What changes numbers in place raises a tensor's version: `load_state_dict`, edits under no_grad. Other tensors and
    layers are other objects, and conversions (`module.half()`, `module.to`) bring another storage. Optimisers say when
    they have made a step, since fused ones raise no version. An edit of `.data` leaves no trace.
    """

    def __init__(self, module: nn.Module, without: str | None = None):
        """Look for the first time at a module and its parts, except for the child `without`."""
        self.module, self.without = module, without
        self.look()
        WATCHING[id(self)] = self

    def __reduce__(self) -> tuple[type["Versions"], tuple[nn.Module, str | None]]:
        return Versions, (self.module, self.without)

    def look(self) -> None:
        """Take a snapshot, which keeps no tensor alive."""
        self.stepped = False
        parts = [self.module]
        for part in parts:
            named = part._modules.items()
            parts += [child for name, child in named if child and not (part is self.module and name == self.without)]
        # The tables in which torch keeps children, weights and buffers.
        self._within = [part._modules for part in parts if part._modules]
        self._tables = [table for part in parts for table in (part._parameters, part._buffers) if table]
        self._children = list(chain.from_iterable(map(dict.values, self._within)))
        self.numbers = numbered(self._tables)
        tensors = [one for table in self._tables for one in table.values() if one is not None]
        # As long as these live, no other storage has the same address.
        self._held = [StorageWeakRef(tensor.untyped_storage()) for tensor in tensors]

    def have_changed(self) -> bool:
        """Tell whether anything has changed since the last look."""
        if self.stepped or self.numbers.versions is None:
            return True
        children = list(chain.from_iterable(map(dict.values, self._within)))
        same_parts = len(children) == len(self._children) and all(map(operator.is_, children, self._children))
        return not same_parts or numbered(self._tables) != self.numbers


WATCHING: weakref.WeakValueDictionary[int, Versions] = weakref.WeakValueDictionary()


def after_step(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    """Tell those whose weights an optimiser has changed."""
    weights = {id(weight) for group in optimizer.param_groups for weight in group["params"]}
    for reference in WATCHING.valuerefs():
        watching = reference()
        if watching is not None and not weights.isdisjoint(watching.numbers.tensors):
            watching.stepped = True


register_optimizer_step_post_hook(after_step)  # called after the steps of all optimisers


def numbered(tables: list[dict[str, Any]]) -> Numbers:
    """Number what is in torch's tables, in which None stands for a weight that a layer does not have."""
    tensors = [tensor for tensor in chain.from_iterable(map(dict.values, tables)) if tensor is not None]
    try:
        versions = [tensor._version for tensor in tensors]
    except RuntimeError:  # made in inference mode
        versions = None
    return Numbers(list(map(id, tensors)), versions, [tensor.untyped_storage()._cdata for tensor in tensors])
