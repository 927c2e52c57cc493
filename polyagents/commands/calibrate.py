"""`polyagents calibrate`: fit the probabilities of `decide`, and report how good they are."""

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from polyagents.arguments import positive_int
from polyagents.commands.context_answers import add_rerank_flags
from polyagents.commands.decide import read_options
from polyagents.commands.task_parser import TaskCommandParser, load_with_flags
from polyagents.console import decimals, in_columns, number_of, range_of
from polyagents.errors import InputError
from polyagents.files.atomic import atomic_write

if TYPE_CHECKING:
    from polyagents.decisions.calibration import Calibration
    from polyagents.decisions.figures import Figures

PRECISIONS = (0.9, 0.95, 0.99)


def parser() -> argparse.ArgumentParser:
    """Declare the flags: a model, and a task with examples that it was not trained on."""
    parser = TaskCommandParser(
        "polyagents calibrate",
        "Fit the map from a model's scores to probabilities on held-out examples, by default the valid split, and "
        "write it to M.calibration.json. Examples without a right option (candidates and an empty label) teach it "
        "'none of these'.",
        task_required=True,
        evaluates=True,
    )
    parser.add_argument(
        "--options-file",
        help="the options of all examples, as for decide; by default each example's candidates, or all labels",
    )
    parser.add_argument("-ne", "--num-examples", type=positive_int, help="use the first N; by default all")
    add_rerank_flags(parser)
    return parser


def run(opt: Mapping[str, Any]) -> None:
    """Read the examples, fit, write the file, print the figures."""
    if "train" in opt["datatype"] and "evalmode" not in opt["datatype"]:
        raise InputError("--datatype train is what the model was trained on; calibrate on valid, or on other examples.")
    from polyagents.decisions.calibration import calibration_of, path_of, write_calibration  # imports torch
    from polyagents.parlai_agents.decision_task import examples_of_task
    from polyagents.training_loop.training_curve import drawn
    from polyagents.zoo.resolve import zoo_file

    options = None if opt["options_file"] is None else read_options(opt["options_file"])
    file = zoo_file(opt["model_file"], opt["datapath"])
    ranker = load_with_flags(opt, file)
    second = load_with_flags(opt, opt["rerank"], ("backend", "precision")) if opt["rerank"] else None
    examples = examples_of_task(opt, options)
    reranker = None if second is None else (second.model, second.identity)
    found = calibration_of(ranker.model, ranker.identity, examples, reranker, opt["rerank_top"])
    path = path_of(file)
    write_calibration(found, path)
    picture = drawn(
        "The reliability picture", path.removesuffix(".json") + ".png", lambda png: draw_reliability(png, found)
    )
    print("\n".join(figure_lines(found)))
    print(f"\nWritten: {path}" + (f", and the picture {picture}" if picture else ""))


def figure_lines(found: "Calibration") -> list[str]:
    """Write the figures for people."""
    made_for, after = found.made_for, found.after
    options = range_of(made_for.least_options, made_for.most_options, "option")
    examples = number_of(after.examples, "example")
    lines = [f"{examples}, {options} each; each half measured by the map of the other."]
    lines += ["", *in_columns([["", "before", "after"], *figure_rows(found.before, after)]), ""]
    rows = [["precision at least", "threshold", "answered", "precision", "sure"]]
    for wanted in PRECISIONS:
        one = found.threshold_for(wanted)
        cells = ["none is sure"] if one is None else [str(one.threshold), f"{one.coverage:.1%}"]
        rows.append([f"{wanted:.0%}", *cells, *([] if one is None else [f"{one.precision:.1%}", f"{one.bound:.1%}"])])
    return [*lines, *in_columns([[*row, *[""] * (5 - len(row))] for row in rows])]


def figure_rows(before: "Figures", after: "Figures") -> list[list[str]]:
    """Return the rows of the table of figures."""
    names = {"accuracy": "accuracy", "log_loss": "log loss", "brier": "Brier score"}
    rows = [[text, decimals(getattr(before, name)), decimals(getattr(after, name))] for name, text in names.items()]
    if after.auroc is not None:  # without the map, none of these has no probability
        rows[1][1] = "-"
    errors = [f"{one.ece.value:.3f} ({one.ece.low:.3f}, {one.ece.high:.3f})" for one in (before, after)]
    rows.append(["calibration error", *errors])
    if after.auroc is not None:
        rows.append(["none: AUROC", "", f"{after.auroc:.3f}"])
        rows.append(["none: recall at 95 % of the others kept", "", f"{after.none_recall:.3f}"])
        rows.append(["accuracy in scope", "", f"{after.in_scope_accuracy:.3f}"])
    return rows


def draw_reliability(path: str, found: "Calibration") -> None:
    """Draw the share of right choices over their probability, in bins of equal mass, into a PNG."""
    from matplotlib.figure import Figure  # takes a second, and is not a dependency of the core

    figure = Figure(figsize=(4.4, 4.4), layout="constrained")
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], "--", color="gray", label="perfect")
    axes.plot([one.probability for one in found.bins], [one.right for one in found.bins], "o-", label="measured")
    ece = found.after.ece
    axes.set(
        xlabel="probability of the choice",
        ylabel="share of right choices",
        title=f"Calibration error {ece.value:.3f} ({ece.low:.3f}, {ece.high:.3f})",
        xlim=(0, 1),
        ylim=(0, 1),
    )
    axes.grid(alpha=0.3)
    axes.legend(loc="upper left")
    with atomic_write(path) as temporary:
        figure.savefig(temporary, format="png", dpi=120)
