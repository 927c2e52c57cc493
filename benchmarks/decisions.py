"""How good decisions are: models of one task, calibrated on valid and measured on test, over several seeds.

    python -m polyagents.benchmarks.decisions banking77 WORK --backbone MINILM -dp DATAPATH --few-shot 10

Each model is trained if WORK lacks it, so a run can be stopped and continued. The uni-encoder compares the tokens of
the bi-encoder of the same seed, without training of its own (docs/results.md). A pipeline is that bi-encoder, whose ten
best options the uni-encoder orders; "cross" is the same with a cross-encoder, which is trained from the bi-encoder.
"bi-mean" and "poly-mean" average the weights of all seeds.
"""

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from parlai.core.params import ParlaiParser

from polyagents.arguments import CommandParser, positive_int, positive_ints
from polyagents.console import in_columns
from polyagents.decisions.calibration import Calibration, MeasuredCalibration, calibration_of, measured
from polyagents.decisions.scoring import scores_of
from polyagents.files.atomic import write_text
from polyagents.parlai_agents.decision_task import examples_of_task
from polyagents.parlai_patches import patches
from polyagents.ranker import Ranker, median_seconds

TASKS = {"banking77": "polyagents.tasks.banking77", "clinc150": "polyagents.tasks.clinc150"}
CALIBRATED_ON = {"banking77": TASKS["banking77"], "clinc150": f"{TASKS['clinc150']}:outside"}
# Chosen on BANKING77's valid split, with ten examples an option (benchmarks/studies/banking77.yaml).
FLAGS = "--reduction-type mean --share-encoders true --similarity cosine --candidates batch --text-truncate 64"
FLAGS += (
    " --label-truncate 32 --dropout 0 --precision bf16 --lr-scheduler linear -veps -1 --short-final-eval true -vme 40"
)
FEW = "-bs 32 -lr 2e-4 --warmup-updates 20 --max-train-steps 240"
ALL = "-bs 64 -lr 2e-4 --warmup-updates 100"
JOINT = "--text-truncate 64 --label-truncate 32 --dropout 0 --precision bf16 -veps -1 -vme 8 --short-final-eval true"
UNI = f"{JOINT} -bs 2 --cross-negatives 1 -lr 1e-12 --max-train-steps 1"  # as it begins
CROSS = f"{JOINT} -bs 16 --cross-negatives 9 -lr 5e-5 --lr-scheduler linear --warmup-updates 6 --max-train-steps 60"
OF_MODEL = {"bi": "", "poly": "--poly-n-codes 16 --codes-learningrate 0.01"}
MEAN = "-mean"  # the end of the names of means
MODELS = ("bi", "poly", "uni", "cross", "pipeline", "bi-mean", "poly-mean")
TOP = 10  # options that the pipeline's second model orders
TIMED = 100  # contexts


def main() -> None:
    """Train what is missing, calibrate, measure, and print a row for each kind of model."""
    parser = CommandParser("decisions", "Measure the decisions of models of one task.")
    parser.add_argument("task", choices=sorted(TASKS))
    parser.add_argument("work", help="a folder of models and results")
    parser.add_argument("--backbone", required=True)
    parser.add_argument("-dp", "--datapath", required=True)
    parser.add_argument("--few-shot", type=positive_int, help="examples of each option; by default all")
    parser.add_argument("--updates", type=positive_int, default=1200, help="without --few-shot")
    parser.add_argument("--models", nargs="+", default=["bi", "poly", "pipeline"], choices=MODELS)
    parser.add_argument("--seeds", type=positive_ints, default=(1, 2, 3, 4, 5))
    opt = vars(parser.parse_args())
    if opt["few_shot"] and any(model.endswith(MEAN) for model in opt["models"]):
        parser.error("the seeds of --few-shot draw other examples, and a mean would have learnt all of them")
    patches.apply()
    os.makedirs(opt["work"], exist_ok=True)
    rows = [
        [
            "model",
            "seeds",
            "accuracy",
            "log loss",
            "ECE before",
            "ECE",
            "AUROC",
            "none recall",
            "precision",
            "answered",
            "ms",
        ]
    ]
    for model in opt["models"]:
        found = [result(opt, model, seed) for seed in opt["seeds"][: 1 if model.endswith(MEAN) else None]]
        names = ("accuracy", "log_loss", "before", "ece", "auroc", "none_recall", "precision", "coverage", "ms")
        rows.append([model, str(len(found)), *(mean_of([one[name] for one in found]) for name in names)])
        print("\n".join(in_columns(rows)), flush=True)


