"""The runtimes that can compute an encoder instead of torch, and the interface of our modules for them."""

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from polyagents.backends import onnx_runtime, openvino_runtime
from polyagents.errors import InputError

TORCH = "torch"  # the value of `--backend` that is not a runtime of this table


class Graph(Protocol):
    """A graph that a runtime has loaded; several threads may call it at the same time."""

    def __call__(self, inputs: Mapping[str, np.ndarray], arithmetic: torch.dtype) -> np.ndarray:
        """Compute states [B, T, D] fp32, with products in the given arithmetic if the runtime has it."""
        ...


class RuntimeModule(Protocol):
    """The interface of our modules that know a runtime."""

    def write(self, backbone: nn.Module, inputs: Mapping[str, Tensor], path: str, int8: bool) -> None:
        """Trace a backbone with the inputs of one call, and write it at `path` (its first file).

        An axis longer than 1 may have any length afterwards; with int8, weights get 8 bits.
        """
        ...

    def open_graph(self, path: str) -> Graph:
        """Load the files that `write` wrote."""
        ...


@dataclass(frozen=True)
class Runtime:
    """A runtime.

    Attributes:
        name: the value of `--backend` and `--to`; the name of its extra in setup.py; the ending of its folder.
        own: our module that knows it.
        endings: the endings of a graph's files.
        package: what computes, by the name that Python imports.
        has_bf16: whether it computes in bf16 if the machine does.
    """

    name: str
    label: str
    own: RuntimeModule
    endings: tuple[str, ...]
    package: str
    has_bf16: bool

    def require(self, *others: str) -> None:
        """Refuse, with an InputError, to continue without its package and some others."""
        for module in (self.package, *others):
            if importlib.util.find_spec(module) is None:
                raise InputError(f"This needs {module}, which is not installed: pip install 'polyagents[{self.name}]'")


EXPORTS_WITH = ("onnx", "onnxscript")  # the packages that an export needs besides
RUNTIMES = {
    "onnx": Runtime("onnx", "ONNX Runtime", onnx_runtime, (".onnx",), "onnxruntime", has_bf16=False),
    "openvino": Runtime("openvino", "OpenVINO", openvino_runtime, (".xml", ".bin"), "openvino", has_bf16=True),
}


def find_runtime(name: str) -> Runtime:
    """Return the runtime of a name; an InputError says if there is none."""
    if name not in RUNTIMES:
        raise InputError(f"There is no backend {name}; give auto, torch, {' or '.join(RUNTIMES)}.")
    return RUNTIMES[name]
