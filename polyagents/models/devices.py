"""Move tensors to the device that computes. Reading one number back would wait for all that a GPU has to do."""

import torch
from torch import Tensor


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Move a tensor; from the host to a GPU without waiting, which takes memory that the system cannot move away.

    Args:
        tensor: of any shape.
        device: where it is needed.

    Returns:
        The same tensor where it is there already.
    """
    if device.type == "cuda" and tensor.device.type == "cpu":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)
