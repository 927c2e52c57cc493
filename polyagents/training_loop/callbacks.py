"""Callbacks of Ranker.train; the methods have the names of transformers' TrainerCallback."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from polyagents.training_loop.trainer import Trainer

Report = dict[str, float]
"""Figures by their names, such as loss, hits@1, mrr, lr."""


class Callback:
    """The base class of callbacks: override methods as needed.

    `trainer.stop = True` ends the run after the update.
    """

    def on_train_begin(self, trainer: "Trainer") -> None:
        """Handle the start: the model is built, or read from its checkpoint."""

    def on_step_end(self, trainer: "Trainer") -> None:
        """Handle an update, also one that was skipped as gradients were not finite; `trainer.last` has its figures."""

    def on_log(self, trainer: "Trainer", report: Report) -> None:
        """Handle a report, means by name, every `log_every_n_steps` updates and before every evaluation."""

    def on_evaluate(self, trainer: "Trainer", report: Report) -> None:
        """Handle an evaluation of the validation examples, metrics by name."""

    def on_save(self, trainer: "Trainer") -> None:
        """Handle a new checkpoint."""

    def on_train_end(self, trainer: "Trainer") -> None:
        """Handle the end, also of a run that ends with an error."""
