"""Runs without flags beside the best flags known and the untrained start: R@1 on test, by data size and time.

    python -m polyagents.benchmarks.default_flags convai2 WORK --backbone MINILM -dp DATA --examples 1000 --seconds 120

Each seed draws other examples, as tables that `polyagents.tasks.table` reads. What WORK has is not run again. ConvAI2's
test set is the last 320 dialogues of its valid split; a validation takes the first 320, at most an eighth of N.
"""

import json
import os
import random
import subprocess
import sys
from typing import Any

from parlai.core.params import ParlaiParser

from polyagents.arguments import CommandParser, positive_int, positive_ints
from polyagents.benchmarks.small_tables import interval
from polyagents.console import in_columns
from polyagents.files.atomic import write_text
from polyagents.files.json_files import read_json
from polyagents.parlai_agents.decision_task import examples_of_task
from polyagents.parlai_patches import patches

COMMON = "--similarity cosine --reduction-type mean --label-truncate 32 --dropout 0 --precision bf16 -veps -1"
BEST = {
    "banking77": f"{COMMON} --share-encoders true --text-truncate 64 -bs 32 -lr 2e-4",
    "convai2": f"{COMMON} --text-truncate 256 -bs 16 -lr 1e-4",
}
HALF = 320  # dialogues of ConvAI2's valid split
WAYS = ("untrained", "default", "best")


def main() -> None:
    """Print a line for each seed, and the means with 95 % intervals."""
    parser = CommandParser("default_flags", "Compare runs without flags with the best flags and the start.")
    parser.add_argument("task", choices=sorted(BEST))
    parser.add_argument("work", help="a folder of tables, models and results")
    parser.add_argument("--backbone", required=True)
    parser.add_argument("-dp", "--datapath", required=True)
    parser.add_argument("--examples", type=positive_int, required=True)
    parser.add_argument("--seconds", type=positive_int, required=True)
    parser.add_argument("--seeds", type=positive_ints, default=(1, 2, 3))
    opt = vars(parser.parse_args())
    patches.apply()
    rows = []
    for seed in opt["seeds"]:
        table = drawn(opt, seed)
        rows.append([recall(opt, table, way, seed) for way in WAYS])
        print(f"seed {seed}: " + ", ".join(f"{n} {x:.3f}" for n, x in zip(WAYS, rows[-1], strict=True)), flush=True)
    untrained, default, best = zip(*rows, strict=True)
    pairs = [("default minus untrained", untrained), ("default minus best", best)]
    means = [[name, interval(column)] for name, column in zip(WAYS, (untrained, default, best), strict=True)]
    means += [[name, interval([a - b for a, b in zip(default, other, strict=True)])] for name, other in pairs]
    print("\n".join(in_columns(means)))


def drawn(opt: dict[str, Any], seed: int) -> str:
    """Write train, valid and test of one seed, and return their folder."""
    folder = os.path.join(opt["work"], f"{opt['task']}_{opt['examples']}_{seed}")
    if os.path.exists(os.path.join(folder, "test.jsonl")):
        return folder
    train = rows_of(opt, "train")
    if opt["task"] == "convai2":
        valid, test = (rows_of(opt, "valid", half) for half in (range(HALF), range(HALF, 2 * HALF)))
    else:
        valid, test = rows_of(opt, "valid"), rows_of(opt, "test")
    draw = random.Random(seed)
    parts = {
        "train": draw.sample(train, min(opt["examples"], len(train))),
        "valid": draw.sample(valid, min(opt["examples"] // 8, len(valid))),
        "test": test,
    }
    os.makedirs(folder, exist_ok=True)
    for name, rows in parts.items():
        write_text(os.path.join(folder, f"{name}.jsonl"), "".join(f"{json.dumps(row)}\n" for row in rows))
    return folder


def rows_of(opt: dict[str, Any], split: str, dialogues: range | None = None) -> list[dict[str, Any]]:
    """Read the examples of a split, or of some of its dialogues."""
    task = ParlaiParser(True, True).parse_args(["-t", f"polyagents.tasks.{opt['task']}", "-dp", opt["datapath"]])
    read = examples_of_task(task | {"datatype": "train:evalmode" if split == "train" else split})
    rows = []
    for place, (context, labels, group) in enumerate(zip(read.contexts, read.labels, read.groups, strict=True)):
        if dialogues is None or group in dialogues:
            row = {"context": context, "label": list(labels)}
            rows.append(row if read.own is None else row | {"candidates": read.own[place]})
    return rows


def recall(opt: dict[str, Any], table: str, way: str, seed: int) -> float:
    """Return R@1 on test of one run, from its files in WORK if it was done before."""
    task = ["-t", "polyagents.tasks.table", "--table-path", table]
    if way == "untrained":  # the test set is the same for all seeds
        file = os.path.join(opt["work"], f"{opt['task']}_{way}")
        report = f"{file}.json"
        if not os.path.exists(report):
            run(["init_model", "--backbone", opt["backbone"], "-mf", file])
            run(["evaluate", "-mf", file, *task, "-dt", "test", "--out", report])
        return float(read_json(report)["models"][0]["metrics"]["R@1"]["value"])
    file = os.path.join(table, f"{way}_{opt['seconds']}")
    stats = f"{file}.trainstats"
    if not os.path.exists(stats) or "final_test_report" not in read_json(stats):
        flags = ["--max-train-time", str(opt["seconds"]), "--seed", str(seed), "--keep-checkpoint", "false"]
        flags += BEST[opt["task"]].split() if way == "best" else []
        run(["train_model", "-m", "bi", *task, "-mf", file, "--backbone", opt["backbone"], *flags])
    return float(read_json(stats)["final_test_report"]["accuracy"])


def run(arguments: list[str]) -> None:
    """Run a command in a process of its own."""
    subprocess.run([sys.executable, "-m", "polyagents", *arguments], check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
