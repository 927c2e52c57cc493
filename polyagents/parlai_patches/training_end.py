"""The end of a run of train_model: its summary, and its curves next to the model."""

from collections.abc import Iterable, Mapping
from typing import Any

from parlai.core.opt import Opt
from parlai.core.params import ParlaiParser
from parlai.scripts.train_model import TrainLoop
from parlai.utils import logging
from parlai.utils.distributed import is_primary_worker

from polyagents.arguments import flag_of
from polyagents.console import command, number_of, say
from polyagents.parlai_patches.run_plan import kept_report
from polyagents.training_loop.summary import Summary
from polyagents.training_loop.training_curve import Point, draw_beside
from polyagents.training_loop.training_files import after_the_end

UPDATES = "train_steps"  # ParlAI's name in .trainstats


def with_summary(train: Any, loop: TrainLoop) -> Any:
    """Do as ParlAI's `train`; the first of all processes draws the curves and prints a summary after it."""
    reports = train(loop)
    if hasattr(loop.agent, "watch"):
        loop.agent.watch.check_learned()
    file = loop.opt.get("model_file")
    if is_primary_worker() and file:
        spare = after_the_end(file, loop.opt.get("keep_checkpoint", True))
        summary = summary_of(loop, reports[0], draw_beside(file, *curves_of(loop, reports[0])), spare)
        # Not isEnabledFor, which remembers an earlier level: Python does not know of ParlAI's logger.
        if logging.logger.getEffectiveLevel() <= logging.INFO:
            for line in summary.lines():
                say(line)
    return reports


def curves_of(loop: TrainLoop, final: Mapping[str, Any]) -> tuple[list[Point], list[Point]]:
    """Return loss and R@1 of a run, the runs that it resumed and the validation at its end included."""
    training = points_of(loop.train_reports, "mean_loss", "train_accuracy")
    validation = points_of(loop.valid_reports, "loss", "hits@1")
    if not validation:
        validation = points_of([{**final, UPDATES: loop._train_steps}], "loss", "hits@1")
    return training, validation


def points_of(reports: Iterable[Mapping[str, Any]], loss: str, recall: str) -> list[Point]:
    """Return what ParlAI's reports say of loss and R@1, by these names, if they say both."""
    return [
        Point(*(float(report[name]) for name in (UPDATES, loss, recall)))
        for report in reports
        if {UPDATES, loss, recall} <= report.keys()
    ]


def summary_of(loop: TrainLoop, final: Mapping[str, Any], plot: str | None, spare: int) -> Summary:
    """Return the summary of a run, given its last validation, the picture of its curves, and the checkpoint's bytes."""
    opt, metric = loop.opt, loop.opt["validation_metric"]
    best = final.get(metric) if loop.best_valid is None else loop.best_valid
    kept = kept_report(loop)
    report = loop.valid_reports[-1] if loop.valid_reports else final
    lack = int(report.get("no_candidates", 0))
    return Summary(
        updates=loop._train_steps,
        seconds=loop.train_time.time(),
        metric=metric,
        best=None if best is None else float(best),
        model_file=opt["model_file"],
        plot=plot,
        next=commands_after_training(opt) if hasattr(loop.agent, "ranking") else (),
        candidates=float(report["candidates"]) if "candidates" in report else None,
        ranked=f"{number_of(lack, 'example')} without any: the labels of their batch" if lack else "",
        checkpoint=spare,
        kept=None if kept is None else float(kept[metric]),
        keeps_start=kept is not None and kept.get(UPDATES) == 0,
        named=flag_of,
    )


def commands_after_training(opt: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return the next commands for a trained ranker; the options file of the model has the flags of the model."""
    model, learnt, held_out = ("-mf", opt["model_file"]), opt["task"], opt.get("evaltask") or opt["task"]
    several = "," in held_out  # evaluate takes one task
    evaluate, metrics = ("eval_model", "metrics") if several else ("evaluate", "R@1, R@5, R@10 and MRR, with intervals")
    return (
        (command(evaluate, *model, "-t", held_out, *flags_of_task(opt, held_out)), metrics),
        (command("interactive", *model, "-t", learnt, *flags_of_task(opt, learnt)), "chat with it"),
        (command("serve", *model), "a chat page, and JSON endpoints"),
    )


def flags_of_task(opt: Mapping[str, Any], task: str) -> list[str]:
    """Return a task's flags that the user gave, and `--datapath`: ParlAI does not take them from a model's file."""
    parser, given = ParlaiParser(False, False), opt.get("override", {})
    others = {action.dest for action in parser._actions}
    parser.add_task_args(task, Opt(opt))
    own = {action.dest: max(action.option_strings, key=len) for action in parser._actions if action.dest not in others}
    found = [(flag, given[name]) for name, flag in (own | {"datapath": "--datapath"}).items() if name in given]
    return [str(part) for flag, value in found for part in (flag, value) if value is not None]
