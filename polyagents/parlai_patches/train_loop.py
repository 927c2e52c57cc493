"""ParlAI's training loop, patched so that a killed run is resumed and no file is ever incomplete.

A model in training is two files: M, the weights that did best so far, and M.checkpoint, the last state with the
optimiser's, from which the same command resumes. Each has a .opt, a .dict and a .trainstats next to it; the content of
M.checkpoint.trainstats is in M.checkpoint, too, as a run may be killed between writing the two.
"""

import contextlib
import functools
import io
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from parlai.core.opt import Opt
from parlai.scripts import train_model
from parlai.scripts.train_model import TrainLoop
from parlai.utils import logging
from parlai.utils.distributed import is_primary_worker

from polyagents.arguments import flag_of
from polyagents.console import number_of
from polyagents.errors import InputError, NoTestSplit, did_you_mean
from polyagents.files.atomic import write_text
from polyagents.files.json_files import fits, parse_json, read_json
from polyagents.model_files import initial_weights
from polyagents.model_files.saving import refuse_other_file
from polyagents.parlai_patches import run_plan
from polyagents.parlai_patches.exchanges import WorldInOrder
from polyagents.parlai_patches.loop_bar import progress_bar
from polyagents.parlai_patches.training_end import UPDATES
from polyagents.timings import training_machine
from polyagents.training import distributed
from polyagents.training_loop.summary import said_over

CHECKPOINT = initial_weights.CHECKPOINT
OWN_DICTIONARIES = "polyagents."  # the beginning of their names
ALWAYS_SMALLER = ("loss", "ppl", "mean_rank")  # of these metrics ParlAI keeps the smallest, whatever the flag says


@dataclass
class Noted:
    """An evaluation of the worlds of some tasks.

    Attributes:
        sizes: how many examples of each task were wanted.
        digests: what was read; empty until it was.
        reports: the report of each task, of this process.
    """

    sizes: list[float]
    digests: list[str] = field(default_factory=list)
    reports: list[Any] = field(default_factory=list)


def is_training_run(opt: Opt) -> bool:
    """Return whether an agent with these options is to be trained."""
    datatype = opt.get("datatype", "")
    return not opt.get("interactive_mode") and "train" in datatype and "evalmode" not in datatype


def of_training_data(init: Any, loop: TrainLoop, opt: Opt) -> None:
    """Begin ParlAI's loop: it checks its options first, and keeps the smallest loss and rank of any task."""
    check_options(opt)
    metric = opt["validation_metric"].rsplit("/")[-1]
    if metric in (*ALWAYS_SMALLER, "rank"):
        opt["validation_metric_mode"] = opt["validation_metric_mode"] or "min"  # ParlAI: of its own names alone
    if metric == "loss" and "validation_cutoff" not in opt.get("override", {}):
        opt["validation_cutoff"] = 0.0  # ParlAI's 1 is the best accuracy or rank, but no loss to end at
    init(loop, opt)


def check_options(opt: Opt) -> None:
    """Refuse options that the run could not use, or not at its end, before anything is written."""
    if not str(opt.get("model")).startswith("polyagents:"):
        return
    if file := opt.get("model_file"):
        refuse_other_file(file)  # before ParlAI writes the dictionary next to it
    if not (name := str(opt.get("dict_class") or OWN_DICTIONARIES)).startswith(OWN_DICTIONARIES):
        raise InputError(f"--dict-class {name}: the vocabulary is the backbone's; omit the flag.")
    if not is_training_run(opt):
        raise InputError(
            f"--datatype {opt.get('datatype')}: training learns from training examples only; omit the flag, or give "
            f"train, train:stream or train:ordered."
        )
    # ParlAI reads this file when the training is over.
    if (file := opt.get("final_extra_opt")) and "datatype" not in Opt.load_init(file):
        raise InputError(f"--final-extra-opt {file}: the options have no datatype; add one, such as valid.")


def in_this_process(create_task: Any, opt: Opt, *args: Any, **kwargs: Any) -> Any:
    """Create a task for a dictionary, which is built without the worker processes of `--num-workers`.

    These ask it for things that only a model has. `--every-utterance` is off, too: it repeats lines for each target.
    """
    return create_task(Opt(opt | {"num_workers": 0, "every_utterance": False}), *args, **kwargs)


def without_missing_test_sets(load_eval_worlds: Any, agent: Any, opt: Opt, datatype: str) -> list[Any]:
    """Load ParlAI's worlds for an evaluation; a task without a test set gets none, where ParlAI fails."""
    if datatype != "test":
        return list(load_eval_worlds(agent, opt, datatype))
    worlds = []
    for task in (opt.get("evaltask") or opt["task"]).split(","):
        try:
            worlds += load_eval_worlds(agent, Opt(opt | {"task": task, "evaltask": None}), datatype)
        except NoTestSplit as error:
            logging.warning(f"The evaluation of test at the end skips {task}: {error}")
    return worlds


