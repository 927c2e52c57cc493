"""Low-rank adapters (LoRA, Hu et al. 2021, arXiv 2106.09685): a backbone's weights stay, and small ones learn beside.

A model file holds what was learnt, and a digest of the backbone's weights: they are read from `--backbone` again.
"""

import copy
import hashlib
import logging
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from polyagents.errors import InputError

BACKBONE, ADAPTER, DIGEST = "backbone.", ".lora_", "backbone_digest"  # of the names of weights


def add_adapters(backbone: nn.Module, rank: int) -> Tensor:
    """Put adapters beside all linear layers, and freeze everything else.

    Returns:
        The digest of the weights that they stand beside, [32] uint8.

    Raises:
        InputError: peft is not installed.
    """
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)  # peft imports it, and it tells of kernels that it lacks
    try:
        import peft
    except ImportError as error:
        raise InputError("--lora-rank needs peft: pip install 'polyagents[lora]'.") from error
    weights = backbone.state_dict()
    digest = hashlib.sha256()
    for name in sorted(weights):
        digest.update(name.encode())
        digest.update(weights[name].detach().cpu().reshape(-1).view(torch.uint8).numpy())
    # The outputs of the adapters count twice, as in the library's examples and most of what is published.
    config = peft.LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear")
    peft.inject_adapter_in_model(config, backbone)
    return torch.frombuffer(bytearray(digest.digest()), dtype=torch.uint8)


def is_adapted(module: nn.Module) -> bool:
    """Whether a model has adapters."""
    return any(name.endswith(DIGEST) for name, _ in module.named_buffers())


def learnt(module: nn.Module) -> dict[str, Any]:
    """The weights of a model that its file holds: all of them, or without those that adapters stand beside."""
    weights = module.state_dict()
    return without_base(weights) if is_adapted(module) else weights


def without_base(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights without those of backbones that adapters stand beside."""
    return {name: weight for name, weight in weights.items() if BACKBONE not in name or ADAPTER in name}


def completed(module: nn.Module, weights: Mapping[str, Tensor], file: str, backbone: str) -> Mapping[str, Tensor]:
    """The weights of a file, with those that it does not hold taken from the model, which has them from its backbone.

    Args:
        module: the model.
        weights: what its file holds.
        file: its path.
        backbone: the name that its backbone was loaded from.

    Raises:
        InputError: the adapters were learnt beside other weights.
    """
    if not is_adapted(module):
        return weights
    own = module.state_dict()
    for name, digest in own.items():
        if name.endswith(DIGEST) and name in weights and not torch.equal(digest.cpu(), weights[name]):
            raise InputError(
                f"{file} holds adapters that were learnt beside other weights than {backbone} has now; give the "
                f"--backbone that they were trained with."
            )
    base = own.keys() - without_base(own).keys()
    return dict(weights) | {name: own[name] for name in base}


def take_over(module: nn.Module, weights: Mapping[str, Tensor], assign: bool) -> None:
    """Load a model's weights; those that adapters stand beside are there already, and may be of kinds of their own.

    Args:
        module: the model.
        weights: all of them, or those that it has learnt.
        assign: whether they become the model's own, or are copied.

    Raises:
        RuntimeError: some are missing, unknown or of another shape.
    """
    adapted = is_adapted(module)
    module.load_state_dict(without_base(weights) if adapted else weights, strict=not adapted, assign=assign)


def merge(module: nn.Module) -> None:
    """Add the adapters of all encoders of a model to the weights that they stand beside, and remove them.

    Raises:
        ValueError: the sum is no number.
    """
    from peft.tuners.lora import LoraLayer

    for parent in list(module.modules()):
        for name, layer in list(parent.named_children()):
            if isinstance(layer, LoraLayer):
                layer.base_layer = copy.deepcopy(layer.base_layer)  # two encoders share it
                layer.merge(safe_merge=True)
                setattr(parent, name, layer.get_base_layer())
        if getattr(parent, DIGEST, None) is not None:
            setattr(parent, DIGEST, None)
