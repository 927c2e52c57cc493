"""ONNX: writes a backbone in this format, which both runtimes read, and computes it with ONNX Runtime on a CPU.

It computes in fp32, or in int8 if the backbone was exported so.
"""

import contextlib
import io
import logging
import os
import warnings
from collections.abc import Iterator, Mapping

import numpy as np
import torch
from torch import Tensor, nn

from polyagents.errors import InputError
from polyagents.threads import WAITING

LARGEST = 2**31 - 2**24  # bytes of weights; a file of the format can have 2 GiB
# Messages of the format (onnx.proto) in which a tensor may be: the field's number, and what it holds.
MESSAGES = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "function": {7: "node", 11: "attribute"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {},
}
EXTERNAL_DATA, DATA_LOCATION = 13, 14  # fields of a tensor that say in which file its numbers are


def refuse_other_files(content: memoryview, kind: str) -> None:
    """Refuse, with a ValueError, a message that is damaged, or takes numbers from files that no digest covers."""
    place = 0
    while place < len(content):
        # Protocol buffers: a tag, which holds a field's number and how its value is encoded, then the value: a number
        # (0), eight bytes (1), four bytes (5), or a size and that many bytes (2): a text, numbers, or another message.
        tag, place = number_at(content, place)
        field, wire = tag >> 3, tag & 7
        number = 0
        if wire == 0:
            number, place = number_at(content, place)
        if kind == "tensor" and (field == EXTERNAL_DATA or (field == DATA_LOCATION and number)):
            raise ValueError("it takes numbers from a file that its manifest does not name")
        if wire == 0:
            continue
        size, place = number_at(content, place) if wire == 2 else ({1: 8, 5: 4}.get(wire, len(content)), place)
        if place + size > len(content):
            raise ValueError("it is cut off, or not in the ONNX format")
        if wire == 2 and field in MESSAGES[kind]:
            refuse_other_files(content[place : place + size], MESSAGES[kind][field])
        place += size


def number_at(content: memoryview, place: int) -> tuple[int, int]:
    """Read a number, 7 bits a byte, and return it with the place after it; a ValueError says if there is none."""
    found = shift = 0
    for byte in content[place : place + 10]:
        found |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return found, place + shift // 7
    raise ValueError("it is cut off, or not in the ONNX format")


def trace(backbone: nn.Module, inputs: Mapping[str, Tensor], path: str) -> None:
    """Trace a backbone with one call's inputs, and write it as one file; an axis longer than 1 may have any length.

    An InputError says if the backbone is too large for the format.
    """
    size = sum(weight.nbytes for weight in backbone.parameters())
    if size > LARGEST:
        raise InputError(
            f"An export holds 2 GB of weights at most, and this backbone has {size / 1e9:.1f}; use --backend torch, "
            f"with --precision bf16 if the machine supports it."
        )
    any_length = {
        name: {axis: torch.export.Dim.DYNAMIC for axis, length in enumerate(value.shape) if length > 1}
        for name, value in inputs.items()
    }
    with silent(), torch.no_grad():
        torch.onnx.export(
            backbone, (), path, kwargs=dict(inputs), dynamic_shapes=any_length, external_data=False, verbose=False
        )


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """Suppress what exporters print, log and warn about."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


# ---- ONNX Runtime ----------------------------------------------------------------------------------------------------


def write(backbone: nn.Module, inputs: Mapping[str, Tensor], path: str, int8: bool) -> None:
    """Trace a backbone, and write it as one file; for arguments and errors see `trace`.

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
