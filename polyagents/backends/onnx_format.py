"""Writes a backbone as a file in the ONNX format, which both runtimes read."""

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from polyagents.errors import InputError

LARGEST = 2**31 - 2**24  # bytes of weights; a file of the format can have 2 GiB


def trace(backbone: nn.Module, inputs: Mapping[str, Tensor], path: str) -> None:
    """Trace a backbone, and write it as one file.

    Args:
        backbone: a function of tensors.
        inputs: those of one call, by name. An axis longer than 1 may have any length afterwards.
        path: the file.

    Raises:
        InputError: the backbone is too large for the format.
    """
    size = sum(weight.nbytes for weight in backbone.parameters())
    if size > LARGEST:
        raise InputError(
            f"An export holds 2 GB of weights at most, and this backbone has {size / 1e9:.1f}; use --backend torch, "
            f"with --precision bf16 where the machine has it."
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
