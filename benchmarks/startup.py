"""How long commands take to start: `python -m polyagents.benchmarks.startup`.

Each row is the median over rounds of a whole process, from its start to its end, beside the process that it is compared
with: an import of torch and transformers, the same with the weights loaded into their encoders, or ParlAI's own
command.
All ways run once in every round, so that a busy moment of the machine meets all of them.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from polyagents import Ranker
from polyagents.arguments import CommandParser, positive_int
from polyagents.benchmarks import report
from polyagents.benchmarks.walk import trained

REPLIES = ("i am here", "canada is in north america", "fruits are still very nice")
LIBRARIES = "import torch, transformers"
# The least that any program does to have the model's encoders in memory.
LOAD = """
import json, sys, torch, transformers
from safetensors.torch import load_file
with open(sys.argv[1] + ".config.json") as file:
    config = json.load(file)
weights = load_file(sys.argv[1])
for encoder in ("context_encoder", "candidate_encoder"):
    prefix = encoder + ".backbone."
    model = transformers.AutoModel.from_config(transformers.AutoConfig.for_model(**config))
    own = {name.removeprefix(prefix): weight for name, weight in weights.items() if name.startswith(prefix)}
    model.load_state_dict(own, strict=False)
"""


@dataclass(frozen=True)
class Way:
    """A process to time.

    Attributes:
        command: the command, without the Python before it.
        seconds: its limit; None if only a ratio is wanted.
        against: name of the way that it is compared with; None for those.
        ratio: the limit of its time divided by the other's.
    """

    command: tuple[str, ...]
    stdin: str = ""
    seconds: float | None = None
    against: str | None = None
    ratio: float | None = None


def ways(model_file: str, replies: str) -> dict[str, Way]:
    """Return what is timed, by name.

    Args:
        model_file: a bi- or poly-encoder; for LOAD its backbone's configuration is beside it, in `.config.json`.
    """
    ours, theirs = ("-m", "polyagents"), ("-m", "parlai")
    rank = (*ours, "rank", "-mf", model_file, "--candidates-file", replies)
    return {
        "import torch, transformers": Way(("-c", LIBRARIES)),
        "import them, load the weights": Way(("-c", LOAD, model_file)),
        "parlai --help": Way((*theirs, "--help")),
        "parlai train_model": Way((*theirs, "train_model")),
        "polyagents --help": Way((*ours, "--help"), seconds=1.0),
        "polyagents zoo list": Way((*ours, "zoo", "list"), seconds=1.0),
        "polyagents recipe list": Way((*ours, "recipe", "list"), seconds=1.0),
        "polyagents rank, no flags": Way((*ours, "rank"), seconds=1.0),
        "polyagents mine_negatives, no flags": Way((*ours, "mine_negatives"), seconds=1.0),
        "polyagents train_model": Way((*ours, "train_model"), "", None, "parlai train_model", 1.1),
        "from polyagents import Ranker": Way(
            ("-c", "from polyagents import Ranker"), "", None, "import torch, transformers", 1.1
        ),
        "polyagents rank, three candidates": Way(rank, "where is canada\n", None, "import them, load the weights", 1.3),
    }


def seconds(way: Way) -> float:
    """Time one process."""
    environment = os.environ | {"HF_HUB_OFFLINE": "1"}  # the figures must not depend on the network
    begin = time.perf_counter()
    command = [sys.executable, *way.command]
    done = subprocess.run(command, input=way.stdin, capture_output=True, text=True, env=environment)
    taken = time.perf_counter() - begin
    if way.command[0] == "-c" and done.returncode:  # commands without their flags end with an error, as they should
        raise RuntimeError(done.stderr)
    return taken


def measured(named: dict[str, Way], rounds: int) -> dict[str, float]:
    """Return the median seconds of each way. A round before the first reads all files into the system's cache.

    Args:
        named: the ways by name.
        rounds: how many rounds.
    """
    times: dict[str, list[float]] = {name: [] for name in named}
    for number in range(rounds + 1):
        for name, way in named.items():
            taken = seconds(way)
            if number:
                times[name].append(taken)
    return {name: statistics.median(values) for name, values in times.items()}


def rows(named: dict[str, Way], medians: dict[str, float]) -> list[dict[str, Any]]:
    """Make a table: each way, its time, what it is compared with, and whether it meets its goal.

    Args:
        named: the ways by name.
        medians: their seconds.
    """
    table = []
    for name, way in named.items():
        row: dict[str, Any] = {"command": name, "seconds": round(medians[name], 2)}
        if way.seconds is not None:
            row |= {"goal": f"{way.seconds:g} s", "met": "yes" if medians[name] <= way.seconds else "no"}
        if way.against is not None and way.ratio is not None:
            ratio = medians[name] / medians[way.against]
            row |= {"against": way.against, "ratio": round(ratio, 2), "goal": f"{way.ratio:g} times"}
            row["met"] = "yes" if ratio <= way.ratio else "no"
        table.append(row)
    return table


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the table, write it as JSON."""
    parser = CommandParser("python -m polyagents.benchmarks.startup", "Measure how long commands take to begin.")
    parser.add_argument("--rounds", type=positive_int, default=7, help="measurements per figure, which is their median")
    parser.add_argument("--out", default="bench-output", help="folder for the table (JSON)")
    opt = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        replies = os.path.join(folder, "replies.txt")
        with open(replies, "w", encoding="utf-8") as file:
            file.write("\n".join(REPLIES))
        model_file = trained(folder)
        Ranker.load(model_file).model.context_encoder.backbone.config.to_json_file(f"{model_file}.config.json")
        named = ways(model_file, replies)
        report.publish({"startup": rows(named, measured(named, opt.rounds))}, os.path.join(opt.out, "startup.json"))


if __name__ == "__main__":
    main()
