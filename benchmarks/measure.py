"""Times and memory of several ways to do one thing, measured side by side in one run."""

import contextlib
import gc
import math
import resource
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from polyagents.timings import machine as machine  # printed by every benchmark with its figures


def side_by_side(ways: Mapping[str, Callable[[], Any]], rounds: int = 7) -> dict[str, float]:
    """Median milliseconds of each way, in two turns, so that a busy moment of the machine meets all of them.

    Within a turn a way runs again and again, as it would in use: a way that touches gigabytes leaves the next one a
    cold cache, which is not the next one's time.

    Args:
        ways: what is measured, by name.
        rounds: how often each is measured.
    """
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(2):
        for name, way in ways.items():
            way()
            for _ in range(math.ceil(rounds / 2)):
                begin = finished()
                way()
                times[name].append((finished() - begin) * 1e3)
    return {name: statistics.median(values) for name, values in times.items()}


def finished() -> float:
    """Return the time in seconds, after a GPU has done all that it was asked for."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def device() -> torch.device:
    """Return where training is measured: the GPU, if there is one."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def copy_time(matrices: Sequence[torch.Tensor], rounds: int = 7) -> float:
    """Measure the median milliseconds of copying stored matrices once: the lower bound for a scan."""
    largest = torch.empty_like(max(matrices, key=torch.Tensor.numel))

    def copy() -> None:
        for matrix in matrices:
            largest[: len(matrix)].copy_(matrix)

    return side_by_side({"copy": copy}, rounds)["copy"]


@contextlib.contextmanager
def peak_memory(where: torch.device | None = None) -> Iterator[list[float]]:
    """Measure the most MB that a block takes beyond what the process had; in RAM, mapped files count. Linux only.

    Args:
        where: the GPU whose memory is measured; otherwise it is RAM.

    Yields:
        A list that gets the figure at the end.
    """
    peak: list[float] = []
    gc.collect()
    if where is not None and where.type == "cuda":
        torch.cuda.reset_peak_memory_stats(where)
        had = torch.cuda.memory_allocated(where)
        yield peak
        peak.append((torch.cuda.max_memory_allocated(where) - had) / 2**20)
        return
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # resets the peak
    before = resident()["VmRSS"]
    yield peak
    peak.append(resident()["VmHWM"] - before)


def resident() -> dict[str, float]:
    """Return the MB of this process in RAM: all (VmRSS), peak (VmHWM), own (RssAnon), of mapped files (RssFile)."""
    with open("/proc/self/status") as file:
        lines = [line.split() for line in file]
    return {line[0].rstrip(":"): int(line[1]) / 1024 for line in lines if line[-1] == "kB"}


def limit_memory(part: float = 0.9) -> None:
    """Limit this process to a part of the RAM that is free now: larger requests fail instead of being swapped."""
    with open("/proc/meminfo") as file:
        free = next(int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable"))
    limit = int(resident()["VmData"] * 2**20 + part * free)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
