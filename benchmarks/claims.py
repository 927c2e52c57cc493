"""Which of the paper's claims hold on data at hand, at a budget that two cores can pay: every model with several seeds.

    python -m polyagents.benchmarks.claims DIR --task convai2 --datapath DATAPATH --backbone MINILM --seeds 1,2,3

Trains and evaluates each run with the commands that a user would type, a seed of all models before the next seed, each
process on one core. DIR/TASK-NAME-SEED.json is a finished run, and the .log beside it what it said: the same command
resumes with what is missing. A folder is for one setting; give another where flags differ.
"""

import argparse
import concurrent.futures
import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tqdm import tqdm

from polyagents.benchmarks import measure
from polyagents.console import markdown

EXAMPLES = 3072  # of a bi- or poly-encoder's training
CROSS_EXAMPLES = 160  # cost about as much: each example is 20 pairs, a context in each of them
EVALUATED, CROSS_EVALUATED = 1024, 256
RATE = 1e-4  # at a batch of 32; with the root of the batch elsewhere


@dataclass(frozen=True)
class Run:
    """A model and how it is trained."""

    name: str
    agent: str
    flags: dict[str, Any] = field(default_factory=dict)
    batch: int = 32
    examples: int = EXAMPLES


def poly(kind: str, m: int) -> Run:
    """A poly-encoder."""
    codes = {"--codes-learningrate": 1e-2} if kind == "codes" else {}
    return Run(f"poly {m} {kind}", "poly", {"--polyencoder-type": kind, "--poly-n-codes": m} | codes)


MODELS = (
    Run("bi", "bi"),
    *(poly(kind, m) for kind in ("codes", "n_first") for m in (16, 64, 360)),
    Run("cross", "cross", batch=4, examples=CROSS_EXAMPLES),
)
NEGATIVES = (
    Run("bi", "bi"),  # 31 negatives; done already where the architectures are in the same folder
    Run("bi, 7 negatives, as many examples", "bi", batch=8),
    Run("bi, 127 negatives, as many examples", "bi", batch=128),
    Run("bi, 7 negatives, as many updates", "bi", batch=8, examples=EXAMPLES // 4),
)


def commands(run: Run, task: str, seed: int, model_file: str, shared: dict[str, Any]) -> tuple[list[str], list[str]]:
    """The training and the evaluation of a run."""
    polyagents = [sys.executable, "-m", "polyagents"]
    train = shared | {
        "-m": run.agent,
        "--reduction-type": "mean",
        "--dropout": 0,
        "-bs": run.batch,
        "-lr": RATE * (run.batch / 32) ** 0.5,
        "--lr-scheduler": "none",
        "--warmup-updates": 10,
        "--max-train-steps": run.examples // run.batch,
        "--seed": seed,
        "-veps": -1,
        "-vme": 8,  # only M is wanted from here, which is then evaluated on more
        "--short-final-eval": "true",
        "--eval-batchsize": 8,
    }
    evaluate = {
        "-dt": "valid",
        "-bs": 8 if run.agent == "cross" else 32,
        "--num-examples": CROSS_EVALUATED if run.agent == "cross" else EVALUATED,
        "--report-filename": f"{model_file}.evaluation",
    }
    flags = [train | run.flags, {"-dp": shared["-dp"]} | evaluate]
    words = [[str(word) for pair in some.items() for word in pair] for some in flags]
    place = ["-t", task, "-mf", model_file]
    return [*polyagents, "train_model", *place, *words[0]], [*polyagents, "eval_model", *place, *words[1]]


def carry_out(run: Run, task: str, seed: int, folder: str, shared: dict[str, Any]) -> None:
    """One run, unless it is there already."""
    model_file = os.path.join(folder, f"{task}-{run.name}-{seed}".replace(" ", "_").replace(",", ""))
    if os.path.exists(f"{model_file}.json"):
        return
    with open(f"{model_file}.log", "w") as log:
        for command in commands(run, task, seed, model_file, shared):
            subprocess.run(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, stdout=log, stderr=log, check=True)
    with open(f"{model_file}.evaluation") as file:
        metrics = json.load(file)["report"]
    result = {"task": task, "model": run.name, "seed": seed, "R@1": metrics["hits@1"], "MRR": metrics["mrr"]}
    with open(f"{model_file}.json.part", "w") as file:
        json.dump(result | {"examples": metrics["exs"]}, file)
    os.replace(f"{model_file}.json.part", f"{model_file}.json")
    for ending in ("", ".checkpoint"):  # the weights: 180 MB a run
        if os.path.exists(model_file + ending):
            os.remove(model_file + ending)


def table(folder: str) -> list[dict[str, Any]]:
    """Mean and deviation over the seeds of what is finished."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for name in sorted(os.listdir(folder)):
        if name.endswith(".json"):
            with open(os.path.join(folder, name)) as file:
                result = json.load(file)
            found.setdefault((result["task"], result["model"]), []).append(result)
    rows = []
    for (task, model), results in found.items():
        row: dict[str, Any] = {"task": task, "model": model, "seeds": len(results)}
        for metric in ("R@1", "MRR"):
            values = np.array([result[metric] for result in results])
            spread = f" ± {values.std(ddof=1):.3f}" if len(values) > 1 else ""
            row[metric] = f"{values.mean():.3f}{spread}"
        rows.append(row | {"measured on": results[0]["examples"]})
    return rows


def main() -> None:
    """Carry out what is missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--task", default="convai2")
    parser.add_argument("--datapath", required=True)
    parser.add_argument("--backbone", required=True)
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--models", choices=("architectures", "negatives"), default="architectures")
    parser.add_argument("--text-truncate", type=int, default=128)
    parser.add_argument("--label-truncate", type=int, default=32)
    parser.add_argument("--workers", type=int, default=2)
    opt = parser.parse_args()
    os.makedirs(opt.folder, exist_ok=True)
    shared = {"-dp": opt.datapath, "--backbone": opt.backbone}
    shared |= {"--text-truncate": opt.text_truncate, "--label-truncate": opt.label_truncate}
    runs = MODELS if opt.models == "architectures" else NEGATIVES
    with concurrent.futures.ThreadPoolExecutor(opt.workers) as pool:
        waiting = [
            pool.submit(carry_out, run, opt.task, int(seed), opt.folder, shared)
            for seed in opt.seeds.split(",")
            for run in runs
        ]
        try:
            for done in tqdm(concurrent.futures.as_completed(waiting), total=len(waiting), unit="run"):
                done.result()
        except subprocess.CalledProcessError:
            pool.shutdown(cancel_futures=True)
            raise
    print(measure.machine())
    print(markdown(table(opt.folder)))


if __name__ == "__main__":
    main()
