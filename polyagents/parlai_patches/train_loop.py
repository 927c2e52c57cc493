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
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from parlai.core.opt import Opt
from parlai.scripts import build_dict, train_model
from parlai.scripts.train_model import TrainLoop
from parlai.utils import logging
from parlai.utils.distributed import is_primary_worker

from polyagents.errors import InputError, NoTestSplit, did_you_mean
from polyagents.files.atomic import write_text
from polyagents.files.json_files import fits, parse_json, read_json
from polyagents.model_files import initial_weights
from polyagents.model_files.saving import refuse_other_file
from polyagents.parlai_patches import run_plan
from polyagents.parlai_patches.exchanges import WorldInOrder, in_order
from polyagents.parlai_patches.loop_bar import moving_the_bar, progress_bar, with_evaluation_bar
from polyagents.parlai_patches.training_end import UPDATES, with_summary
from polyagents.timings import training_machine
from polyagents.training import distributed

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


Progress = Callable[[TrainLoop], str]
"""A loop -> what its .trainstats are to hold."""


def is_training_run(opt: Opt) -> bool:
    """Return whether an agent with these options is to be trained."""
    datatype = opt.get("datatype", "")
    return not opt.get("interactive_mode") and "train" in datatype and "evalmode" not in datatype


@functools.cache
def patch() -> None:
    """Replace seven methods of ParlAI's loop (idempotent)."""
    TrainLoop.train_steps = after_resuming(TrainLoop.train_steps)
    progress = functools.partial(progress_of, TrainLoop._save_train_stats)
    TrainLoop.save_model = with_checkpoint(TrainLoop.save_model, progress)
    TrainLoop._save_train_stats = with_atomic_progress(progress)
    TrainLoop._get_time = run_plan.telling_progress(moving_the_bar(TrainLoop._get_time))
    TrainLoop.validate = run_plan.with_grace(TrainLoop.validate)
    TrainLoop._run_single_eval = noting_reports(with_evaluation_bar(TrainLoop._run_single_eval))
    TrainLoop.train = with_summary(TrainLoop.train)


@functools.cache
def patch_for_all_agents() -> None:
    """Patch ParlAI's train_model for all agents (idempotent).

    A run whose task has no test set then ends well, and a dictionary is also built with `--num-workers`.
    """
    train_model.load_eval_worlds = without_missing_test_sets(in_order(train_model.load_eval_worlds))
    TrainLoop._run_eval = with_the_metric(over_first_examples(over_test_worlds(TrainLoop._run_eval)))
    build_dict.create_task = in_this_process(build_dict.create_task)
    TrainLoop.__init__ = of_training_data(TrainLoop.__init__)


def of_training_data(init: Any) -> Any:
    """Wrap ParlAI's loop: it checks its options first, and keeps the smallest loss and rank of any task."""

    def patched(self: Any, opt: Opt) -> None:
        check_options(opt)
        if opt["validation_metric"].rsplit("/")[-1] in (*ALWAYS_SMALLER, "rank"):
            opt["validation_metric_mode"] = opt["validation_metric_mode"] or "min"  # ParlAI: of its own names alone
        init(self, opt)

    return patched


def check_options(opt: Opt) -> None:
    """Refuse options that the run could not use, or not at its end, before anything is written."""
    if not str(opt.get("model")).startswith("polyagents:"):
        return
    if file := opt.get("model_file"):
        refuse_other_file(file)  # before ParlAI writes the dictionary beside it
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


def in_this_process(create_task: Any) -> Any:
    """Wrap ParlAI's creation of a task: a dictionary is built without the worker processes of `--num-workers`.

    These ask it for things that only a model has. `--every-utterance` is off, too: it repeats lines for each target.
    """

    def patched(opt: Opt, *args: Any, **kwargs: Any) -> Any:
        return create_task(Opt(opt | {"num_workers": 0, "every_utterance": False}), *args, **kwargs)

    return patched


def without_missing_test_sets(load_eval_worlds: Any) -> Any:
    """Wrap ParlAI's loading of test worlds, which fails for a task without a test set: such a task gets none."""

    def patched(agent: Any, opt: Opt, datatype: str) -> list[Any]:
        if datatype != "test":
            return list(load_eval_worlds(agent, opt, datatype))
        worlds = []
        for task in (opt.get("evaltask") or opt["task"]).split(","):
            try:
                worlds += load_eval_worlds(agent, Opt(opt | {"task": task, "evaltask": None}), datatype)
            except NoTestSplit as error:
                logging.warning(f"The evaluation of test at the end skips {task}: {error}")
        return worlds

    return patched


