"""The progress bar of a run of Ranker.train or of ParlAI's train_model."""

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from polyagents.console import Bar, number_of, say
from polyagents.training_loop.callbacks import Callback, Report
from polyagents.training_loop.summary import among_text
from polyagents.training_loop.validation import METRICS

if TYPE_CHECKING:
    from polyagents.training_loop.trainer import Trainer

FRESH = 0.5  # seconds between two sets of figures: a GPU has to finish an update before its figures can be read


class TrainingBar(Bar):
    """Updates, the time left, and figures of the last update: a bar, or lines in a file."""

    def __init__(self, updates: int, disable: bool = False):
        super().__init__(initial=updates, unit=" updates", desc="Training", dynamic_ncols=True, disable=disable)
        self._read_again = 0.0  # when figures are read again

    def show(self, updates: int, last_update: int | None, figures: Callable[[], Mapping[str, float]]) -> None:
        """Update the bar.

        Args:
            last_update: how many there will be; without it no time left is shown.
            figures: returns figures by the names that are shown; asked now and then.
        """
        self.total = last_update
        if self.is_due and time.monotonic() >= self._read_again:
            shown = {name: f"{value:.{'2g' if name == 'rate' else '3f'}}" for name, value in figures().items()}
            self.set_postfix(shown, refresh=False)
            self._read_again = time.monotonic() + FRESH
        self.update(updates - self.n)


class ProgressBar(Callback):
    """The bar, and above it a line for each evaluation."""

    def on_train_begin(self, trainer: "Trainer") -> None:
        """Open the bar; say where a resumed run continues."""
        if trainer.updates:
            say(f"Resuming the training of {trainer.files.file}: {number_of(trainer.updates, 'update')} made before.")
        self.bar = TrainingBar(trainer.updates)

    def on_step_end(self, trainer: "Trainer") -> None:
        """Update the bar."""
        self.bar.show(
            trainer.updates,
            trainer.last_update,
            lambda: {
                "loss": trainer.last["loss"],
                "R@1": trainer.last["hits@1"],
                "rate": trainer.optimizer.param_groups[0]["lr"],
            },
        )

    def on_evaluate(self, trainer: "Trainer", report: Report) -> None:
        """Print the metrics."""
        figures = ", ".join(f"{name} {report[name]:.3f}" for name in METRICS)
        among = among_text(report["candidates"], trainer.valid.ranked)
        when = f"After {number_of(trainer.updates, 'update')}" if trainer.updates else "Before the first update"
        say(f"{when}: {figures}{' (best so far)' if trainer.is_best else ''}, among {among}")

    def on_train_end(self, trainer: "Trainer") -> None:
        """Close the bar."""
        self.bar.close()
