"""ONNX Runtime: computes an encoder from a file in the ONNX format, in fp32, or in int8 if it was exported so."""

import os
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

from polyagents.backends.onnx_format import refuse_other_files, silent, trace
from polyagents.threads import WAITING


def write(backbone: nn.Module, inputs: Mapping[str, Tensor], path: str, int8: bool) -> None:
    """Trace a backbone, and write it as one file; arguments and errors are those of `trace`.

    With int8, weights of matrix products have 8 bits, with a scale for each column, and their other operand is rounded
    to 8 bits when it is known, with a scale for each product. No texts are needed to choose scales.
    """
    if not int8:
        trace(backbone, inputs, path)
        return
    from onnxruntime.quantization import QuantType, quantize_dynamic

    trace(backbone, inputs, f"{path}.fp32")
    products = ["MatMul", "Gemm"]
    with silent():
        quantize_dynamic(
            f"{path}.fp32", path, per_channel=True, weight_type=QuantType.QInt8, op_types_to_quantize=products
        )


class OnnxGraph:
    """A graph in ONNX Runtime, on as many threads as torch uses."""

    def __init__(self, path: str):
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.log_severity_level = 4  # fatal; errors are raised as well
        # Threads that wait by spinning slow down torch's, which search.
        spins = os.environ.get(WAITING[0], "").upper() == "ACTIVE"
        options.add_session_config_entry("session.intra_op.allow_spinning", "1" if spins else "0")
        self.session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self.names = [given.name for given in self.session.get_inputs()]

    def __call__(self, inputs: Mapping[str, np.ndarray], arithmetic: torch.dtype) -> np.ndarray:
        """Compute states [B, T, D] fp32; the arithmetic is ignored, as products on a CPU are in fp32 or int8."""
        states: np.ndarray = self.session.run(None, {name: inputs[name] for name in self.names})[0]
        return states


def open_graph(path: str) -> OnnxGraph:
    """Load a file that `write` wrote; a ValueError says if it takes numbers from another file, or is cut off."""
    refuse_other_files(np.memmap(path, np.uint8, "r").data, "model")
    return OnnxGraph(path)
