"""The number of threads that torch uses in our commands, and how they wait for each other.

OpenMP counts the cores that this process may run on, but ignores the quota of a container; and its threads wait for
each other by spinning, which on a core that is shared with other programs costs more than the work
(`benchmarks/threads.py`, docs/speed.md). It reads its settings once, when torch is imported, so they are put into the
environment before; processes that a command starts inherit them.
"""

import math
import os
import sys
from collections.abc import Iterator, MutableMapping

THREADS = "OMP_NUM_THREADS"
# Any of these says how threads wait: the standard's variable, libgomp's and libomp's own.
WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
POLICY = {"OMP_WAIT_POLICY": "PASSIVE"}  # chosen by benchmarks/threads.py


def choose(environment: MutableMapping[str, str] = os.environ) -> str | None:
    """Set the number of threads and how they wait in the `environment`, except where the user has done so.

    Returns:
        A line for the log that says what was chosen; None if the user had decided everything, or torch is imported.
    """
    if "torch" in sys.modules:
        return None
    chosen = []
    if THREADS not in environment:
        environment[THREADS] = str(available_cores())
        chosen.append(f"{environment[THREADS]} of {os.cpu_count()} cores ({THREADS} sets the number)")
    if environment[THREADS] != "1" and not any(name in environment for name in WAITING):
        environment.update(POLICY)
        chosen.append(f"threads that wait without spinning ({WAITING[0]}=ACTIVE: quicker on an idle machine)")
    return f"Computing on {', '.join(chosen)}." if chosen else None


def available_cores(root: str = "/") -> int:
    """Count the cores that this process may use, at least 1: its affinity's, or fewer if its quota is smaller.

    `proc` and `sys` are below `root`.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([cores, *(math.ceil(quota) for quota in quotas(root))]))


def quotas(root: str) -> Iterator[float]:
    """Read how many cores each control group above this process grants it; yield nothing if none is limited.

    A group limits all groups within it. In a container the path of the own group may be one of the host's, of which
    only the upper part, or nothing but the container's own group at the top, can be seen.
    """
    for controllers, path in groups(os.path.join(root, "proc", "self", "cgroup")):
        mounted = os.path.join(root, "sys", "fs", "cgroup", controllers)
        parts = [part for part in path.split("/") if part]
        for depth in range(len(parts) + 1):
            folder = os.path.join(mounted, *parts[:depth])
            if controllers:  # version 1
                quota = first_words(os.path.join(folder, "cpu.cfs_quota_us"))
                period = first_words(os.path.join(folder, "cpu.cfs_period_us"))
                yield from quota_cores([*quota, *period])
            else:
                yield from quota_cores(first_words(os.path.join(folder, "cpu.max")))


def groups(path: str) -> Iterator[tuple[str, str]]:
    """Read the control groups that can limit a process's cores: folder of the controllers ("" in version 2), path."""
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
    except OSError:
        return
    for line in lines:
        number, controllers, group = line.split(":", 2)
        if number == "0" and not controllers:
            yield "", group
        elif "cpu" in controllers.split(","):
            yield controllers, group


def first_words(path: str) -> list[str]:
    """Return the words of a small file; none if it cannot be read."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().split()
    except OSError:
        return []


def quota_cores(words: list[str]) -> Iterator[float]:
    """Convert ["150000", "100000"], microseconds in each period, to 1.5 cores; yield nothing for "max" or "-1"."""
    if len(words) == 2 and words[0].isdigit() and int(words[0]) > 0 and int(words[1]) > 0:
        yield int(words[0]) / int(words[1])
