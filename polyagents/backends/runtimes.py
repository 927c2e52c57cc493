"""The runtimes that can compute an encoder in place of torch: what each needs, and what it is asked for."""

import importlib
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, cast

import numpy as np
import torch
from torch import Tensor, nn

from polyagents.errors import InputError


class Graph(Protocol):
    """A graph that a runtime has loaded; several threads may call it at once."""

    def __call__(self, inputs: Mapping[str, np.ndarray], arithmetic: torch.dtype) -> np.ndarray:
        """Compute states [B, T, D] fp32.

        Args:
            inputs: of the backbone, by name.
            arithmetic: what matrix products may be computed in, where the runtime has it.
        """
        ...


class RuntimeModule(Protocol):
    """What a module of ours that knows a runtime has."""

    def write(self, backbone: nn.Module, inputs: Mapping[str, Tensor], path: str, int8: bool) -> None:
        """Trace a backbone with inputs whose every axis that is longer than 1 may have any length; write it."""
        ...

    def open_graph(self, path: str) -> Graph:
        """Load what `write` wrote."""
        ...


@dataclass(frozen=True)
class Runtime:
    """A runtime.

    Attributes:
        name: what `--backend` and `--to` call it; its extra of setup.py; the end of the name of its folder.
        label: what people call it.
        module: ours that knows it.
        endings: of the files that a graph is.
        computes_with: the packages that compute, by the names that Python imports.
        exports_with: those that export.
        has_bf16: whether it computes in bf16 where the machine does.
    """

    name: str
    label: str
    module: str
    endings: tuple[str, ...]
    computes_with: tuple[str, ...]
    exports_with: tuple[str, ...]
    has_bf16: bool

    def require(self, modules: tuple[str, ...]) -> None:
        """Refuse to go on without some packages.

        Raises:
            InputError: one is not installed.
        """
        for module in modules:
            if importlib.util.find_spec(module) is None:
                raise InputError(f"This needs {module}, which is not installed: pip install 'polyagents[{self.name}]'")

    @property
    def own(self) -> RuntimeModule:
        """Our module that knows it, which imports it."""
        return cast("RuntimeModule", importlib.import_module(self.module))


RUNTIMES = {
    "onnx": Runtime(
        "onnx",
        "ONNX Runtime",
        "polyagents.backends.onnx_runtime",
        (".onnx",),
        ("onnxruntime",),
        ("onnxruntime", "onnx", "onnxscript"),
        has_bf16=False,
    ),
    "openvino": Runtime(
        "openvino",
        "OpenVINO",
        "polyagents.backends.openvino_runtime",
        (".xml", ".bin"),
        ("openvino",),
        ("openvino", "onnx", "onnxscript"),
        has_bf16=True,
    ),
}


def find_runtime(name: str) -> Runtime:
    """The runtime of a name.

    Raises:
        InputError: there is none.
    """
    if name not in RUNTIMES:
        raise InputError(f"There is no backend {name}; give torch, {' or '.join(RUNTIMES)}.")
    return RUNTIMES[name]
