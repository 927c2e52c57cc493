"""What may listen to a training from Python; the methods are named as those of transformers' TrainerCallback."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from polyagents.training.trainer import Trainer

Report = dict[str, float]
"""Figures by their names, such as loss, hits@1, mrr, lr."""


class Callback:
    """Override what is needed; `trainer.stop = True` ends the training after the update."""

    def on_train_begin(self, trainer: "Trainer") -> None:
        """The model is built, or read from its checkpoint."""

    def on_step_end(self, trainer: "Trainer") -> None:
        """The weights were updated, or left as they were for a gradient that is no number; `trainer.last` is of it."""

    def on_log(self, trainer: "Trainer", report: Report) -> None:
        """Every `log_every_n_steps` updates, and before every evaluation: the means since the last report."""

    def on_evaluate(self, trainer: "Trainer", report: Report) -> None:
        """The validation examples were ranked."""

    def on_save(self, trainer: "Trainer") -> None:
        """A checkpoint was written."""

    def on_train_end(self, trainer: "Trainer") -> None:
        """Also called where a training ends with an error."""
