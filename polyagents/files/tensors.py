"""Tensors in files: written atomically, and checked if somebody else may have written them.

Each must have the name, shape and type that the model expects.
"""

import math
import os
import shutil
from collections.abc import Iterable, Mapping

import torch
from safetensors.torch import save_file
from torch import Tensor

from polyagents.files.atomic import atomic_write, temporary_name


def write_tensors(path: str, tensors: Mapping[str, Tensor], metadata: dict[str, str]) -> None:
    """Write a safetensors file atomically; raises as `atomic_write` does.

    safetensors writes to a temporary file of its own first, whose name would not say which killed process left it; so
    it does that in a folder whose name does.
    """
    folder = temporary_name(path)
    with atomic_write(path) as temporary:
        try:
            os.mkdir(folder)
            save_file(dict(tensors), os.path.join(folder, "tensors"), metadata)
            os.replace(os.path.join(folder, "tensors"), temporary)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def wrong_tensors(own: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> list[str]:
    """List what keeps a model from loading tensors: phrases about its `own` tensors that are missing or differ."""
    wrong = [f"{name} is missing" for name in own.keys() - given.keys()]
    wrong += [f"{name} is unknown" for name in given.keys() - own.keys()]
    return sorted([*wrong, *misfits((name, given[name], own[name]) for name in own.keys() & given.keys())])


def misfits(triples: Iterable[tuple[str, object, Tensor]]) -> list[str]:
    """Describe tensors that are unlike the model's: triples of a name, the file's content, the model's tensor."""
    wrong = []
    for name, given, like in triples:
        if not isinstance(given, Tensor):
            wrong.append(f"{name} is not a tensor")
        elif given.shape != like.shape:
            wrong.append(f"{name} has shape {tuple(given.shape)} instead of {tuple(like.shape)}")
        elif given.dtype != like.dtype:
            wrong.append(f"{name} is {str(given.dtype)[6:]} instead of {str(like.dtype)[6:]}")
        elif given.is_floating_point() and not is_finite(given):
            wrong.append(f"{name} has numbers that are not finite")
    return wrong


def is_finite(given: Tensor) -> bool:
    """Tell whether all numbers are finite, without a second tensor of the size."""
    return given.numel() == 0 or all(math.isfinite(extreme) for extreme in torch.aminmax(given))
