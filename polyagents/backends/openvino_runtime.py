"""OpenVINO: an encoder as an .xml and a .bin file, computed in fp32 or bf16, with weights of 8 bits if so exported."""

import os
import threading
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

PRECISIONS = {torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16"}


def write(backbone: nn.Module, inputs: Mapping[str, Tensor], path: str, int8: bool) -> None:
    """Trace a backbone, and write it as two files.

    Args:
        backbone: a function of tensors.
        inputs: of one call, by name. An axis longer than 1 may have any length afterwards.
        path: of the .xml file; the .bin file lies beside it.
        int8: whether weights get 8 bits.
    """
    import openvino

    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # of torch's tracer, that Python's branches are not traced
        model = openvino.convert_model(backbone, example_input=dict(inputs))
    shapes = {name: [-1 if length > 1 else length for length in value.shape] for name, value in inputs.items()}
    known = {name for port in model.inputs for name in port.names}
    model.reshape({name: openvino.PartialShape(shape) for name, shape in shapes.items() if name in known})
    if int8:
        model = with_int8_weights(model)
    openvino.save_model(model, path, compress_to_fp16=False)


def with_int8_weights(model: Any) -> Any:
    """The same graph with weights of 8 bits, a scale for each row; no texts are needed to choose scales."""
    import nncf

    return nncf.compress_weights(model, mode=nncf.CompressWeightsMode.INT8_SYM)


class OpenvinoGraph:
    """A graph in OpenVINO, on as many threads as torch has; compiled once for each arithmetic that is asked for."""

    def __init__(self, path: str):
        import openvino

        self.core = openvino.Core()
        self.model = self.core.read_model(path, os.path.splitext(path)[0] + ".bin")
        self.compiled: dict[torch.dtype, Any] = {}
        self.requests = threading.local()  # one computes for one thread at a time

    def __call__(self, inputs: Mapping[str, np.ndarray], arithmetic: torch.dtype) -> np.ndarray:
        """Compute states [B, T, D] in an arithmetic."""
        request, names = self._request(arithmetic)
        found = request.infer({name: inputs[name] for name in names}, share_inputs=True)
        states: np.ndarray = found[0]
        return states

    def _request(self, arithmetic: torch.dtype) -> tuple[Any, list[str]]:
        """What computes for this thread, and the inputs that it takes."""
        own: dict[torch.dtype, tuple[Any, list[str]]] = vars(self.requests)
        if arithmetic not in own:
            if arithmetic not in self.compiled:
                self.compiled[arithmetic] = self._compile(PRECISIONS[arithmetic])
            compiled = self.compiled[arithmetic]
            own[arithmetic] = compiled.create_infer_request(), [port.any_name for port in compiled.inputs]
        return own[arithmetic]

    def _compile(self, precision: str) -> Any:
        settings = {
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_NUM_THREADS": torch.get_num_threads(),
            "INFERENCE_PRECISION_HINT": precision,  # by default bf16, where the machine has it
        }
        return self.core.compile_model(self.model, "CPU", settings)


def open_graph(path: str) -> OpenvinoGraph:
    """Load what `write` wrote."""
    return OpenvinoGraph(path)
