"""ONNX Runtime: an encoder as a file in the ONNX format, computed in fp32, or in int8 where it was exported so."""

import os
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

from polyagents.backends.onnx_format import silent, trace
from polyagents.threads import WAITING


def write(backbone: nn.Module, inputs: Mapping[str, Tensor], path: str, int8: bool) -> None:
    """Trace a backbone, and write it as one file.

    int8 means: weights of matrix products have 8 bits, with a scale for each column, and what they are multiplied with
    gets 8 bits when it is known, with a scale for each product. No texts are needed to choose scales.

    Args:
        backbone: a function of tensors.
        inputs: of one call, by name. An axis longer than 1 may have any length afterwards.
        path: of the file.
        int8: whether weights get 8 bits.

    Raises:
        InputError: it is too large.
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
    """A graph in ONNX Runtime, on as many threads as torch has."""

    def __init__(self, path: str):
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.log_severity_level = 4  # fatal; errors are raised as well
        # Threads that wait by spinning keep torch's, which search, from working.
        spins = os.environ.get(WAITING[0], "").upper() == "ACTIVE"
        options.add_session_config_entry("session.intra_op.allow_spinning", "1" if spins else "0")
        self.session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self.names = [given.name for given in self.session.get_inputs()]

    def __call__(self, inputs: Mapping[str, np.ndarray], arithmetic: torch.dtype) -> np.ndarray:
        """Compute states [B, T, D]; products on a CPU are those of fp32 or int8, whatever else may be."""
        states: np.ndarray = self.session.run(None, {name: inputs[name] for name in self.names})[0]
        return states


def open_graph(path: str) -> OnnxGraph:
    """Load what `write` wrote."""
    return OnnxGraph(path)
