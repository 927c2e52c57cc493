"""What there is to do on a GPU, most valuable first."""

import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from polyagents.errors import InputError

TESTS = Path(__file__).resolve().parents[2] / "tests"  # in a clone; an installed package has none
MODULE = "polyagents.benchmarks"


@dataclass(frozen=True)
class Data:
    """What the user gave.

    Attributes:
        device: cuda, or cpu to try all stages.
        backbone: the folder of an encoder.
        datapath: ParlAI's folder of data; None for its own.
        settings: NAME=VALUE for these.
    """

    out: str
    device: str
    backbone: str
    task: str
    datapath: str | None
    studies: Sequence[str]
    settings: Sequence[str]


@dataclass(frozen=True)
class Stage:
    """A process that can be stopped, and called again.

    Attributes:
        name: of its log and of its line in the report.
        results: files that it writes, with rows for the report.
    """

    name: str
    command: Sequence[str]
    results: Sequence[str] = field(default=())


def stages_of(data: Data) -> list[Stage]:
    """Return all stages, in their order.

    Raises:
        InputError: a study cannot be read.
    """
    stages = []
    if TESTS.is_dir():
        chosen = ["-m", "gpu", str(TESTS)] if data.device == "cuda" else [str(TESTS / "models" / "test_attention.py")]
        stages.append(Stage("tests", [sys.executable, "-m", "pytest", "-q", "-n", "0", *chosen]))
    for name, flags in (
        ("search", []),
        ("encoding", ["--backbone", data.backbone]),
        ("ranking", ["--backbone", data.backbone, *task_flags(data)]),
    ):
        rows = os.path.join(data.out, f"{name}.jsonl")
        command = [sys.executable, "-m", f"{MODULE}.gpu.{name}", "--device", data.device, "--rows", rows]
        stages.append(Stage(name, [*command, *flags], [rows]))
    stages.append(training(data))
    stages += [study(data, file) for file in data.studies]
    if data.datapath is not None:
        command = [sys.executable, "-m", f"{MODULE}.pretraining", *task_flags(data), "--backbone", "scratch:mini"]
        stages.append(Stage("pretraining", command))
    return stages


def task_flags(data: Data) -> list[str]:
    """Return the flags of the task."""
    return ["-t", data.task, *([] if data.datapath is None else ["-dp", data.datapath])]


def training(data: Data) -> Stage:
    """Return the stage that compares training steps with sentence-transformers' and ParlAI's."""
    folder, sizes = os.path.join(data.out, "training"), "32,128,512" if data.device == "cuda" else "4,8"
    command = [sys.executable, "-m", "polyagents", "bench_training", *task_flags(data), "--backbone", data.backbone]
    command += ["--precision", "bf16", "--batch-sizes", sizes, "--out", folder]
    command += [] if data.device == "cuda" else ["--steps", "1", "--chunk-tokens", "512"]
    return Stage("training", command, [os.path.join(folder, "training.json")])


def study(data: Data, file: str) -> Stage:
    """Return the stage of a study, which writes its results below the folder of results.

    Raises:
        InputError: there is no such file.
    """
    if not os.path.isfile(file):
        raise InputError(f"--study {file}: there is no such file; benchmarks/studies/ has some.")
    folder, name = os.path.join(data.out, "studies"), os.path.splitext(os.path.basename(file))[0]
    os.makedirs(folder, exist_ok=True)
    here = shutil.copy(file, folder)
    command = [sys.executable, "-m", f"{MODULE}.study", here, "--work", os.path.join(data.out, "work")]
    command += [part for setting in data.settings for part in ("--set", setting)]
    return Stage(f"study {name}", command, [os.path.join(folder, "results", name, "report.md")])
