"""`polyagents demo`: train the four architectures on the built-in task, compare them, and chat."""

import argparse
import contextlib
import io
import os
import shutil
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from polyagents.arguments import CommandParser, Whole
from polyagents.console import Bar, command, decimals
from polyagents.files.own_folder import own_folder

if TYPE_CHECKING:
    from polyagents.ranker import Ranker

TASK = "polyagents.tasks.sample"
EVALUATED = 160  # test examples; the standard error of R@1 is .04
UNTRAINED = "MiniLM"  # the row of the encoder that the bi-encoder starts from
START = "bi"  # the others start from its weights: from MiniLM's they learn more slowly than this demo

# Chosen here, to fit three minutes on two cores. Where an example costs more, there are fewer.
STEPS = {"bi": 32, "poly": 16, "uni": 12, "cross": 6}
TWO_TOWERS = {"batchsize": 32, "share_encoders": True, "similarity": "cosine"}
# Replies of this task share no words with what they answer: comparing tokens (cosine+late) does not help.
JOINT = {"joint_head": "cosine", "cross_negatives": 7, "learningrate": 3e-5}
FLAGS = {
    "bi": TWO_TOWERS | {"model": "polyagents:BiEncoder", "learningrate": 4e-4},
    "poly": TWO_TOWERS | {"model": "polyagents:PolyEncoder", "learningrate": 5e-5, "poly_n_codes": 16},
    "uni": JOINT | {"model": "polyagents:UniEncoder", "batchsize": 16},
    "cross": JOINT | {"model": "polyagents:CrossEncoder", "batchsize": 8},
}
COMMON = {"task": TASK, "reduction_type": "mean", "warmup_updates": 5, "dropout": 0.0}
TIMED_CONTEXTS = {UNTRAINED: 25, "bi": 25, "poly": 25, "uni": 3, "cross": 1}


@dataclass(frozen=True)
class Result:
    """One row of the table. Times are for one message over all replies of the task, with candidate vectors ready."""

    name: str
    recall: float
    mrr: float
    milliseconds: float
    seconds: float


