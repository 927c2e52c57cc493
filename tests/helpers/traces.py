"""Traces of backbones, kept for a whole test run: both runtimes, in fp32 as in int8, begin with the same file."""

import hashlib
import shutil

from polyagents.backends.onnx_runtime import trace


def digest_of(backbone, inputs):
    """What a trace depends on: the class, configuration and weights of a backbone, and the inputs."""
    found = hashlib.sha256(f"{backbone} {getattr(backbone, 'backbone', backbone).config}".encode())
    for name, tensor in [*backbone.state_dict().items(), *sorted(inputs.items())]:
        found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)} ".encode())
        found.update(tensor.contiguous().numpy().tobytes())
    return found.hexdigest()


def remembered(once):
    """`trace`, which copies what it has written before; `once` is the fixture of this name."""

    def trace_or_copy(backbone, inputs, path):
        shutil.copy(once(f"traces/{digest_of(backbone, inputs)}", lambda file: trace(backbone, inputs, file)), path)

    return trace_or_copy