def mean_of(values: Sequence[float | None]) -> str:
    """Write the mean of the seeds, and their standard deviation if there are several."""
    known = [value for value in values if value is not None]
    if not known:
        return "-"
    spread = f" ± {statistics.stdev(known):.3f}" if len(known) > 1 else ""
    return f"{statistics.fmean(known):.3f}{spread}"


def result(opt: dict[str, Any], model: str, seed: int) -> dict[str, Any]:
    """Return the figures of one model, from its file in WORK if it was measured before."""
    size = f"{opt['few_shot']}" if opt["few_shot"] else "all"
    path = os.path.join(opt["work"], f"{opt['task']}_{size}_{model}_{seed}.json")
    if not os.path.exists(path):
        first = trained(opt, "bi" if model in ("cross", "pipeline") else model, seed, size)
        second = trained(opt, "uni" if model == "pipeline" else model, seed, size)
        loaded = Ranker.load(first), None if second == first else Ranker.load(second)
        write_text(path, json.dumps(measure(opt, *loaded), indent=2) + "\n")
    with open(path, encoding="utf-8") as file:
        found: dict[str, Any] = json.load(file)
    return found


def trained(opt: dict[str, Any], model: str, seed: int, size: str) -> str:
    """Return the file of a model of its own; it is trained if it is missing."""
    file = os.path.join(opt["work"], f"{opt['task']}_{size}_{model}_{seed}.model")
    if model.endswith(MEAN) and not os.path.exists(file):
        Ranker.average([trained(opt, model.removesuffix(MEAN), one, size) for one in opt["seeds"]]).save(file)
    elif not os.path.exists(file):
        own = ["-m", model, "-t", TASKS[opt["task"]], "-dp", opt["datapath"], "--seed", str(seed)]
        if model in ("uni", "cross"):
            own += ["--init-model", trained(opt, "bi", seed, size), *(UNI if model == "uni" else CROSS).split()]
        else:
            own += ["--backbone", opt["backbone"], *FLAGS.split(), *OF_MODEL[model].split()]
            own += FEW.split() if opt["few_shot"] else [*ALL.split(), "--max-train-steps", str(opt["updates"])]
        if opt["few_shot"]:
            own += ["--few-shot", str(opt["few_shot"]), "--few-shot-seed", str(seed)]
        train(own, file)
    return file


def train(arguments: list[str], file: str) -> None:
    """Run `train_model` in a process of its own."""
    command = [sys.executable, "-m", "polyagents", "train_model", "-mf", file, *arguments]
    with open(f"{file}.log", "w", encoding="utf-8") as log:
        subprocess.run(command, check=True, stdout=log, stderr=log)


def measure(opt: dict[str, Any], first: Ranker, second: Ranker | None) -> dict[str, Any]:
    """Calibrate on valid, and measure on test."""
    task = ParlaiParser(True, True).parse_args(["-t", CALIBRATED_ON[opt["task"]], "-dp", opt["datapath"]])
    valid, test = (examples_of_task(task | {"datatype": name}) for name in ("valid", "test"))
    reranker = None if second is None else (second.model, second.identity)
    calibration = calibration_of(first.model, first.identity, valid, reranker, TOP)
    first.calibration = calibration
    scored = scores_of(first.model, test, None if second is None else second.model, TOP)
    found: MeasuredCalibration = measured(calibration, scored)
    assert test.shared is not None
    options = first.prepare(test.shared.texts)
    seconds = median_seconds(lambda context: first.decide(context, options, None, second, TOP), test.contexts[:TIMED])
    return flat(found, calibration) | {"ms": seconds * 1e3}


def flat(found: MeasuredCalibration, calibration: Calibration) -> dict[str, Any]:
    """Return the figures by the names of the table's columns."""
    figures = found.figures
    return {
        "accuracy": figures.in_scope_accuracy,
        "log_loss": figures.log_loss,
        "before": calibration.before.ece.value,
        "ece": figures.ece.value,
        "ece_low": figures.ece.low,
        "ece_high": figures.ece.high,
        "auroc": figures.auroc,
        "none_recall": figures.none_recall,
        "precision": found.precision,
        "coverage": found.coverage,
    }


if __name__ == "__main__":
    main()