# ---- evaluations: ParlAI's `_run_eval`, with more around it ----------------------------------------------------------


def over_test_worlds(
    run_eval: Any, loop: TrainLoop, worlds: list[Any], opt: Opt, datatype: str, *args: Any, **kwargs: Any
) -> dict[str, Any]:
    """Evaluate; if no task has a test set, the report is empty, and there is no file.

    ParlAI divides by the number of worlds, and identifies them by the index of their task among all.
    """
    if not worlds:
        return {}
    if datatype == "test":
        opt = Opt(opt | {"task": ",".join(world.opt["task"] for world in worlds), "evaltask": None})
    return dict(run_eval(loop, worlds, opt, datatype, *args, **kwargs))


def with_the_metric(
    run_eval: Any, loop: TrainLoop, worlds: list[Any], opt: Opt, datatype: str, *args: Any, **kwargs: Any
) -> dict[str, Any]:
    """Evaluate, and refuse a --validation-metric that a validation does not report.

    A ranker is validated before its training, and the evaluation at the end chooses nothing by the metric.
    """
    report: dict[str, Any] = run_eval(loop, worlds, opt, datatype, *args, **kwargs)
    name = opt["validation_metric"]
    is_chosen = datatype == "valid" and not kwargs.get("write_log") and "loss" in report  # else there is no label
    if is_chosen and name not in report:
        same = [known for known in report if known.split("/")[-1] == name.split("/")[-1]]
        raise InputError(
            f"--validation-metric {name}: the validation of {opt.get('evaltask') or opt['task']} does not report "
            f"that{did_you_mean(name, report)}; give one of {', '.join(same or report)}."
        )
    return report


def over_first_examples(
    run_eval: Any,
    loop: TrainLoop,
    worlds: list[Any],
    opt: Opt,
    datatype: str,
    max_exs: float = -1,
    *args: Any,
    **kwargs: Any,
) -> dict[str, Any]:
    """Evaluate, of worlds in order, exactly as many examples as wanted.

    What was evaluated with the same weights before is not evaluated again: at the end valid, if the validation that
    kept M was of all of it, and test, if a task gives its valid set for it, as ParlAI's convai2 does.
    """
    if not all(isinstance(world, WorldInOrder) for world in worlds):
        return dict(run_eval(loop, worlds, opt, datatype, max_exs, *args, **kwargs))
    if max_exs > 0:
        for place, world in enumerate(worlds):
            world.limit = (int(max_exs) + place) // len(worlds)
    known = vars(loop).setdefault("evaluated", {})
    is_final = kwargs.get("write_log") and "extra_log_suffix" not in kwargs
    noted = Noted([world.num_examples() or world.limit for world in worlds])
    if datatype == "test" and worlds and [world.digest_of_all() for world in worlds] == known.get("valid"):
        logging.info(f"--task {opt['task']} gives its valid set for test: see the result on valid, above.")
        known["test"] = known["valid"]
        return dict(loop.final_valid_report)
    kept: Noted | None = vars(loop).get("noted_of_kept")
    again: Any = contextlib.nullcontext()
    if datatype == "valid" and is_final and kept is not None and kept.sizes == noted.sizes:
        noted, reports = kept, iter(kept.reports)
        again = mock.patch.object(loop, "_run_single_eval", lambda *_: next(reports))
    loop.noted = noted
    with again:
        report = dict(run_eval(loop, worlds, opt, datatype, -1, *args, **kwargs))
    noted.digests = noted.digests or [world.digest for world in worlds]
    if kwargs.get("write_log"):  # at the end, of the best model
        known[datatype] = noted.digests
    return report


def note_report(run_single_eval: Any, loop: TrainLoop, *args: Any) -> Any:
    """Do as ParlAI's `_run_single_eval`, and note the report of each task for the end of the run."""
    report = run_single_eval(loop, *args)
    if hasattr(loop, "noted"):
        loop.noted.reports.append(report)
    return report


# ---- resuming --------------------------------------------------------------------------------------------------------


