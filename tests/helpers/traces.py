"""Traces of backbones, kept for a whole test run: of each structure one, into which other weights are put."""

import hashlib

import onnx
import torch
from onnx import numpy_helper

from polyagents.backends.onnx_runtime import trace


def digest_of(backbone, inputs):
    """What the graph of a trace depends on: the class and configuration of a backbone, the names and axes of inputs."""
    found = f"{backbone} {getattr(backbone, 'backbone', backbone).config}"
    for name, tensor in sorted(inputs.items()):
        found += f" {name} {tensor.dtype} {[length > 1 for length in tensor.shape]}"
    return hashlib.sha256(found.encode()).hexdigest()


def with_weights(graph, old, new):
    """Put other weights into a graph that has the old ones, whose matrices may be transposed and have lost their names.

    A weight that was not found would be seen: the scores are compared with torch's.
    """
    names = {weight.numpy().tobytes(): (name, False) for name, weight in old.items()}
    names |= {weight.T.contiguous().numpy().tobytes(): (name, True) for name, weight in old.items() if weight.ndim == 2}
    for tensor in graph.initializer:
        values = numpy_helper.to_array(tensor)
        name, is_turned = (tensor.name, False) if tensor.name in old else names.get(values.tobytes(), (None, False))
        if name is not None:
            weight = new[name].T if is_turned else new[name]
            tensor.CopyFrom(numpy_helper.from_array(weight.contiguous().numpy(), tensor.name))


def remembered(once):
    """`trace`, which takes the graph that it has written before; `once` is the fixture of this name."""

    def trace_or_copy(backbone, inputs, path):
        weights = {name: weight.detach() for name, weight in backbone.state_dict().items()}

        def make(file):
            trace(backbone, inputs, file)
            torch.save(weights, f"{file}.weights")

        file = once(f"traces/{digest_of(backbone, inputs)}", make)
        model = onnx.load(file)
        with_weights(model.graph, torch.load(f"{file}.weights"), weights)
        onnx.save(model, path)

    return trace_or_copy
