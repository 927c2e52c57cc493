"""ParlAI's commands run in this process or, as a user does, in their own; and tiny tasks and models for them."""

import importlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import forks
import torch
from parlai.core.script import SCRIPT_REGISTRY
from parlai.scripts import eval_model

from polyagents.__main__ import run_own
from polyagents.files.model_file import read
from polyagents.parlai_patches import patches
from polyagents.parlai_patches.wrapped import wrap_eval_model

patches.apply()  # tests call ParlAI's scripts themselves

KINDS = {
    "bi": "polyagents:BiEncoder",
    "poly": "polyagents:PolyEncoder",
    "uni": "polyagents:UniEncoder",
    "cross": "polyagents:CrossEncoder",
}
SAMPLE = "polyagents.tasks.sample"
PARTS = ("", ".opt", ".dict")  # the files that are a model

# Small, and without dropout: the same steps give the same weights.
TINY = ("--backbone", "scratch:tiny", "--poly-n-codes", "4", "--dropout", "0", "-lr", "1e-3", "--batchsize", "8")
TINY += ("--text-truncate", "64", "--label-truncate", "16", "--validation-every-n-epochs", "-1")
TINY += ("--dict-maxexs", "400")  # to read all of the sample task takes as long as the rest of a run

COLOURS = ("red", "green", "blue", "black", "white", "pink", "gray", "brown")


def run(command, *arguments):
    """`parlai COMMAND ARGUMENTS` in this process, without its log; returns what the script returns."""
    script = importlib.import_module(f"parlai.scripts.{command}")
    random.seed(0)
    torch.manual_seed(0)
    # A report is printed as a table of pandas', which takes a quarter of a small evaluation.
    printed = mock.patch.object(script, "nice_report", str) if hasattr(script, "nice_report") else nullcontext()
    with printed:
        return SCRIPT_REGISTRY[command].klass.main("--loglevel", "error", *map(str, arguments))


def own(command, *arguments):
    """`polyagents COMMAND ARGUMENTS`, a command of ours, in this process; returns what it returns."""
    return run_own(command, [*map(str, arguments)])


def train(kind, model_file, *arguments):
    """A few training steps of a tiny model."""
    return run("train_model", "-m", KINDS[kind], "-mf", model_file, *TINY, *arguments)


def evaluate(model_file, *arguments):
    """The report of `polyagents eval_model`, as plain numbers."""
    with mock.patch.object(eval_model, "_eval_single_world", eval_model._eval_single_world):
        wrap_eval_model()  # which `parlai eval_model` is not
        report = run("eval_model", "-mf", model_file, *arguments)
    return {name: float(metric) for name, metric in report.items()}


@dataclass(frozen=True)
class Finished:
    """A command that has ended."""

    code: int
    out: str
    err: str


def parlai(*arguments, stdin="", program="parlai"):
    """The installed `parlai` command in a process of its own: exit code, standard output and standard error."""
    command = Path(sys.executable).with_name(program)
    done = subprocess.run(
        [command, *map(str, arguments)], input=stdin, capture_output=True, text=True, encoding="utf-8", timeout=300
    )
    return Finished(done.returncode, done.stdout, done.stderr)


def forked(*arguments, stdin="", program="polyagents", bare=False):
    """The same in a fork of a process that has loaded our agents already, or other libraries: it takes no start."""
    code = f"from {program}.__main__ import main; main()"
    done = forks.run(code, *arguments, stdin=stdin, program=program, bare=bare)
    return Finished(done.returncode, done.stdout, done.stderr)


def write_task(folder, dialogues, name="task"):
    """Flags of a task with these one-turn dialogues (text, label, candidates or None), in training as in evaluation."""
    lines = []
    for text, label, candidates in dialogues:
        given = "" if candidates is None else "\tlabel_candidates:" + "|".join(candidates)
        lines.append(f"text:{text}\tlabels:{label}{given}\tepisode_done:True\n")
    for split in ("train", "valid", "test"):
        (folder / f"{name}_{split}.txt").write_text("".join(lines))
    path = str(folder / name)
    return ("-t", "fromfile:parlaiformat", "--fromfile-datapath", path, "--fromfile-datatype-extension", "true")