def train_one(name: str, model_file: str, start: dict[str, str], percent: int) -> float:
    """Train like `parlai train_model`, with a bar for its log, some percent of the updates; return the seconds."""
    # Imports ParlAI, which --help should not need.
    from parlai.scripts.train_model import TrainLoop, TrainModel, set_seed

    from polyagents.parlai_patches.compat import quiet

    steps = max(STEPS[name] * percent // 100, 1)
    opt = TrainModel.setup_args().parse_kwargs(
        **COMMON | FLAGS[name] | start,
        model_file=model_file,
        max_train_steps=steps,
        lr_scheduler="none",
        validation_every_n_epochs=-1.0,
        log_every_n_steps=5,
    )
    set_seed(1)  # the loop leaves this to the command
    with quiet(), Bar(total=steps, desc=f"training {name:5}", unit=" steps") as bar:
        loop = TrainLoop(opt)
        begin = time.perf_counter()
        for log in loop.train_steps():
            bar.set_postfix(loss=f"{float(log['mean_loss']):.3f}", refresh=False)
            bar.update(loop._train_steps - bar.n)
        seconds = time.perf_counter() - begin
        bar.update(steps - bar.n)
        loop.save_model()
    return seconds


def evaluate_one(name: str, model_file: str, replies: list[str], contexts: list[str]) -> tuple[float, float, float]:
    """Return the task's R@1 and MRR from ParlAI's report, and the milliseconds of a reply."""
    from parlai.scripts.eval_model import EvalModel  # imports ParlAI, which --help should not need

    from polyagents.parlai_patches.compat import quiet
    from polyagents.ranker import Ranker, median_seconds

    print(f"evaluating {name} ...", flush=True)
    with quiet(), contextlib.redirect_stdout(io.StringIO()):  # ParlAI prints the whole report, twice
        report = EvalModel.main(
            model_file=model_file, task=TASK, datatype="test", batchsize=20, num_examples=EVALUATED, metrics="loss"
        )
    ranker = Ranker.load(model_file)
    prepared = ranker.prepare(replies)
    some = contexts[: TIMED_CONTEXTS[name]]
    median = median_seconds(lambda context: ranker.rank(context, prepared, top_k=1), some)
    return float(report["hits@1"]), float(report["mrr"]), 1000 * median


def draw_quality(results: list[Result], path: str) -> None:
    """Draw quality against speed."""
    from matplotlib.figure import Figure  # not a dependency of the core

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    for r, marker in zip(results, "vos^D", strict=True):  # points may be close together, so names go into a legend
        name = f"{r.name}, untrained" if r.name == UNTRAINED else f"{r.name}-encoder"
        label = f"{name}: {r.recall:.3f}, {r.milliseconds:.1f} ms"
        axes.scatter(r.milliseconds, r.recall, s=80, marker=marker, alpha=0.8, label=label)
    axes.set(xscale="log", xlabel="milliseconds per reply (log scale; left is faster)", ylabel="R@1/20 on the test set")
    axes.set_title("Quality against speed on the sample task")
    axes.margins(0.3)
    axes.set_ylim(0, 1)
    axes.grid(alpha=0.3)
    axes.legend(loc="upper center")
    figure.savefig(path, dpi=150)


def converse(ranker: "Ranker", dialogue: list[tuple[str, str]], replies: list[str]) -> None:
    """Print one test dialogue: the partner's turns are given, the model chooses among all replies of the task."""
    index = ranker.prepare(replies)
    history: list[str] = []
    for message, label in dialogue:
        for line in message.split("\n"):
            print(f"  {line}" if line.startswith("your persona:") else f"  partner: {line}")
        history.append(message)
        first, second = ranker.rank("\n".join(history), index, top_k=2)
        scores = decimals(first.score, 2), decimals(second.score, 2)
        print(f"    model: {first.text}   [{scores[0]}; next: {second.text} {scores[1]}]")
        history.append(label)


def parser() -> argparse.ArgumentParser:
    """Declare the flags: a folder, and how long to train."""
    parser = CommandParser("polyagents demo", "Train bi, poly, uni and cross on a built-in task and compare them.")
    parser.add_argument("--output", default="demo-output", help="folder for models, table and picture")
    parser.add_argument("--percent", type=Whole(1, 100), default=100, help="share of the training steps, in percent")
    return parser


def run(opt: Mapping[str, Any]) -> list[Result]:
    """Train, compare, chat: the whole library in a few minutes."""
    from polyagents.parlai_patches import patches  # imports ParlAI, which --help should not need
    from polyagents.ranker import Ranker
    from polyagents.tasks.sample.generate import dialogues, replies

    patches.apply()
    warnings.filterwarnings("ignore")
    output, everything = opt["output"], replies()
    own_folder(output, "demo", "--output")
    for name in (UNTRAINED, *FLAGS):  # of an earlier demo
        shutil.rmtree(os.path.join(output, name), ignore_errors=True)
    test = dialogues("test")
    contexts = [dialogue[0].text for dialogue in test]
    model_file = os.path.join(output, UNTRAINED, "M")
    Ranker.from_encoder("zoo:minilm", no_cuda=True).save(model_file)
    results = [Result(UNTRAINED, *evaluate_one(UNTRAINED, model_file, everything, contexts), 0.0)]
    for name in FLAGS:
        model_file = os.path.join(output, name, "M")
        start = {"backbone": "zoo:minilm"}
        if name != START:
            start["init_model"] = os.path.join(output, START, "M")
        seconds = train_one(name, model_file, start, opt["percent"])
        measured = evaluate_one(name, model_file, everything, contexts)
        results.append(Result(name, *measured, seconds))
    heading = f"{'':8}{'R@1/20':>8}{'MRR':>8}{'ms per reply':>15}{'training, s':>14}"
    lines = [f"{heading}   (a reply is one of {len(everything)})"]
    for r in results:
        lines.append(f"{r.name:8}{r.recall:>8.3f}{r.mrr:>8.3f}{r.milliseconds:>15.2f}{r.seconds:>14.0f}")
    comparison = "\n".join(lines)
    print(f"\n{comparison}\n")
    with open(os.path.join(output, "table.txt"), "w", encoding="utf-8") as file:
        file.write(f"{comparison}\n")
    print("The bi-encoder starts from MiniLM as it is, and all others from the bi-encoder trained above.")
    draw_quality(results, os.path.join(output, "quality_speed.png"))
    print(f"The picture is in {output}/quality_speed.png, the models are in {output}/*/M.\n")
    print("A test dialogue, answered by the poly-encoder from all replies of the task:\n")
    longest = max(test, key=len)
    ranker = Ranker.load(os.path.join(output, "poly", "M"))
    converse(ranker, [(turn.text, turn.label) for turn in longest], everything)
    chat = command("interactive", "-mf", os.path.join(output, "poly", "M"))
    print(f"\nTalk to it yourself (first line: a persona, such as 'your persona: i own a dog .'):\n  .venv/bin/{chat}")
    return results
