"""Low-rank adapters (LoRA, Hu et al. 2021, arXiv 2106.09685): small trained weights added to a frozen backbone.

A model file holds what was trained, and a digest of the backbone's weights: those are read from `--backbone` again.
"""

import copy
import hashlib
import logging
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from polyagents.errors import InputError

BACKBONE, ADAPTER, DIGEST = "backbone.", ".lora_", "backbone_digest"  # parts of the names of weights


def add_adapters(backbone: nn.Module, rank: int) -> Tensor:
    """Add an adapter to every linear layer of a backbone, in place, and freeze all other weights.

    Returns:
        The digest of the weights that the adapters are added to, [32] uint8.

    Raises:
        InputError: peft is not installed.
    """
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)  # peft imports it, and it warns of missing kernels
    try:
        import peft
    except ImportError as error:
        raise InputError("--lora-rank needs peft: pip install 'polyagents[lora]'.") from error
    weights = backbone.state_dict()
    digest = hashlib.sha256()
    for name in sorted(weights):
        digest.update(name.encode())
        digest.update(weights[name].detach().cpu().reshape(-1).view(torch.uint8).numpy())
    # The outputs of the adapters are doubled, as in the library's examples and in most publications.
    config = peft.LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear")
    peft.inject_adapter_in_model(config, backbone)
    return torch.frombuffer(bytearray(digest.digest()), dtype=torch.uint8)


def is_adapted(module: nn.Module) -> bool:
    """Tell whether a model has adapters."""
    return any(name.endswith(DIGEST) for name, _ in module.named_buffers())


def trained_weights(module: nn.Module) -> dict[str, Any]:
    """Return the weights that a model's file holds: all of them, or only the learning ones if there are adapters."""
    weights = module.state_dict()
    return without_frozen_weights(weights) if is_adapted(module) else weights


def without_frozen_weights(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Drop the frozen weights of backbones that have adapters."""
    return {name: weight for name, weight in weights.items() if BACKBONE not in name or ADAPTER in name}


def with_frozen_weights(
    module: nn.Module, weights: Mapping[str, Tensor], file: str, backbone: str
) -> Mapping[str, Tensor]:
    """Complete a file's weights by the backbone's, which the model has; refuse adapters for another backbone."""
    if not is_adapted(module):
        return weights
    own = module.state_dict()
    for name, digest in own.items():
        if name.endswith(DIGEST) and name in weights and not torch.equal(digest.cpu(), weights[name]):
            raise InputError(
                f"{file} contains adapters that were trained with other weights than {backbone} has now; give the "
                f"--backbone that they were trained with."
            )
    base = own.keys() - without_frozen_weights(own).keys()
    return dict(weights) | {name: own[name] for name in base}


def load_weights(module: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Load a model's weights; a backbone with adapters has its own already, perhaps quantised.

    On a CPU the tensors become the model's own, so that no weight is in memory twice.

    Raises:
        RuntimeError: some weights are missing, unknown or of another shape.
    """
    adapted, assign = is_adapted(module), next(module.parameters()).device.type == "cpu"
    module.load_state_dict(without_frozen_weights(weights) if adapted else weights, strict=not adapted, assign=assign)


def merge(module: nn.Module) -> None:
    """Add all adapters to the weights of their layers, and remove them; a ValueError says if a sum is not finite."""
    from peft.tuners.lora import LoraLayer

    for parent in list(module.modules()):
        for name, layer in list(parent.named_children()):
            if isinstance(layer, LoraLayer):
                layer.base_layer = copy.deepcopy(layer.base_layer)  # two encoders share it
                layer.merge(safe_merge=True)
                setattr(parent, name, layer.get_base_layer())
        if getattr(parent, DIGEST, None) is not None:
            setattr(parent, DIGEST, None)
