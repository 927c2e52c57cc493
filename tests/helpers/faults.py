"""Kills and full disks at every system call by which a command changes its files; strace finds them and makes them."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

VICTIMS = Path(__file__).parent.parent / "reliability" / "victims.py"

WRITES = ("write", "pwrite64", "writev", "sendfile", "copy_file_range", "ftruncate", "fallocate")
NAMES = ("openat", "mkdir", "rename", "renameat", "renameat2", "link", "symlink")
REMOVES = ("unlink", "unlinkat", "rmdir")
SYNCS = ("fsync", "fdatasync")
GROUPS = {"write": WRITES, "name": NAMES, "remove": REMOVES, "sync": SYNCS}
CALLS = (*WRITES, *NAMES, *REMOVES, *SYNCS)

KINDS = {call: kind for kind, calls in GROUPS.items() for call in calls}


@dataclass(frozen=True)
class Point:
    """A system call of a command: the how-manieth of its name, and what it was given."""

    call: str
    number: int
    given: str

    @property
    def kind(self) -> str:
        """write, name, remove or sync."""
        return KINDS[self.call]


@dataclass(frozen=True)
class Ended:
    """How a command ended: its exit code, -9 where it was killed; what it said."""

    code: int
    said: str


class Victims:
    """Runs commands, each in a child of one process (reliability/victims.py)."""

    def __init__(self, folder):
        self.folder = folder
        environment = os.environ | {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "TQDM_DISABLE": "1"}
        self.process = subprocess.Popen(
            [sys.executable, VICTIMS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def close(self):
        """End the process."""
        self.process.stdin.close()
        self.process.wait()

    def run(self, arguments, *strace):
        """Run a command, under strace where arguments of it are given; how it ended."""
        log = self.folder / "log"
        request = {"arguments": [*map(str, arguments)], "cwd": str(self.folder), "log": str(log)}
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        child = int(self.process.stdout.readline())
        tracer = self._trace(child, strace) if strace else None
        os.kill(child, signal.SIGUSR1)
        code = os.waitstatus_to_exitcode(int(self.process.stdout.readline()))
        if tracer:
            tracer.stderr.close()
            tracer.wait()
        return Ended(code, log.read_text() if log.exists() else "")

    def _trace(self, child, strace):
        command = ["strace", "-f", "-y", "-o", self.folder / "trace", *strace, "-p", str(child)]
        tracer = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        said = tracer.stderr.readline()  # comes when it has attached itself
        assert "attached" in said, said
        return tracer

    def points(self, arguments, folder):
        """Every point at which a command changes something in a folder; the command is run to its end."""
        ended = self.run(arguments, "-e", f"trace={','.join(CALLS)}")
        assert ended.code == 0, ended.said
        return points_of((self.folder / "trace").read_text(), str(folder))

    def killed(self, arguments, point):
        """Run a command that is killed just before a point."""
        return self.run(arguments, *injected(point, "signal=KILL"))

    def refused(self, arguments, point):
        """Run a command to which the disk is full at a point."""
        return self.run(arguments, *injected(point, "error=ENOSPC"))


def injected(point, fault):
    """What strace is told to do at a point."""
    return "-e", f"trace={point.call}", "-e", f"inject={point.call}:{fault}:when={point.number}"


def points_of(trace, folder):
    """The points in a trace of one process, in order."""
    main = trace.split(maxsplit=1)[0]
    counts, found = Counter(), []
    for line in trace.splitlines():
        parts = re.match(r"(\d+)\s+(\w+)\((.*)", line)
        if not parts or parts[1] != main:
            continue
        call, given = parts[2], parts[3]
        counts[call] += 1
        changes = call != "openat" or ("O_CREAT" in given and " = -1 " not in given)
        if changes and folder in given:
            found.append(Point(call, counts[call], given[:300]))
    return found


def can_trace():
    """Whether there is an strace that may attach itself to other processes."""
    if shutil.which("strace") is None:
        return False
    sleeping = subprocess.Popen(["sleep", "60"])
    try:
        tracer = subprocess.Popen(["strace", "-p", str(sleeping.pid)], stderr=subprocess.PIPE, text=True)
        return "attached" in tracer.stderr.readline()
    finally:
        sleeping.kill()
        sleeping.wait()
        tracer.stderr.close()
        tracer.wait()
