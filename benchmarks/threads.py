"""How threads should wait for each other: `python -m polyagents.benchmarks.threads`.

A training step of a tiny encoder, whose parallel parts are short, is timed under each policy of OpenMP, on the machine
as it is and beside a process that keeps one core busy. OpenMP reads its settings once, so every figure is a process of
its own. The result is `polyagents.threads.POLICY`.
"""

import contextlib
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from polyagents import threads
from polyagents.arguments import CommandParser, positive_int
from polyagents.benchmarks import report

STEP = """
import statistics, sys, time, torch
torch.manual_seed(0)
layer = torch.nn.TransformerEncoderLayer(128, 4, 512, batch_first=True)
model = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
optimizer = torch.optim.AdamW(model.parameters())
batch = torch.randn(64, 32, 128)
times = []
for step in range(int(sys.argv[1]) + 5):
    begin = time.perf_counter()
    optimizer.zero_grad()
    vectors = model(batch).mean(1)
    scores = vectors @ vectors.T
    torch.nn.functional.cross_entropy(scores, torch.arange(len(scores))).backward()
    optimizer.step()
    times.append(time.perf_counter() - begin)
print(1e3 * statistics.median(times[5:]))
"""
BUSY = "while True: pass"

SETTINGS = (threads.THREADS, *threads.WAITING)


def policies(cores: int) -> dict[str, dict[str, str]]:
    """Return the environment of each policy, by its name in the table.

    libgomp, which torch's wheels for Linux contain, spins 300,000 times before a thread sleeps unless a setting says
    otherwise; it does not know KMP_BLOCKTIME, which is for Intel's and LLVM's library.
    """
    all_of_them = {threads.THREADS: str(cores)}
    spins = {f"spin {count:,} times": {"GOMP_SPINCOUNT": str(count)} for count in (1_000, 10_000, 100_000)}
    waiting: dict[str, dict[str, str]] = {"as OpenMP does": {}} | spins | {"passive": {"OMP_WAIT_POLICY": "PASSIVE"}}
    named = {f"{cores} threads, {name}": all_of_them | settings for name, settings in waiting.items()}
    return named | {"1 thread": {threads.THREADS: "1"}}


def milliseconds(settings: dict[str, str], steps: int) -> float:
    """Return the median step of one process.

    Args:
        steps: how many steps.
    """
    environment = {name: value for name, value in os.environ.items() if name not in SETTINGS} | settings
    command = [sys.executable, "-c", STEP, str(steps)]
    return float(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)


@contextlib.contextmanager
def busy_neighbours(count: int) -> Iterator[None]:
    """Keep a number of cores busy."""
    running = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(count)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def compare(steps: int, rounds: int) -> list[dict[str, Any]]:
    """Make a row for each policy: milliseconds of a step on the idle machine and beside a busy process.

    Args:
        steps: how many steps.
        rounds: how many processes of each.
    """
    named = policies(threads.available_cores())
    times: dict[tuple[str, int], list[float]] = {(name, busy): [] for name in named for busy in (0, 1)}
    for _ in range(rounds):
        for busy in (0, 1):
            with busy_neighbours(busy):
                for name, settings in named.items():
                    times[name, busy].append(milliseconds(settings, steps))
    return [
        {
            "policy": name,
            "alone, ms": statistics.median(times[name, 0]),
            "beside a busy core, ms": statistics.median(times[name, 1]),
        }
        for name in named
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the table, write it as JSON."""
    parser = CommandParser("python -m polyagents.benchmarks.threads", "Measure how threads should wait.")
    parser.add_argument("--rounds", type=positive_int, default=7, help="processes per figure, which is their median")
    parser.add_argument("--steps", type=positive_int, default=30, help="training steps of each process")
    parser.add_argument("--out", default="bench-output", help="folder for the table (JSON)")
    opt = parser.parse_args(arguments)
    report.publish({"threads": compare(opt.steps, opt.rounds)}, os.path.join(opt.out, "threads.json"))


if __name__ == "__main__":
    main()
