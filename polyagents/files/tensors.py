"""Tensors in files: written whole or not at all, and, where somebody else may have written them, checked.

Each must be what the model that takes them over says.
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
    """Write a safetensors file, whole or not at all.

    safetensors writes to a name of its own first, of which nobody would know whose it is once the process was killed;
    so it does that in a folder of which everybody does.

    Raises:
        InputError: the disk is full, or not ours to write to.
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
    """What is wrong with a file's weights, a phrase each; nothing where a model can take them over.

    Args:
        own: the model's, by name.
        given: the file's.
    """
    wrong = [f"{name} is missing" for name in own.keys() - given.keys()]
    wrong += [f"{name} is unknown" for name in given.keys() - own.keys()]
    return sorted([*wrong, *misfits((name, given[name], own[name]) for name in own.keys() & given.keys())])


def misfits(triples: Iterable[tuple[str, object, Tensor]]) -> list[str]:
    """What is wrong with tensors that stand for others: names, what a file holds, and what it must be like."""
    wrong = []
    for name, given, like in triples:
        if not isinstance(given, Tensor):
            wrong.append(f"{name} is no tensor")
        elif given.shape != like.shape:
            wrong.append(f"{name} has shape {tuple(given.shape)} instead of {tuple(like.shape)}")
        elif given.dtype != like.dtype:
            wrong.append(f"{name} is {str(given.dtype)[6:]} instead of {str(like.dtype)[6:]}")
        elif given.is_floating_point() and not is_finite(given):
            wrong.append(f"{name} has numbers that are not finite")
    return wrong


def is_finite(given: Tensor) -> bool:
    """Whether all numbers of a tensor are finite, without a second tensor of its size (`torch.isfinite` makes two)."""
    return given.numel() == 0 or all(math.isfinite(extreme) for extreme in torch.aminmax(given))
