"""A trained model on disk: one safetensors file with weights and, to resume a run, the optimiser's state.

Weights have the names that torch gives them. Everything that is not a tensor is JSON in the file's metadata; tensors of
the optimiser are named by their path in there. Writes are atomic, and reading a file runs no code.
"""

import json
import os
from typing import Any

import torch
from safetensors import safe_open

from polyagents.errors import InputError
from polyagents.files.json_files import parse_json
from polyagents.files.lines import opened
from polyagents.files.tensors import write_tensors

FORMAT = "polyagents-model-1"


def write(path: str, state: dict[str, Any]) -> None:
    """Write a state: weights under "model"; numbers, texts, lists, dicts and tensors under other names.

    Raises:
        InputError: the disk is full, or the file may not be written.
    """
    weights, same = without_copies(state["model"])
    tensors = dict(weights)
    rest = {name: extract_tensors(value, name, tensors) for name, value in state.items() if name != "model"}
    metadata = {"format": FORMAT, "same": json.dumps(same), "state": json.dumps(rest)}
    write_tensors(path, {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, metadata)


def read(path: str) -> dict[str, Any]:
    """Read a state that `write` wrote, to the CPU; what was a tuple is a list.

    Raises:
        OSError: there is no such file, or it cannot be read.
        safetensors.SafetensorError, ValueError: the file is damaged, or no model file of polyagents.
    """
    with opened(path) as held:
        # safetensors opens a file twice, for the header and for the weights: halves of two files would be wrong
        # weights. If a run replaces the file, this name still means the open one; Windows replaces no open file.
        descriptor = f"/dev/fd/{held.fileno()}"
        with safe_open(descriptor if os.path.exists(descriptor) else held.name, "pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != FORMAT:
                raise InputError(f"{path} is not a model file of polyagents ({FORMAT}).")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  it is not a dict
    try:
        state = {name: restore_tensors(value, tensors) for name, value in parse_json(metadata["state"]).items()}
        same = parse_json(metadata["same"])
        return state | {"model": tensors | {name: tensors[other] for name, other in same.items()}}
    except (AttributeError, KeyError, RecursionError, TypeError) as error:
        raise ValueError(f"{path} is damaged") from error


def without_copies(weights: dict[str, torch.Tensor]) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """Split weights into stored ones, and other names of the same (a shared encoder has two)."""
    first: dict[Any, str] = {}
    kept, same = {}, {}
    for name, weight in weights.items():
        place = (weight.data_ptr(), weight.shape, weight.stride())
        if weight.numel() and place in first:
            same[name] = first[place]
        else:
            kept[name] = weight
            first[place] = name
    return kept, same


def extract_tensors(value: Any, path: str, tensors: dict[str, torch.Tensor]) -> Any:
    """Replace the tensors of a nested value by their paths in the state, for JSON, and put them into `tensors`.

    A dict becomes pairs, since its keys may be numbers.
    """
    if isinstance(value, torch.Tensor):
        tensors[path] = value
        return {"tensor": path}
    if isinstance(value, dict):
        return {"pairs": [[key, extract_tensors(item, f"{path}/{key}", tensors)] for key, item in value.items()]}
    if isinstance(value, (list, tuple)):
        return [extract_tensors(item, f"{path}/{i}", tensors) for i, item in enumerate(value)]
    return value


def restore_tensors(value: Any, tensors: dict[str, torch.Tensor]) -> Any:
    """Restore what `extract_tensors` was given; the tensors that it names are removed from `tensors`."""
    if isinstance(value, list):
        return [restore_tensors(item, tensors) for item in value]
    if isinstance(value, dict):
        if "tensor" in value:
            return tensors.pop(value["tensor"])
        return {key: restore_tensors(item, tensors) for key, item in value["pairs"]}
    return value
