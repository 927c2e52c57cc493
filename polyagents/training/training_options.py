"""The options of training. Ours are flags of ParlAI's train_model as well; the others have its flags' names."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from polyagents.arguments import (
    batch_size,
    boolean,
    count,
    not_negative,
    positive,
    positive_int,
    probability,
    seed_number,
)
from polyagents.errors import InputError
from polyagents.models.architecture import find, reads_together
from polyagents.options import Options, fields_of, option
from polyagents.ranking.option_groups import option_groups
from polyagents.training.distillation import LOSSES
from polyagents.training.schedule import SCHEDULES
from polyagents.training.validation import METRICS

OPTIMIZERS = ("adamw", "adam", "adamax")
SOURCES = ("batch", "inline", "batch+inline", "batch-all-cands")
EPOCHS = 3.0  # if neither epochs nor updates are given: as in transformers' TrainingArguments


# ---- flags of our agents, too ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MemoryOptions(Options):
    """Options of memory and arithmetic in training."""

    title: ClassVar[str] = "Training (polyagents)"

    chunk_tokens: int | None = option(
        None,
        "train in the memory of chunks of this many tokens, whatever the batch size, with the same gradients; rankers "
        "then need one more forward pass (GradCache)",
        positive_int,
    )
    compile: bool = option(
        False,
        "compile the encoders (torch.compile, about a minute) for training on a GPU; on CPUs it does not pay off",
        boolean,
    )


@dataclass(frozen=True)
class DistillationOptions(Options):
    """Options of a student and its teacher."""

    title: ClassVar[str] = "Distillation (polyagents)"

    teacher_model_file: str | None = option(
        None,
        "a trained model, such as a cross-encoder, whose scores are learnt in addition to the labels (training only)",
    )
    distillation_loss: str = option(
        "kl",
        "kl: towards the teacher's softmax; margin_mse: towards its differences between label and negatives",
        choices=LOSSES,
    )
    teacher_negatives: int = option(
        8,
        "the teacher scores the label and this many negatives of each example, those that score highest",
        positive_int,
    )


@dataclass(frozen=True)
class CodesOptions(Options):
    """Options for training the codes of a poly-encoder."""

    title: ClassVar[str] = "Poly-encoder (polyagents)"

    codes_learningrate: float | None = option(
        None,
        "learning rate of the codes; by default the rate of the other weights",
        positive,
    )


@dataclass(frozen=True)
class NegativesOptions(Options):
    """Options for the negatives of a joint architecture."""

    title: ClassVar[str] = "Uni- and cross-encoder (polyagents)"

    cross_negatives: int | None = option(
        None,
        "negatives of an example in training, drawn again each time from the task's candidates (such as "
        "mine_negatives'), and from earlier training labels if there are too few. Default: all of the task's; 15 "
        "random ones if it has none (paper 5.1)",
        positive_int,
    )


# ---- options of Ranker.train, by the names of ParlAI's flags ---------------------------------------------------------


@dataclass(frozen=True)
class LoopOptions(Options):
    """Options of the training loop: length, steps, reports and checkpoints. The defaults are our agents'."""

    title: ClassVar[str] = "Training"

    batchsize: int | None = option(None, "examples of a batch. Default: 64; 16 for uni and cross", batch_size)
    num_epochs: float | None = option(
        None, f"passes over the examples. Default: {EPOCHS:.0f} unless max_train_steps is given", positive
    )
    max_train_steps: int | None = option(None, "the largest number of updates of the weights", positive_int)
    update_freq: int = option(1, "batches whose gradients are averaged for an update", positive_int)
    optimizer: str = option("adamw", "how weights are updated", choices=OPTIMIZERS)
    learningrate: float = option(5e-5, "of the optimiser", not_negative)
    weight_decay: float = option(0.01, "of weight matrices", not_negative)
    gradient_clip: float = option(0.1, "largest norm of the gradients; 0 for none", not_negative)
    lr_scheduler: str = option(
        "reduceonplateau",
        "how the learning rate changes after the warm-up: reduceonplateau, times lr_scheduler_decay if the loss of "
        "valid does not fall; linear or cosine, to 0 at the end; invsqrt; none, without a warm-up either",
        choices=SCHEDULES,
    )
    lr_scheduler_decay: float = option(0.4, "the factor of reduceonplateau", probability)
    lr_scheduler_patience: int = option(0, "validations without a smaller loss that reduceonplateau tolerates", count)
    warmup_updates: int | None = option(
        None, "updates over which the learning rate rises. Default: 100; 1000 for uni and cross", count
    )
    warmup_rate: float = option(1e-4, "the fraction of the learning rate with which the warm-up begins", not_negative)
    candidates: str | None = option(
        None,
        "an example's negatives: batch, the other labels of the batch; inline, its own candidates; batch+inline, both; "
        "batch-all-cands, labels and candidates of the whole batch. Default: batch; inline for uni and cross",
        choices=SOURCES,
    )
    seed: int = option(0, "seed of new weights, dropout, the order of the examples and random negatives", seed_number)
    validation_every_n_epochs: float = option(0.5, "epochs between evaluations of valid", positive)
    validation_every_n_steps: int | None = option(
        None, "updates between evaluations of valid, in place of epochs", positive_int
    )
    validation_metric: str = option("hits@1", "the metric that decides which model is the best", choices=METRICS)
    validation_patience: int = option(
        10, "end the run after this many validations without a better one; 0: never", count
    )
    validation_max_exs: int | None = option(None, "examples of valid that are used. Default: all", positive_int)
    save_every_n_secs: float = option(
        600.0, "seconds between checkpoints, in addition to those at validations", positive
    )
    log_every_n_steps: int = option(50, "updates between reports to callbacks", positive_int)
    load_from_checkpoint: bool = option(True, "resume from the checkpoint of an earlier run", boolean)
    report_to: str | None = option(None, "tensorboard, wandb, trackio, or several separated by commas")
    project: str = option("polyagents", "the project of wandb and trackio")