def resume_and_train(train_steps: Any, loop: TrainLoop) -> Iterator[Any]:
    """Keep the best model of a resumed run, and validate at the same times as an undisturbed one.

    ParlAI overwrites M at the end of a resumed run that has not beaten it, and then evaluates M.checkpoint for M.
    """
    file = loop.opt.get("model_file")
    if loop.best_valid is not None and file:
        metric, mode = loop.opt["validation_metric"], loop.opt["validation_metric_mode"]
        last = f"{file}{CHECKPOINT}" if os.path.exists(f"{file}{CHECKPOINT}.opt") else file
        initial_weights.refuse_another_metric(last, metric, None if metric in ALWAYS_SMALLER else mode)
    if str(loop.opt.get("init_model")).endswith(CHECKPOINT):
        loop.opt["init_model"] = None
    loop.saved = loop.best_valid is not None and bool(file) and os.path.exists(file)
    if loop.valid_reports:  # ParlAI does not restore this, and would validate after the first update
        loop._last_valid_steps = loop.valid_reports[-1][UPDATES]
    if hasattr(loop.world, "updates_done"):
        counted_by_world(loop)
    if loop._train_steps:
        logging.info(f"Resuming the training of {file}: {number_of(loop._train_steps, 'update')} made before.")
    with progress_bar(loop):
        run_plan.begin_plan(loop)
        trained = loop.agent
        if run_plan.is_over(loop):  # ParlAI would make one more update
            logging.info(said_over(file, loop._train_steps, flag_of))
            end_again(loop)
        else:
            yield from train_steps(loop)
    if hasattr(trained, "rate"):
        loop.agent.rate = trained.rate  # of the agent that ParlAI has loaded for the evaluation at the end


def end_again(loop: TrainLoop) -> None:
    """Do what ParlAI does after the last update: validate it, if that was not done, and take the best model."""
    loop.run_progress = 1.0
    loop.world.shutdown()
    if not train_model.sync_object(loop.saved):
        loop.save_model()
    train_model.sync_object(None)  # the first process has written M
    loop.agent = train_model.create_agent(loop.opt)


def counted_by_world(loop: TrainLoop) -> None:
    """Set the progress of a resumed run to the checkpoint's; .trainstats may be older."""
    loop.parleys = loop._train_steps = loop.world.updates_done()
    loop._total_epochs = loop._preempted_epochs = loop.world.epochs_before()
    loop._total_exs = 0
    loop.world.before_the_end = functools.partial(validate_last_update, loop)


def validate_last_update(loop: TrainLoop) -> None:
    """Validate at the end of a pre-training; ParlAI does not count the update that ended the schedule."""
    loop.parleys = loop._train_steps = loop.world.updates_done()
    if loop.saved:
        run_plan.validate_once_more(loop)


def save_with_checkpoint(save_model: Any, loop: TrainLoop, suffix: str | None = None) -> None:
    """Do as ParlAI's `save_model`; a run that never validated saves M at its end, and a checkpoint to resume from."""
    if suffix == CHECKPOINT:
        run_plan.keep_if_good_enough(loop)
    loop.agent.progress = progress_of(loop)
    save_model(loop, suffix)
    if suffix is None and not loop.valid_reports and loop.opt.get("save_after_valid"):
        save_model(loop, CHECKPOINT)


def progress_of(loop: TrainLoop) -> str:
    """Return what ParlAI would write to .trainstats, as a text, with the machine; empty if it writes nothing."""
    written = io.StringIO()
    with mock.patch.object(train_model, "PathManager") as files:
        files.open.return_value = contextlib.nullcontext(written)
        TrainLoop._save_train_stats.__wrapped__(loop)
    if not written.getvalue():  # of several processes only the first one writes
        return ""
    more = {"machine": training_machine(), "evaluated": vars(loop).get("evaluated", {})}
    return json.dumps(parse_json(written.getvalue()) | more, indent=4)


def save_progress(_: Any, loop: TrainLoop, suffix: str | None = None) -> None:
    """Write .trainstats atomically: a resumed run needs this JSON, and ParlAI overwrites the last one in place."""
    file = loop.opt.get("model_file")
    if file and is_primary_worker():
        write_text(f"{file}{suffix or ''}.trainstats", progress_of(loop))


def check_progress(progress: Any) -> None:
    """Refuse progress that ParlAI's loop cannot resume from, by a ValueError; the file may be somebody else's."""
    found = parse_json(progress) if isinstance(progress, str) else None
    if not isinstance(found, dict) or not fits(found.get("valid_reports"), list[dict[str, Any]]):
        raise ValueError("progress")
    for counts in (found, *found["valid_reports"]):
        if not (fits(counts.get(UPDATES), int) and counts[UPDATES] >= 0):
            raise ValueError("progress")


def restore_progress(checkpoint: str, progress: str | None) -> None:
    """Make the .trainstats of a checkpoint match its number of updates, before ParlAI's loop reads them.

    Args:
        progress: what the checkpoint says of it; None if an earlier version wrote it.
    """
    if progress is not None and is_primary_worker():
        path = f"{checkpoint}.trainstats"
        if updates_in(path) != parse_json(progress).get(UPDATES):
            write_text(path, progress)
    distributed.gathered(None)  # they are not read earlier


def updates_in(path: str) -> int | None:
    """Return the number of updates in .trainstats; None if there are none, or they are damaged."""
    try:
        found = read_json(path)
    except (OSError, ValueError):
        return None
    return found.get(UPDATES) if isinstance(found, dict) else None
