"""OpenVINO: computes an encoder from an .xml and a .bin file, in fp32 or bf16, or with weights of 8 bits."""

import os
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from polyagents.backends.onnx_runtime import trace

HEAD = b'<?xml version="1.0"?>\n<net '
PRECISIONS = {torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16"}


def write(backbone: nn.Module, inputs: Mapping[str, Tensor], path: str, int8: bool) -> None:
    """Trace a backbone, and write it as an .xml file at `path` and a .bin file next to it; int8: weights of 8 bits."""
    import openvino

    traced = f"{path}.onnx"
    trace(backbone, inputs, traced)
    model = openvino.Core().read_model(traced)  # openvino.convert_model reports each use to its makers
    if int8:
        keep_weights_in_8_bits(model)
    openvino.save_model(model, path, compress_to_fp16=False)


def keep_weights_in_8_bits(model: Any) -> None:
    """Convert the weights of matrix products to 8 bits, with a scale for each column.

    That is what OpenVINO's own package for it, nncf, does without texts, and the runtime recognises its form: on a CPU
    it also rounds their other operand to 8 bits, with a scale for every 32 numbers.
    """
    from openvino import opset13 as operations

    for product in (node for node in model.get_ordered_ops() if node.get_type_name() == "MatMul"):
        constant = product.input_value(1).get_node()
        if constant.get_type_name() != "Constant" or constant.data.ndim != 2:
            continue
        weights = np.array(constant.data, np.float32)
        summed = 1 if product.get_attributes()["transpose_b"] else 0
        scale = np.abs(weights).max(summed, keepdims=True) / 127
        scale[scale == 0] = 1
        rounded = operations.convert(operations.constant(np.round(weights / scale).astype(np.int8)), "f32")
        product.input(1).replace_source_output(operations.multiply(rounded, operations.constant(scale)).output(0))
    model.validate_nodes_and_infer_types()


class OpenvinoGraph:
    """A graph in OpenVINO, on as many threads as torch uses, compiled once for each arithmetic that is used."""

    def __init__(self, path: str):
        import openvino

        self.core = openvino.Core()
        self.model = self.core.read_model(path, os.path.splitext(path)[0] + ".bin")
        self.compiled: dict[torch.dtype, Any] = {}
        self.requests = threading.local()  # a request computes for one thread at a time

    def __call__(self, inputs: Mapping[str, np.ndarray], arithmetic: torch.dtype) -> np.ndarray:
        """Compute states [B, T, D] fp32, with products in fp32 or bf16."""
        own: dict[Any, tuple[Any, list[str]]] = self.requests.__dict__
        if arithmetic not in own:
            if arithmetic not in self.compiled:
                settings = {
                    "PERFORMANCE_HINT": "LATENCY",
                    "INFERENCE_NUM_THREADS": torch.get_num_threads(),
                    "INFERENCE_PRECISION_HINT": PRECISIONS[arithmetic],  # by default bf16, if the machine has it
                }
                self.compiled[arithmetic] = self.core.compile_model(self.model, "CPU", settings)
            compiled = self.compiled[arithmetic]
            own[arithmetic] = compiled.create_infer_request(), [port.any_name for port in compiled.inputs]
        request, names = own[arithmetic]
        states: np.ndarray = request.infer({name: inputs[name] for name in names}, share_inputs=True)[0]
        return states


def open_graph(path: str) -> OpenvinoGraph:
    """Load the files that `write` wrote; a ValueError says if the .xml has another encoding, or a document type."""
    with open(path, "rb") as file:
        content = file.read()
    if not content.startswith(HEAD) or b"<!" in content:  # a document type may name other files
        raise ValueError("its .xml file was not written by OpenVINO")
    return OpenvinoGraph(path)
