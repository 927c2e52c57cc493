"""ONNX Runtime: an encoder as a file in the ONNX format, computed in fp32, or in int8 where it was exported so."""

import contextlib
import io
import os
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from polyagents.errors import InputError
from polyagents.threads import WAITING

LARGEST = 2**31 - 2**24  # bytes of weights; a file of the format holds 2 GiB


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
    size = sum(weight.nbytes for weight in backbone.parameters())
    if size > LARGEST:
        raise InputError(f"A file of ONNX holds 2 GB, and this backbone has {size / 1e9:.1f}; use --to openvino.")
    any_length = {
        name: {axis: torch.export.Dim.DYNAMIC for axis, length in enumerate(value.shape) if length > 1}
        for name, value in inputs.items()
    }
    # What is computed on the way is called as the arguments are.
    shapes = {name: any_length.get(name) for name in ("input_ids", "attention_mask", *inputs)}
    plain = f"{path}.fp32" if int8 else path
    with silent(), torch.no_grad():
        torch.onnx.export(
            backbone, (), plain, kwargs=dict(inputs), dynamic_shapes=shapes, external_data=False, verbose=False
        )
        if int8:
            quantize(plain, path)
            os.remove(plain)


def quantize(plain: str, path: str) -> None:
    """Write the same graph with weights of 8 bits."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantize_dynamic(
        plain, path, per_channel=True, weight_type=QuantType.QInt8, op_types_to_quantize=["MatMul", "Gemm"]
    )


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """Leave out what exporters print and warn about on the way."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


class OnnxGraph:
    """A graph in ONNX Runtime, on as many threads as torch has."""

    def __init__(self, path: str):
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.log_severity_level = 3  # errors
        # Threads that wait by spinning keep torch's, which search, from working.
        waits = os.environ.get(WAITING[0], "").upper() != "ACTIVE"
        options.add_session_config_entry("session.intra_op.allow_spinning", "0" if waits else "1")
        self.session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self.names = [given.name for given in self.session.get_inputs()]

    def __call__(self, inputs: Mapping[str, np.ndarray], arithmetic: torch.dtype) -> np.ndarray:
        """Compute states [B, T, D]; its products on a CPU are those of fp32 or int8, whatever may be."""
        states: np.ndarray = self.session.run(None, {name: inputs[name] for name in self.names})[0]
        return states


def open_graph(path: str) -> Any:
    """Load what `write` wrote."""
    return OnnxGraph(path)
