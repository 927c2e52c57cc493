"""The options of training. Ours are flags of ParlAI's train_model as well; the others have its flags' names."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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
from polyagents.models.architecture import Architecture, find, options_of, reads_together
from polyagents.options import Options, fields_of, option
from polyagents.training.distillation import LOSSES
from polyagents.training_loop.schedule import SCHEDULES
from polyagents.training_loop.validation import METRICS

OPTIMIZERS = ("adamw", "adam", "adamax")
SOURCES = ("batch", "inline", "batch+inline", "batch-all-cands")
EPOCHS = 3.0  # if neither epochs nor updates are given: as in transformers' TrainingArguments


# ---- flags of our agents, too ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MemoryOptions(Options, title="Training (polyagents)"):
    """Options of memory and arithmetic in a training."""

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
class DistillationOptions(Options, title="Distillation (polyagents)"):
    """Options of a student and its teacher."""

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
class CodesOptions(Options, title="Poly-encoder (polyagents)"):
    """Options for training the codes of a poly-encoder."""

    codes_learningrate: float | None = option(
        None,
        "learning rate of the codes; by default the rate of the other weights",
        positive,
    )


@dataclass(frozen=True)
class NegativesOptions(Options, title="Uni- and cross-encoder (polyagents)"):
    """Options for the negatives of a joint architecture."""

    cross_negatives: int | None = option(
        None,
        "negatives of an example in training, drawn again each time from the task's candidates (such as "
        "mine_negatives'), and from earlier training labels if there are too few. Default: all of the task's; 15 "
        "random ones if it has none (paper 5.1)",
        positive_int,
    )


# ---- options of Ranker.train, by the names of ParlAI's flags ---------------------------------------------------------


@dataclass(frozen=True)
class AgentOptions(Options, title="Training"):
    """Options whose defaults our agents have in place of ParlAI's, too."""

    batchsize: int | None = option(None, "examples of a batch. Default: 64; 16 for uni and cross", batch_size)
    optimizer: str = option("adamw", "how weights are updated", choices=OPTIMIZERS)
    learningrate: float = option(5e-5, "of the optimiser", not_negative)
    weight_decay: float = option(0.01, "of weight matrices", not_negative)
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
    candidates: str | None = option(
        None,
        "an example's negatives: batch, the other labels of the batch; inline, its own candidates; batch+inline, both; "
        "batch-all-cands, labels and candidates of the whole batch. Default: batch; inline for uni and cross",
        choices=SOURCES,
    )
    validation_every_n_epochs: float = option(0.5, "epochs between evaluations of valid", positive)
    save_every_n_secs: float = option(600, "seconds between checkpoints, besides those at validations", positive)


@dataclass(frozen=True)
class LoopOptions(AgentOptions):
    """Options of the training loop: length, steps, reports and checkpoints."""

    num_epochs: float | None = option(
        None, f"passes over the examples. Default: {EPOCHS:.0f} where max_train_steps is not given", positive
    )
    max_train_steps: int | None = option(None, "the maximal number of updates of the weights", positive_int)
    update_freq: int = option(1, "batches whose gradients are averaged for an update", positive_int)
    gradient_clip: float = option(0.1, "largest norm of the gradients; 0 for none", not_negative)
    warmup_rate: float = option(1e-4, "the fraction of the learning rate with which the warm-up begins", not_negative)
    seed: int = option(0, "seed of new weights, dropout, the order of the examples and random negatives", seed_number)
    validation_every_n_steps: int | None = option(
        None, "updates between evaluations of valid, in place of epochs", positive_int
    )
    validation_metric: str = option("hits@1", "the metric that decides which model is the best", choices=METRICS)
    validation_patience: int = option(
        10, "end the run after this many validations without a better one; 0: never", count
    )
    validation_max_exs: int | None = option(None, "examples of valid that are used. Default: all", positive_int)
    log_every_n_steps: int = option(50, "updates between reports to callbacks", positive_int)
    load_from_checkpoint: bool = option(True, "resume from the checkpoint of an earlier run", boolean)
    report_to: str | None = option(None, "tensorboard, wandb, trackio, or several separated by commas")
    project: str = option("polyagents", "the project of wandb and trackio")


@dataclass(frozen=True)
class TrainingOptions(LoopOptions, MemoryOptions, DistillationOptions, CodesOptions, NegativesOptions):
    """All options of training from Python."""

    @classmethod
    def of(cls, architecture: str, values: Mapping[str, Any]) -> "TrainingOptions":
        """Read the options, with the defaults of an architecture.

        Args:
            values: options by name.

        Raises:
            InputError: a value is not possible.
        """
        read = cls.read(values)
        missing: dict[str, Any] = {} if read.max_train_steps else {"num_epochs": EPOCHS}
        missing |= defaults_of(find(architecture))
        return dataclasses.replace(read, **{n: value for n, value in missing.items() if getattr(read, n) is None})


def defaults_of(kind: type[Architecture]) -> dict[str, Any]:
    """Return the defaults of AgentOptions (paper 5.1); joint architectures have negatives of their own."""
    if reads_together(kind):
        own = {"batchsize": 16, "warmup_updates": 1000, "candidates": "inline"}
    else:
        own = {"batchsize": 64, "warmup_updates": 100, "candidates": "batch"}
    return {field.name: field.default for field in fields_of(AgentOptions)} | own


def training_groups(kind: type[Architecture]) -> list[type[Options]]:
    """Return the groups of options that training an architecture has besides those of the loop."""
    groups: list[type[Options]] = [MemoryOptions, DistillationOptions]
    groups += [NegativesOptions] if reads_together(kind) else []
    return groups + ([CodesOptions] if hasattr(kind.options_type, "codes_init") else [])


def check_names(architecture: str, values: Mapping[str, Any]) -> None:
    """Refuse options that the training of an architecture does not have.

    Args:
        values: options by name.

    Raises:
        InputError: there are such options; the message lists the possible ones.
    """
    kind = find(architecture)
    groups: list[type[Options]] = [LoopOptions, *training_groups(kind)]
    possible = {"init_model", *options_of(architecture), *(field.name for one in groups for field in fields_of(one))}
    if unknown := values.keys() - possible:
        raise InputError(
            f"{', '.join(sorted(unknown))}: not an option of training a {kind.short_name}; possible are "
            f"{', '.join(sorted(possible))}."
        )