def over_test_worlds(run_eval: Any) -> Any:
    """Wrap ParlAI's evaluation: an empty report, and no file, if no task has a test set.

    ParlAI divides by the number of worlds, and identifies them by the index of their task among all.
    """

    def patched(self: Any, worlds: list[Any], opt: Opt, datatype: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
        if not worlds:
            return {}
        if datatype == "test":
            opt = Opt(opt | {"task": ",".join(world.opt["task"] for world in worlds), "evaltask": None})
        return dict(run_eval(self, worlds, opt, datatype, *args, **kwargs))

    return patched


def with_the_metric(run_eval: Any) -> Any:
    """Wrap ParlAI's evaluation: refuse a --validation-metric that a validation does not report.

    A ranker is validated before its training, and the evaluation at the end chooses nothing by the metric.
    """

    def patched(self: Any, worlds: list[Any], opt: Opt, datatype: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
        report: dict[str, Any] = run_eval(self, worlds, opt, datatype, *args, **kwargs)
        name = opt["validation_metric"]
        is_chosen = datatype == "valid" and not kwargs.get("write_log") and "loss" in report  # else there is no label
        if is_chosen and name not in report:
            same = [known for known in report if known.split("/")[-1] == name.split("/")[-1]]
            raise InputError(
                f"--validation-metric {name}: the validation of {opt.get('evaltask') or opt['task']} does not report "
                f"that{did_you_mean(name, report)}; give one of {', '.join(same or report)}."
            )
        return report

    return patched


def over_first_examples(run_eval: Any) -> Any:
    """Wrap ParlAI's evaluation: of worlds in order, exactly as many examples as wanted.

    What was evaluated with the same weights before is not evaluated again: at the end valid, if the validation that
    kept M was of all of it, and test, if a task gives its valid set for it, as ParlAI's convai2 does.
    """

    def patched(
        self: Any, worlds: list[Any], opt: Opt, datatype: str, max_exs: float = -1, *args: Any, **kwargs: Any
    ) -> dict[str, Any]:
        if not all(isinstance(world, WorldInOrder) for world in worlds):
            return dict(run_eval(self, worlds, opt, datatype, max_exs, *args, **kwargs))
        if max_exs > 0:
            for place, world in enumerate(worlds):
                world.limit = (int(max_exs) + place) // len(worlds)
        known = vars(self).setdefault("evaluated", {})
        is_final = kwargs.get("write_log") and "extra_log_suffix" not in kwargs
        noted = Noted([world.num_examples() or world.limit for world in worlds])
        if datatype == "test" and worlds and [world.digest_of_all() for world in worlds] == known.get("valid"):
            logging.info(f"--task {opt['task']} gives its valid set for test: see the result on valid, above.")
            known["test"] = known["valid"]
            return dict(self.final_valid_report)
        kept: Noted | None = vars(self).get("noted_of_kept")
        again: Any = contextlib.nullcontext()
        if datatype == "valid" and is_final and kept is not None and kept.sizes == noted.sizes:
            noted, reports = kept, iter(kept.reports)
            again = mock.patch.object(self, "_run_single_eval", lambda *_: next(reports))
        self.noted = noted
        with again:
            report = dict(run_eval(self, worlds, opt, datatype, -1, *args, **kwargs))
        noted.digests = noted.digests or [world.digest for world in worlds]
        if kwargs.get("write_log"):  # at the end, of the best model
            known[datatype] = noted.digests
        return report

    return patched


def noting_reports(run_single_eval: Any) -> Any:
    """Wrap ParlAI's `_run_single_eval`: the report of each task is noted for the end of the run."""

    def patched(self: Any, *args: Any) -> Any:
        report = run_single_eval(self, *args)
        if hasattr(self, "noted"):
            self.noted.reports.append(report)
        return report

    return patched


def after_resuming(train_steps: Any) -> Any:
    """Keep the best model of a resumed run, and validate at the same times as an undisturbed one.

    ParlAI overwrites M at the end of a resumed run that has not beaten it, and then evaluates M.checkpoint for M.
    """

    def patched(self: Any) -> Iterator[Any]:
        file = self.opt.get("model_file")
        if self.best_valid is not None and file:
            metric, mode = self.opt["validation_metric"], self.opt["validation_metric_mode"]
            last = f"{file}{CHECKPOINT}" if os.path.exists(f"{file}{CHECKPOINT}.opt") else file
            initial_weights.refuse_another_metric(last, metric, None if metric in ALWAYS_SMALLER else mode)
        if str(self.opt.get("init_model")).endswith(CHECKPOINT):
            self.opt["init_model"] = None
        self.saved = self.best_valid is not None and bool(file) and os.path.exists(file)
        if self.valid_reports:  # ParlAI does not restore this, and would validate after the first update
            self._last_valid_steps = self.valid_reports[-1][UPDATES]
        if hasattr(self.world, "updates_done"):
            counted_by_world(self)
        if self._train_steps:
            logging.info(f"Resuming the training of {file}: {self._train_steps:,} updates were made before.")
        with progress_bar(self):
            run_plan.begin_plan(self)
            trained = self.agent
            if run_plan.is_over(self):  # ParlAI would make one more update
                end_again(self)
            else:
                yield from train_steps(self)
        if hasattr(trained, "rate"):
            self.agent.rate = trained.rate  # of the agent that ParlAI has loaded for the evaluation at the end

    return patched


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


def with_checkpoint(save_model: Any, progress: Progress) -> Any:
    """Wrap ParlAI's save_model: a run that never validated saves M at its end, and a checkpoint to resume from."""

    def patched(self: Any, suffix: str | None = None) -> None:
        if suffix == CHECKPOINT:
            run_plan.keep_if_good_enough(self)
        self.agent.progress = progress(self)
        save_model(self, suffix)
        if suffix is None and not self.valid_reports and self.opt.get("save_after_valid"):
            save_model(self, CHECKPOINT)

    return patched


def progress_of(save_train_stats: Any, loop: TrainLoop) -> str:
    """Return the output of ParlAI's `_save_train_stats`, as a text, with the machine; empty if it writes nothing."""
    written = io.StringIO()
    with mock.patch.object(train_model, "PathManager") as files:
        files.open.return_value = contextlib.nullcontext(written)
        save_train_stats(loop)
    if not written.getvalue():  # of several processes only the first one writes
        return ""
    more = {"machine": training_machine(), "evaluated": vars(loop).get("evaluated", {})}
    return json.dumps(parse_json(written.getvalue()) | more, indent=4)


def with_atomic_progress(progress: Progress) -> Any:
    """Write .trainstats atomically: a resumed run needs this JSON, and ParlAI overwrites the last one in place."""

    def patched(self: Any, suffix: str | None = None) -> None:
        file = self.opt.get("model_file")
        if file and is_primary_worker():
            write_text(f"{file}{suffix or ''}.trainstats", progress(self))

    return patched


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
