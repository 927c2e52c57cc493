"""The machine that computes: its name, and the arithmetic in which it is fast."""

import contextlib
import functools
import platform

import torch


@functools.cache
def has_bf16() -> bool:
    """Tell whether this CPU multiplies in bf16; if not, torch converts, which is slower than fp32."""
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


@functools.cache
def has_int8() -> bool:
    """Tell whether this CPU multiplies in int8."""
    return bool(torch.cpu._is_vnni_supported())


def machine() -> str:
    """Describe this machine, for a figure that was measured on it."""
    names = [platform.processor() or platform.machine()]
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as file:  # on Linux only
        names = [line.split(":")[1].strip() for line in file if line.startswith("model name")] or names
    special = [name for name, there in (("AMX", torch.cpu._is_amx_tile_supported()),
                                        ("AVX-512 bf16", torch.cpu._is_avx512_bf16_supported()),
                                        ("VNNI", torch.cpu._is_vnni_supported())) if there]  # fmt: skip
    threads, version = torch.get_num_threads(), torch.__version__
    return f"{names[0]}, {threads} threads, {' '.join(special)}; torch {version}, Python {platform.python_version()}"


def training_machine() -> str:
    """Name the machine that trains: the GPU, if there is one."""
    return torch.cuda.get_device_name() if torch.cuda.is_available() else machine()
