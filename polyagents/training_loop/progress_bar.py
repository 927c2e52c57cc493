"""The progress bar of a run of Ranker.train or of ParlAI's train_model."""

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from tqdm.auto import tqdm

from polyagents.console import say
from polyagents.training_loop.callbacks import Callback, Report
from polyagents.training_loop.summary import among_text
from polyagents.training_loop.validation import METRICS

if TYPE_CHECKING:
    from polyagents.training_loop.trainer import Trainer

FRESH = 0.5  # seconds between two sets of figures: a GPU has to finish an update before its figures can be read


class TrainingBar:
    """Updates, their rate, the time left, and figures of the last update; only at a terminal or in a notebook."""

    def __init__(self, updates: int):
        # None hides it if standard error is not a terminal; tqdm's bar for notebooks is always shown.
        self.bar = tqdm(initial=updates, unit=" updates", desc="Training", disable=None, dynamic_ncols=True)
        self._next = 0.0  # when figures are read again

    @property
    def is_shown(self) -> bool:
        """Whether the bar is visible."""
        return not self.bar.disable

    def show(self, updates: int, last_update: int | None, figures: Callable[[], Mapping[str, float]]) -> None:
        """Update the bar.

        Args:
            last_update: how many there will be; without it no time left is shown.
            figures: returns figures by the names that are shown; asked now and then, if the bar is visible.
        """
        self.bar.total = last_update
        if self.is_shown and time.monotonic() >= self._next:
            self.bar.set_postfix({name: f"{value:.3f}" for name, value in figures().items()}, refresh=False)
            self._next = time.monotonic() + FRESH
        self.bar.update(updates - self.bar.n)

    def close(self) -> None:
        """Leave the bar as it is, and go to the next line."""
        self.bar.close()


class ProgressBar(Callback):
    """The bar, and above it a line for each evaluation."""

    def on_train_begin(self, trainer: "Trainer") -> None:
        """Open the bar; say where a resumed run continues."""
        if trainer.updates:
            say(f"Resuming the training of {trainer.files.file}: {trainer.updates:,} updates were made before.")
        self.bar = TrainingBar(trainer.updates)

    def on_step_end(self, trainer: "Trainer") -> None:
        """Update the bar."""
        self.bar.show(
            trainer.updates,
            trainer.last_update,
            lambda: {"loss": trainer.last["loss"], "R@1": trainer.last["hits@1"]},
        )

    def on_evaluate(self, trainer: "Trainer", report: Report) -> None:
        """Print the metrics."""
        figures = ", ".join(f"{name} {report[name]:.3f}" for name in METRICS)
        among = among_text(report["candidates"], trainer.valid.ranked)
        say(f"After {trainer.updates} updates: {figures}{' (best so far)' if trainer.is_best else ''}, among {among}")

    def on_train_end(self, trainer: "Trainer") -> None:
        """Close the bar."""
        self.bar.close()