def colour_dialogues(count=30):
    """Which of two colours was named first: `count` different dialogues over 8 replies."""
    replies = [f"so you like {colour}" for colour in COLOURS]
    pairs = [(first, second) for second in COLOURS for first in COLOURS if first != second]
    texts = [f"i like {first} more than {second}" for first, second in pairs]
    labels = [f"so you like {first}" for first, _ in pairs]
    return [(text, label, replies) for text, label in zip(texts, labels, strict=True)][:count]


def copy_model(source, target):
    """Copy the files of a model."""
    for part in PARTS:
        shutil.copy(f"{source}{part}", f"{target}{part}")
    return target


def train_more(ranker):
    """Change all weights in memory, as a training would."""
    with torch.no_grad():
        for weight in ranker.model.module.parameters():
            weight.add_(0.1)


def weights(model_file):
    """Everything that a model file holds."""
    return read(str(model_file))


def options(model_file):
    """`M.opt` as a dict."""
    return json.loads(Path(f"{model_file}.opt").read_text())


def largest_difference(file, other):
    """The largest difference of two weights of the same name."""
    first, second = weights(file)["model"], weights(other)["model"]
    assert first.keys() == second.keys()
    return max(float((first[name] - second[name]).abs().max()) for name in first)


def updates_in_checkpoint(file):
    """Updates in the checkpoint; 0 before the first."""
    if not os.path.exists(f"{file}.checkpoint"):
        return 0
    with open(f"{file}.checkpoint", "rb") as opened:  # once: the run replaces it, and safe_open opens it twice
        header = opened.read(int.from_bytes(opened.read(8), "little"))
    return json.loads(json.loads(header)["__metadata__"]["state"])["number_training_updates"]


def workers(parent):
    """The training processes below a process, in the order of their numbers."""
    listed = subprocess.run(["ps", "-eo", "pid,ppid,args"], capture_output=True, text=True).stdout
    rows = [re.match(r"\s*(\d+)\s+(\d+)\s+(.*)", line).groups() for line in listed.splitlines()[1:]]
    below = [(int(pid), text) for pid, above, text in rows if int(above) == parent]
    return sorted(pid for pid, text in below if "python" in text and "resource_tracker" not in text)


WATCHED = """
import os
from {module} import {name}

class DefaultTeacher({name}):
    def get(self, *given):
        message = super().get(*given)
        if self.datatype == "train":  # which the dictionary's reader is not
            with open(os.path.join(os.environ["SEEN"], os.environ["RANK"]), "a") as file:
                file.write({seen} + "\\n")
        return message
"""


def seen_by_two_processes(folder, teacher, seen):
    """What each of two real training processes is given of one epoch.

    Args:
        folder: for the run.
        teacher: MODULE:CLASS.
        seen: what is told of a message, in Python.
    """
    module, name = teacher.split(":")
    (folder / "watched").mkdir()  # a name with a dot is a module's, and not one of ParlAI's tasks
    (folder / "watched" / "task.py").write_text(WATCHED.format(module=module, name=name, seen=seen))
    torchrun = [Path(sys.executable).with_name("torchrun"), "--standalone", "--nproc-per-node", "2"]
    command = [*torchrun, "-m", "polyagents", "train_model", "-m", "bi", "-mf", folder / "M", *TINY]
    command += ["-t", "watched.task", "-bs", "2", "--num-epochs", "1"]
    paths = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {"SEEN": str(folder), "OMP_NUM_THREADS": "1", "PYTHONPATH": paths}
    done = subprocess.run([*map(str, command)], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [(folder / rank).read_text().splitlines() for rank in ("0", "1")]
