"""Callbacks of Ranker.train, with the names of transformers' TrainerCallback, and those that write to trackers."""

import abc
import importlib
import os
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from polyagents.errors import InputError

if TYPE_CHECKING:
    from polyagents.training_loop.trainer import Trainer

Report = dict[str, float]
"""Figures by their names, such as loss, hits@1, mrr, lr."""

PACKAGES = {"tensorboard": "tensorboardX", "wandb": "wandb", "trackio": "trackio"}
"""What `report_to` names -> the module that writes it. tensorboardX is what ParlAI's --tensorboard-log uses."""


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


# ---- trackers --------------------------------------------------------------------------------------------------------


def trackers(report_to: str, project: str, model_file: str | None) -> list[Callback]:
    """Create the trackers of a run.

    Args:
        report_to: names of PACKAGES, separated by commas.
        model_file: tensorboard's files are in `M.tensorboard`, as ParlAI's are; other trackers' runs have its name.

    Raises:
        InputError: a name is unknown, its package is not installed, or tensorboard has no place to write to.
    """
    names = [name.strip() for name in report_to.split(",") if name.strip()]
    if unknown := [name for name in names if name not in PACKAGES]:
        raise InputError(f"report_to {unknown[0]} is not possible; give one or more of {', '.join(PACKAGES)}.")
    made: list[Callback] = []
    for name in names:
        try:
            module = importlib.import_module(PACKAGES[name])
        except ModuleNotFoundError as error:
            raise InputError(
                f"report_to {name} needs {error.name}, which is not installed: pip install {PACKAGES[name]}"
            ) from error
        if name != "tensorboard":
            made.append(RunTracker(module, project, model_file and os.path.basename(model_file)))
        elif model_file is None:
            raise InputError("report_to tensorboard writes into a folder next to the model; give a model_file.")
        else:
            made.append(TensorBoard(module, f"{model_file}.tensorboard"))
    return made


class Tracker(Callback, abc.ABC):
    """The base class of trackers, which record figures with the update that they belong to."""

    @abc.abstractmethod
    def write(self, figures: Mapping[str, float], updates: int) -> None:
        """Record figures by name, after this many updates."""

    def on_log(self, trainer: "Trainer", report: Report) -> None:
        """Record the means of the training batches."""
        self.write({f"train/{name}": value for name, value in report.items()}, trainer.updates)

    def on_evaluate(self, trainer: "Trainer", report: Report) -> None:
        """Record the metrics of the validation examples."""
        self.write({f"valid/{name}": value for name, value in report.items()}, trainer.updates)


class TensorBoard(Tracker):
    """A folder that `tensorboard --logdir` shows."""

    def __init__(self, module: Any, folder: str):
        self.module, self.folder = module, folder

    def on_train_begin(self, trainer: "Trainer") -> None:
        """Open a file in the folder."""
        self.writer = self.module.SummaryWriter(self.folder)

    def write(self, figures: Mapping[str, float], updates: int) -> None:
        """Record one scalar for each figure."""
        for name, value in figures.items():
            self.writer.add_scalar(name, value, updates)

    def on_train_end(self, trainer: "Trainer") -> None:
        """Write everything to the disk."""
        self.writer.close()


class RunTracker(Tracker):
    """A run of wandb, or of trackio, which has the same functions."""

    def __init__(self, module: Any, project: str, name: str | None):
        self.module, self.project, self.name = module, project, name

    def on_train_begin(self, trainer: "Trainer") -> None:
        """Begin a run, with the options of the training."""
        self.module.init(project=self.project, name=self.name, config=asdict(trainer.options))

    def write(self, figures: Mapping[str, float], updates: int) -> None:
        """Record one entry with all figures."""
        self.module.log(dict(figures), step=updates)

    def on_train_end(self, trainer: "Trainer") -> None:
        """End the run, and wait until all of it is written."""
        self.module.finish()