@dataclass(frozen=True)
class TrainingOptions(LoopOptions, MemoryOptions, DistillationOptions, CodesOptions, NegativesOptions):
    """All options of training from Python."""

    title: ClassVar[str] = "Training"

    @classmethod
    def of(cls, architecture: str, values: Mapping[str, Any]) -> "TrainingOptions":
        """Read the options, with the defaults of an architecture.

        Args:
            values: options by name.

        Raises:
            InputError: a value is not possible.
        """
        read, joint = cls.read(values), reads_together(find(architecture))
        endless = read.num_epochs is None and read.max_train_steps is None
        return dataclasses.replace(
            read,
            batchsize=read.batchsize or (16 if joint else 64),
            num_epochs=EPOCHS if endless else read.num_epochs,
            warmup_updates=(1000 if joint else 100) if read.warmup_updates is None else read.warmup_updates,
            candidates=read.candidates or ("inline" if joint else "batch"),
        )


def check_names(architecture: str, values: Mapping[str, Any]) -> None:
    """Refuse options that the training of an architecture does not have.

    Args:
        values: options by name.

    Raises:
        InputError: there are such options; the message lists the possible ones.
    """
    kind = find(architecture)
    groups: list[type[Options]] = [*option_groups(architecture), LoopOptions, MemoryOptions, DistillationOptions]
    groups += [NegativesOptions] if reads_together(kind) else []
    groups += [CodesOptions] if hasattr(kind.options_type, "codes_init") else []
    possible = {"init_model", *(field.name for group in groups for field in fields_of(group))}
    if unknown := values.keys() - possible:
        raise InputError(
            f"{', '.join(sorted(unknown))}: not an option of training a {kind.short_name}; possible are "
            f"{', '.join(sorted(possible))}."
        )
