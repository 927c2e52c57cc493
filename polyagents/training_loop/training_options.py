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
from polyagents.errors import InputError, meant
from polyagents.models.architecture import Architecture, find, options_of, reads_together
from polyagents.options import Options, checked, fields_of, option
from polyagents.training.distillation import LOSSES
from polyagents.training_loop.budget import FEWEST_EPOCHS, LARGEST_BATCH, Budget, fitting_batch, fitting_epochs
from polyagents.training_loop.schedule import ENDING, SCHEDULES
from polyagents.training_loop.validation import METRICS

OPTIMIZERS = ("adamw", "adam", "adamax")
SOURCES = ("batch", "inline", "batch+inline", "batch-all-cands")


# ---- flags of our agents, too ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MemoryOptions(Options, title="Training (polyagents)"):
    """Options of memory, on the disk too, and arithmetic in training."""

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
    keep_checkpoint: bool = option(
        True,
        "after the end of a run, keep M.checkpoint, three times as large as M, from which a longer run continues",
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
    """Options whose defaults our agents have instead of ParlAI's, too."""

    batchsize: int | None = option(
        None,
        "examples of a batch. Default: an eighth of all, 2 to 32; to 16 for uni and cross",
        batch_size,
    )
    optimizer: str = option("adamw", "how weights are updated", choices=OPTIMIZERS)
    learningrate: float | None = option(
        None,
        "of the optimiser. Default: the paper's 5e-5 for a backbone of width 768, and more for a narrower one, in "
        "proportion: 1e-4 for 384",
        not_negative,
    )
    weight_decay: float = option(0.01, "of weight matrices", not_negative)
    lr_scheduler: str = option(
        "linear",
        "how the learning rate changes after the warm-up: linear or cosine, to 0 at the end of the run; "
        "reduceonplateau, times lr_scheduler_decay if the loss of valid does not fall; invsqrt; none, without a "
        "warm-up either",
        choices=SCHEDULES,
    )
    lr_scheduler_decay: float = option(0.4, "the factor of reduceonplateau", probability)
    lr_scheduler_patience: int = option(0, "validations without a smaller loss that reduceonplateau tolerates", count)
    warmup_updates: int | None = option(
        None,
        "updates over which the learning rate rises. Default: a tenth of the run with linear and cosine; otherwise "
        "100, 1000 for uni and cross",
        count,
    )
    candidates: str | None = option(
        None,
        "an example's negatives: batch, the other labels of the batch; inline, its own candidates; batch+inline, both; "
        "batch-all-cands, labels and candidates of the whole batch. Default: batch; inline for uni and cross",
        choices=SOURCES,
    )
    validation_every_n_epochs: float | None = option(
        None,
        "epochs between evaluations of valid. Default: they are spread evenly over the run, at most 10, in at most a "
        "tenth of its time; before its first update and after its last valid is evaluated in any case",
        positive,
    )
    save_every_n_secs: float = option(600, "seconds between checkpoints, besides those at validations", positive)


@dataclass(frozen=True)
class LoopOptions(AgentOptions):
    """Options of the training loop: length, steps, reports and checkpoints."""

    num_epochs: float | None = option(
        None, "passes over the examples. Default, if no other end is given: for some 300 updates, 3 to 20", positive
    )
    max_train_steps: int | None = option(None, "the maximal number of updates of the weights", positive_int)
    max_train_time: float | None = option(None, "seconds after which the training ends", positive)
    update_freq: int = option(1, "batches whose gradients are averaged for an update", positive_int)
    gradient_clip: float = option(0.1, "largest norm of the gradients; 0 for none", not_negative)
    warmup_rate: float = option(1e-4, "the fraction of the learning rate with which the warm-up begins", not_negative)
    seed: int = option(0, "seed of new weights, dropout, the order of the examples and random negatives", seed_number)
    validation_every_n_steps: int | None = option(
        None, "updates between evaluations of valid, instead of epochs", positive_int
    )
    validation_metric: str = option("hits@1", "the metric that decides which model is the best", choices=METRICS)
    validation_patience: int = option(
        10,
        "end the run after this many validations without a better one; 0: never. Those of the warm-up and of the "
        "first pass do not count",
        count,
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
    def of(cls, architecture: str, values: Mapping[str, Any], examples: int | None) -> "TrainingOptions":
        """Read the options, with the defaults of an architecture for a number of training examples.

        Args:
            values: options by name.
            examples: None if their number is not known.

        Raises:
            InputError: a value is not possible.
        """
        read = cls.read(values)
        kind = find(architecture)
        own = defaults_of(kind)
        has_end = read.max_train_steps or read.num_epochs or read.max_train_time
        has_progress = examples is not None or read.max_train_steps or read.max_train_time
        scheduler = read.lr_scheduler
        if not has_progress and "lr_scheduler" not in values:
            scheduler = "reduceonplateau"  # what needs no end
        batch = read.batchsize or (own["batchsize"] if examples is None else fitting_batch(own["batchsize"], examples))
        missing: dict[str, Any] = {"candidates": own["candidates"], "batchsize": batch}
        if scheduler not in ENDING:
            missing["warmup_updates"] = papers_warm_up(kind)
        if not has_end:
            fitting = examples and fitting_epochs(examples, batch * read.update_freq)
            missing["num_epochs"] = fitting or FEWEST_EPOCHS
        if not has_progress and read.validation_every_n_steps is None:
            missing["validation_every_n_epochs"] = 0.5
        missing = {name: value for name, value in missing.items() if getattr(read, name) is None}
        return dataclasses.replace(read, lr_scheduler=scheduler, **missing)

    @property
    def budget(self) -> Budget:
        """The end of the training."""
        return Budget(self.max_train_steps, self.num_epochs, self.max_train_time)


def defaults_of(kind: type[Architecture]) -> dict[str, Any]:
    """Return the defaults of AgentOptions, with the largest batch; joint architectures have their own negatives."""
    batch, source = (16, "inline") if reads_together(kind) else (LARGEST_BATCH, "batch")
    defaults = {field.name: field.default for field in fields_of(AgentOptions)}
    return defaults | {"batchsize": batch, "candidates": source}


def papers_warm_up(kind: type[Architecture]) -> int:
    """Return the updates of a warm-up that is not a share of the run (paper 5.1)."""
    return 1000 if reads_together(kind) else 100


def training_groups(kind: type[Architecture]) -> list[type[Options]]:
    """Return the groups of options that training an architecture has besides the loop's."""
    groups: list[type[Options]] = [MemoryOptions, DistillationOptions]
    groups += [NegativesOptions] if reads_together(kind) else []
    return groups + ([CodesOptions] if hasattr(kind.options_type, "codes_init") else [])


def checked_options(architecture: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return options by name, each of its type; `init_model` passes as it is.

    Raises:
        InputError: the training of an architecture has no such option, or a value is not possible.
    """
    kind = find(architecture)
    groups: list[type[Options]] = [LoopOptions, *training_groups(kind)]
    fields = options_of(architecture) | {field.name: field for one in groups for field in fields_of(one)}
    possible = {"init_model", *fields}
    if unknown := values.keys() - possible:
        raise InputError(
            f"{', '.join(sorted(unknown))}: not an option of training a {kind.short_name}; "
            f"{meant(unknown, possible)}possible are "
            f"{', '.join(sorted(possible))}."
        )
    return {name: checked(fields[name], value) if name in fields else value for name, value in values.items()}
