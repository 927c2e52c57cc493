"""What a second process brings on the cores of one machine: `python -m polyagents.benchmarks.processes -t TASK`.

One process trains with batches of B; then two processes, each with a thread of its own, train as one with batches of
B/2, which makes the same updates (polyagents/training/distributed.py). The third row is one process with two threads.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

from parlai.core.agents import create_agent
from parlai.core.params import ParlaiParser
from torch import distributed

from polyagents import threads
from polyagents.arguments import positive_int
from polyagents.benchmarks import peers, report, training

TRAIN = "import sys; from polyagents.benchmarks.processes import train; train(sys.argv[1])"
FIRST = 2  # steps before the clock starts
Row = dict[str, Any]


def train(job: str) -> None:
    """Train in one of several processes, or in one alone; the first prints the seconds of each step.

    Args:
        job: backbone, kind, precision, rank, world, file of the first connection, and the examples, as JSON.
    """
    given = json.loads(job)
    rank, world = given["rank"], given["world"]
    if world > 1:
        distributed.init_process_group("gloo", init_method=f"file://{given['file']}", rank=rank, world_size=world)
    with open(given["examples"], encoding="utf-8") as file:
        examples = json.load(file)
    batch = given["batch"]
    flags = {"backbone": given["backbone"], "batchsize": batch // world, "precision": given["precision"]}
    agent = create_agent(training.our_options(given["kind"], **flags))
    seconds = []
    for start in range(0, len(examples), batch):
        texts, labels = training.columns(examples[start + rank : start + batch : world])
        begin = time.perf_counter()
        peers.train(agent, texts, labels)
        seconds.append(time.perf_counter() - begin)
    if rank == 0:
        print(f"\n{json.dumps(seconds[FIRST:])}")


def steps(processes: int, thread_count: int, job: Row) -> list[float]:
    """Return the seconds of the steps of one training."""
    environment = os.environ | {threads.THREADS: str(thread_count)}
    with tempfile.TemporaryDirectory() as folder:
        jobs = [job | {"rank": rank, "world": processes, "file": f"{folder}/first"} for rank in range(processes)]
        running = [
            subprocess.Popen([sys.executable, "-c", TRAIN, json.dumps(one)], env=environment, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE) for one in jobs
        ]  # fmt: skip
        outputs = [process.communicate() for process in running]
    for process, (_, errors) in zip(running, outputs, strict=True):
        if process.returncode:
            raise RuntimeError(f"A measuring process failed ({process.returncode}):\n{errors[-4000:]}")
    found: list[float] = json.loads(outputs[0][0].splitlines()[-1])
    return found


def compare(rounds: int, job: Row) -> list[Row]:
    """Make a row for each way to use two cores: examples a second, and its ratio to one process with one thread.

    Args:
        rounds: training runs of each.
        job: what `train` needs of them all.
    """
    ways = {"1 process, 1 thread": (1, 1), "2 processes, 1 thread each": (2, 1), "1 process, 2 threads": (1, 2)}
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way, (processes, thread_count) in ways.items():
            seconds[way] += steps(processes, thread_count, job)
    rates = {way: job["batch"] / statistics.median(found) for way, found in seconds.items()}
    first = next(iter(rates.values()))
    return [{"way": way, "examples/s": rate, "ratio": rate / first} for way, rate in rates.items()]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the table, write it as JSON."""
    parser = ParlaiParser(True, False, "Measure what a second process brings.")
    parser.add_argument("--backbone", required=True, help="a pretrained encoder's folder")
    parser.add_argument("--kind", choices=["bi", "poly"], default="poly")
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--batch", type=positive_int, default=64, help="examples of an update, of all processes")
    parser.add_argument("--steps", type=positive_int, default=6, help="measured steps of each training")
    parser.add_argument("--rounds", type=positive_int, default=3, help="training runs of each way")
    parser.add_argument("--out", default="bench-output", help="folder for the table (JSON)")
    opt = parser.parse_args(arguments)
    count = opt["batch"] * (opt["steps"] + FIRST)
    with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
        json.dump(training.draw(opt, count), file)
        file.flush()
        job = {name: opt[name] for name in ("backbone", "kind", "precision", "batch")} | {"examples": file.name}
        rows = compare(opt["rounds"], job)
    report.publish({"processes": rows}, os.path.join(opt["out"], "processes.json"))


if __name__ == "__main__":
    main()
