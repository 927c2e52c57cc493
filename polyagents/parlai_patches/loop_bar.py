"""Progress of ParlAI's train_model: bars in a terminal, below its log lines; lines in a file."""

import contextlib
import functools
import math
import statistics
import sys
from collections.abc import Iterator, Mapping
from typing import Any
from unittest import mock

from parlai.scripts.train_model import TrainLoop
from parlai.utils import logging
from parlai.utils.distributed import is_primary_worker
from tqdm.contrib.logging import logging_redirect_tqdm

from polyagents.console import SLOW, Bar
from polyagents.training_loop.progress_bar import TrainingBar


@contextlib.contextmanager
def progress_bar(loop: TrainLoop) -> Iterator[None]:
    """Show a bar while a loop trains; where standard error is not a terminal, write lines."""
    with contextlib.closing(TrainingBar(loop._train_steps, is_silent())) as bar:
        loop.bar = bar
        try:
            with logging_redirect_tqdm([logging.logger]) if not bar.disable else contextlib.nullcontext():
                yield
        finally:
            del loop.bar


def is_silent() -> bool:
    """Return whether a process shows no progress: only the first of several does, unless --loglevel forbids it."""
    quiet = not sys.stderr.isatty() and logging.logger.getEffectiveLevel() > logging.INFO
    return quiet or not is_primary_worker()


def move_the_bar(get_time: Any, loop: TrainLoop, world: Any) -> Any:
    """Do as ParlAI's `_get_time`, which its loop calls once after each batch, and move the bar."""
    times = get_time(loop, world)
    if hasattr(loop, "bar"):
        loop.bar.show(loop._train_steps, last_update(loop, times[0]), functools.partial(figures_in_bar, loop.agent))
    return times


def with_evaluation_bar(run_single_eval: Any, loop: TrainLoop, opt: Any, world: Any, *args: Any) -> Any:
    """Do as ParlAI's `_run_single_eval`, with a bar for a validation or test of some seconds and more."""
    split, reported = str(world.opt.get("datatype", "")).split(":")[0], world.report
    shown: dict[str, Any] = {"desc": f"Evaluating {split}", "unit": " examples", "delay": SLOW, "leave": False}

    def report() -> Mapping[str, Any]:  # ParlAI calls it after each batch
        found: Mapping[str, Any] = reported()
        bar.update(int(float(found.get("exs") or 0)) - bar.n)
        return found

    with (
        Bar(total=world.num_examples(), disable=is_silent(), **shown) as bar,
        mock.patch.object(world, "report", report),
    ):
        return run_single_eval(loop, opt, world, *args)


def last_update(loop: TrainLoop, seconds: float) -> int | None:
    """Estimate how many updates there will be at most, from the epochs or the time; None if only patience ends it."""
    steps, epochs = loop._train_steps, loop._total_epochs
    limits = [loop.max_train_steps]
    limits += [steps * loop.max_num_epochs / epochs] if epochs > 0 else []
    limits += [steps * loop.max_train_time / seconds] if seconds > 0 else []
    return max(math.ceil(min(limits)), steps) if math.isfinite(min(limits)) else None


def figures_in_bar(agent: Any) -> dict[str, float]:
    """Return loss and R@1 of a ranker's last batch, and its learning rate; nothing for other agents."""
    values = getattr(agent, "last_values", {})
    names = {"loss": "mean_loss", "R@1": "train_accuracy"}
    found = {shown: statistics.fmean(values[name]) for shown, name in names.items() if values.get(name)}
    return found | ({"rate": agent.optimizer.param_groups[0]["lr"]} if found else {})
