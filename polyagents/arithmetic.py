"""Which arithmetic this machine is fast in."""

import functools

import torch


@functools.cache
def has_bf16() -> bool:
    """Whether this CPU multiplies in bf16; where it does not, torch converts, slower than fp32."""
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


@functools.cache
def has_int8() -> bool:
    """Whether this CPU multiplies in int8."""
    return bool(torch.cpu._is_vnni_supported())
