"""Progress bars for ParlAI's train_model in a terminal: its log lines stay as they are, above the bars."""

import contextlib
import functools
import math
import statistics
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from unittest import mock

from parlai.scripts.train_model import TrainLoop
from parlai.utils import logging
from parlai.utils.distributed import is_primary_worker
from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

from polyagents.console import SLOW
from polyagents.training_loop.progress_bar import TrainingBar


@contextlib.contextmanager
def progress_bar(loop: TrainLoop) -> Iterator[None]:
    """Show a bar while a loop trains; nothing if standard error is not a terminal."""
    if not is_primary_worker():  # one bar for all processes
        yield
        return
    with contextlib.closing(TrainingBar(loop._train_steps)) as bar:
        if not bar.is_shown:
            yield
            return
        loop.bar = bar
        try:
            with logging_redirect_tqdm([logging.logger]):
                yield
        finally:
            del loop.bar


def moving_the_bar(get_time: Any) -> Any:
    """Wrap ParlAI's `_get_time`, which its loop calls once after each batch."""

    def patched(self: Any, world: Any) -> Any:
        times = get_time(self, world)
        if hasattr(self, "bar"):
            self.bar.show(self._train_steps, last_update(self, times[0]), functools.partial(figures_of, self.agent))
        return times

    return patched


def with_evaluation_bar(run_single_eval: Any) -> Any:
    """Wrap ParlAI's `_run_single_eval`: a bar for a validation or test of some seconds and more."""

    def patched(self: Any, opt: Any, world: Any, *args: Any, **kwargs: Any) -> Any:
        split = str(world.opt.get("datatype", "")).split(":")[0]
        hidden = None if is_primary_worker() else True  # None: shown in a terminal
        shown = {"desc": f"Evaluating {split}", "unit": " examples", "delay": SLOW, "disable": hidden, "leave": False}
        with (
            tqdm(total=world.num_examples(), **shown) as bar,
            mock.patch.object(world, "report", counting(world.report, bar)),
        ):
            return run_single_eval(self, opt, world, *args, **kwargs)

    return patched


def counting(report: Callable[[], Mapping[str, Any]], bar: tqdm) -> Callable[[], Mapping[str, Any]]:
    """Wrap a world's `report`, which ParlAI calls after each batch of an evaluation, so that it moves the bar."""

    def patched() -> Mapping[str, Any]:
        found = report()
        bar.update(int(float(found.get("exs") or 0)) - bar.n)
        return found

    return patched


def last_update(loop: TrainLoop, seconds: float) -> int | None:
    """Estimate how many updates there will be at most, from the epochs or the time; None if only patience ends it."""
    steps, epochs = loop._train_steps, loop._total_epochs
    limits = [loop.max_train_steps]
    limits += [steps * loop.max_num_epochs / epochs] if epochs > 0 else []
    limits += [steps * loop.max_train_time / seconds] if seconds > 0 else []
    return max(math.ceil(min(limits)), steps) if math.isfinite(min(limits)) else None


def figures_of(agent: Any) -> dict[str, float]:
    """Return loss and R@1 of a ranker's last batch; nothing for other agents."""
    values = getattr(agent, "last_values", {})
    names = {"loss": "mean_loss", "R@1": "train_accuracy"}
    return {shown: statistics.fmean(values[name]) for shown, name in names.items() if values.get(name)}
