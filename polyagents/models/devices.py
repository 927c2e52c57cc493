"""Move tensors to the device that computes. Reading one number back would wait for all of a GPU's work."""

import torch
from torch import Tensor


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Move a tensor; from the host to a GPU asynchronously, from pinned memory.

    Args:
        tensor: of any shape.
        device: where it is needed.

    Returns:
        The same tensor if it is there already.
    """
    if device.type == "cuda" and tensor.device.type == "cpu":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)
