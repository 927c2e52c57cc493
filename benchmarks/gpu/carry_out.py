"""Runs the stages that are not done yet, each in a process of its own, until the time is up."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from typing import Any

from polyagents.benchmarks.gpu.stages import Stage
from polyagents.console import duration, say
from polyagents.files.atomic import write_text
from polyagents.files.json_files import fits, read_json

DONE, STOPPED, FAILED = "done", "stopped", "failed"
LEAST = 20.0  # seconds that are left for a stage to be begun
GRACE = 10.0  # seconds that a stopped stage has to write what it has
State = dict[str, dict[str, Any]]
"""Of each stage that was begun: how it ended, and its seconds in all calls."""


def carry_out(stages: Sequence[Stage], out: str, seconds: float) -> bool:
    """Run what is not done; a stage that failed is tried once more in each call.

    Args:
        stages: in their order.
        out: the folder of logs and of the state.
        seconds: how long this call may take.

    Returns:
        Whether a stage failed in this call.
    """
    os.makedirs(out, exist_ok=True)
    end, failed, state = time.monotonic() + seconds, False, read_state(out)
    for stage in stages:
        before = state.get(stage.name, {"state": "", "seconds": 0.0})
        if before["state"] == DONE:
            continue
        left = end - time.monotonic()
        if left < min(LEAST, seconds / 2):
            say(f"The time is up before {stage.name}; the same command continues with it.")
            break
        say(f"{stage.name} ...")
        begin = time.monotonic()
        ended = run(stage, os.path.join(out, f"{stage.name.replace(' ', '-')}.log"), left)
        taken = time.monotonic() - begin
        failed |= ended == FAILED
        state[stage.name] = {"state": ended, "seconds": before["seconds"] + taken, "results": list(stage.results)}
        write_text(os.path.join(out, "state.json"), json.dumps(state, indent=1))
        say(f"{stage.name}: {ended} after {duration(taken)}.")
    return failed


def run(stage: Stage, log: str, seconds: float) -> str:
    """Run a stage, and stop it with all processes that it has begun where it takes too long.

    Args:
        log: a file that its output is added to.
        seconds: how long it may take.
    """
    with open(log, "ab") as output:
        process = subprocess.Popen(stage.command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            return DONE if process.wait(seconds) == 0 else FAILED
        except subprocess.TimeoutExpired:
            return STOPPED
        finally:
            stop(process)


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a process and all that it has begun, if it has not ended."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            return
        os.killpg(process.pid, sign)
        try:
            process.wait(GRACE)
        except subprocess.TimeoutExpired:
            continue


def read_state(out: str) -> State:
    """Read what earlier calls have done; nothing if there is none, or where the file is not ours."""
    try:
        found = read_json(os.path.join(out, "state.json"))
    except (OSError, ValueError):
        return {}
    is_ours = fits(found, dict[str, dict[str, Any]]) and all(
        {"state", "seconds"} <= one.keys() for one in found.values()
    )
    return found if is_ours else {}
