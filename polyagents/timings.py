"""The machine that computes: its name, its arithmetic, and how long it takes, measured once and kept in a file.

No flag of a processor says it. A Xeon with AVX512_BF16 and without AMX multiplies in bf16 at 137 GFLOP/s and in fp32 at
251; an AMD EPYC with the same flag is 2.3 times as fast in bf16 as in fp32.
"""

import contextlib
import functools
import json
import logging
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping

import filelock
import torch

from polyagents.console import number_of
from polyagents.errors import InputError
from polyagents.files.atomic import write_text
from polyagents.files.json_files import fits, read_json

FOLDER = "POLYAGENTS_CACHE"  # the environment variable with the folder of the file
ROUNDS = 7  # of which the median is kept
TOKENS = 1_024  # of a layer that is measured
PATIENCE = 10.0  # seconds to wait for another process that measures: both would disturb each other

Times = dict[str, float]
"""A way to compute -> seconds."""


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
    parts = [names[0], number_of(torch.get_num_threads(), "thread"), " ".join(special)]
    return f"{', '.join(filter(None, parts))}; torch {torch.__version__}, Python {platform.python_version()}"


def training_machine() -> str:
    """Name the machine that trains: the GPU, if there is one."""
    return torch.cuda.get_device_name() if torch.cuda.is_available() else machine()


def remembered(what: str) -> Times:
    """Return what `measured_once` has measured on this machine; empty if it has not."""
    return known_times(os.path.join(folder(), "timings.json")).get(f"{machine()}: {what}", {})


def measured_once(what: str, ways: Mapping[str, Callable[[], object]], anew: bool = False) -> Times:
    """Return the seconds that each way takes on this machine, with this many threads, and this version of torch.

    The first process to ask measures; all others read the file, so that all of them decide alike.

    Args:
        what: what is computed, with its shapes.
        anew: also if the file has the times.
    """
    file, name = os.path.join(folder(), "timings.json"), f"{machine()}: {what}"
    if (known := remembered(what)).keys() == ways.keys() and not anew:
        return known
    with contextlib.ExitStack() as stack:
        # Each process measures if the folder cannot be written to or locked, as on some network file systems.
        with contextlib.suppress(OSError, NotImplementedError, filelock.Timeout):
            os.makedirs(folder(), exist_ok=True)
            stack.enter_context(filelock.FileLock(f"{file}.lock").acquire(timeout=PATIENCE))
        everything = known_times(file)
        if (known := everything.get(name, {})).keys() == ways.keys() and not anew:
            return known
        times = medians(ways)
        figures = ", ".join(f"{way} {1000 * seconds:.2f} ms" for way, seconds in times.items())
        logging.getLogger(__name__).info("Measured on this machine, %s: %s.", what, figures)
        with contextlib.suppress(InputError, OSError):
            write_text(file, json.dumps(everything | {name: times}, indent=1))
    return times


def folder() -> str:
    """Return the folder of the file: `$POLYAGENTS_CACHE`, or `polyagents` where the user's caches are."""
    home = os.path.expanduser("~")  # stays as it is for a user without a home, as containers have them
    caches = tempfile.gettempdir() if home == "~" else os.path.join(home, ".cache")
    return os.environ.get(FOLDER) or os.path.join(os.environ.get("XDG_CACHE_HOME") or caches, "polyagents")


def known_times(file: str) -> dict[str, Times]:
    """Read what was measured before; nothing if the file is missing, or not what we wrote."""
    try:
        found = read_json(file)
    except (OSError, ValueError):
        return {}
    return found if fits(found, dict[str, dict[str, float]]) else {}


@torch.no_grad()
def medians(ways: Mapping[str, Callable[[], object]]) -> Times:
    """Return the median of ROUNDS for each way; a first round is not counted.

    All ways follow each other in each round, so that a busy moment does not decide.
    """
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS + 1):
        for name, way in ways.items():
            begin = time.perf_counter()
            way()
            times[name].append(time.perf_counter() - begin)
    return {name: statistics.median(taken[1:]) for name, taken in times.items()}


def layer_of(width: int) -> str:
    """Name the layer that is measured for an encoder."""
    return f"a layer of {width} x {4 * width} for {TOKENS} tokens"


@functools.cache
def encodes_in_bf16(width: int) -> bool:
    """Tell whether a CPU computes an encoder of width D faster in bf16 than in fp32, by the largest of its layers."""
    if not has_bf16():
        return False
    # Not an nn.Linear, which would draw its weights, and so change what a run draws.
    layer = functools.partial(torch.nn.functional.linear, torch.zeros(TOKENS, width), torch.zeros(4 * width, width))

    def in_bf16() -> None:
        with torch.autocast("cpu", torch.bfloat16):
            layer()

    times = measured_once(layer_of(width), {"bf16": in_bf16, "fp32": layer})
    return times["bf16"] < times["fp32"]
