"""The flags of `train_model` for the name of a recipe, `TASK/MODEL/PRETRAINING[/VARIANT]`.

    convai2/bi/bert      dstc7/poly-64/reddit      ubuntu/poly-360-first/wikito      convai2/cross/bert/top-layer

Every flag has its source in docs/recipes.md.
"""

import difflib
import importlib.util
import itertools
import os
from collections.abc import Mapping
from dataclasses import dataclass

from polyagents.errors import InputError

from .paper import HOURS, Value, expected

SMOKE = "/smoke"  # at the end of a recipe's name: a few steps on the task's sample, on any machine
GPUS = {24: 8_192, 80: 49_152}  # GB -> --chunk-tokens that should fit (calculated in docs/recipes.md)
PAPERS_MACHINE = "8 Nvidia Volta 100, half precision (paper 5.1, Table 6)"

Flags = dict[str, str | int | float | bool]


@dataclass(frozen=True)
class Recipe:
    """A recipe.

    Attributes:
        task: convai2, dstc7, ubuntu or wikipedia.
        model: bi, cross, poly-M (learnt codes), poly-M-first, poly-M-last or poly-M-last-and-first.
        pretraining: bert (the public weights), reddit or wikito (ParlAI's).
        variant: what is changed in addition, or "".
        expected: the numbers that it should reach.
    """

    name: str
    task: str
    model: str
    pretraining: str
    variant: str
    expected: tuple[Value, ...]

    @property
    def kind(self) -> str:
        """bi, poly or cross."""
        return self.model.split("-")[0]

    @property
    def m(self) -> int:
        """The number of a poly-encoder's context vectors; 0 for the others."""
        return int(self.model.split("-")[1]) if self.kind == "poly" else 0

    @property
    def vectors(self) -> str:
        """The kind of context vectors: a key of CONTEXT_VECTORS."""
        return "-".join(self.model.split("-")[2:])

    @property
    def hours(self) -> float | None:
        """The hours of the paper's training."""
        return None if self.variant else HOURS.get(self.task, {}).get(self.model)

    @property
    def place(self) -> tuple[int, int, int, int, int]:
        """The sort key in a list: task, weights, architecture, m, and kind of context vectors."""
        weights, kind = PRETRAININGS.index(self.pretraining), [*AGENTS].index(self.kind)
        return TASKS.index(self.task), weights, kind, self.m, [*CONTEXT_VECTORS].index(self.vectors)

    @property
    def flags(self) -> Flags:
        """Return what `train_model -o NAME` sets; later parts have priority."""
        parts = (COMMON, of_pretraining(self), of_architecture(self), of_task(self), VARIANTS[self.variant])
        return {name: value for part in parts for name, value in part.items()}

    @property
    def smoke_flags(self) -> Flags:
        """Return the flags for two updates on the task's sample, from random weights."""
        flags = {name: value for name, value in self.flags.items() if name not in NOT_FOR_SMOKE} | FOR_SMOKE
        flags["task"] = f"{flags['task']}:sample"
        if self.task == "wikipedia":
            spec = importlib.util.find_spec("polyagents.tasks")
            assert spec is not None and spec.origin is not None, "setup.py installs it with us"
            flags["fixed_candidates_path"] = os.path.join(os.path.dirname(spec.origin), "wiki_search", "sample", POOL)
        return flags


TASKS = ("convai2", "dstc7", "ubuntu", "wikipedia")
PRETRAININGS = ("bert", "wikito", "reddit")
AGENTS = {"bi": "polyagents:BiEncoder", "poly": "polyagents:PolyEncoder", "cross": "polyagents:CrossEncoder"}
CONTEXT_VECTORS = {"": "codes", "first": "n_first", "last": "n_last", "last-and-first": "n_last_and_first"}
POOL = "pool.txt"

PAPERS_SCHEDULE: Flags = {  # of every architecture; ParlAI's commands
    "learningrate": 5e-5,
    "lr_scheduler": "reduceonplateau",
    "lr_scheduler_decay": 0.4,
    "lr_scheduler_patience": 0,
    "warmup_rate": 1e-4,
    "num_epochs": -1.0,
    "validation_every_n_epochs": 0.5,
    "validation_patience": 10,
}
PAPER = "paper"  # the preset of a model of one's own; the architecture decides its warm-up
PAPERS: Flags = PAPERS_SCHEDULE | {"optimizer": "adamw", "weight_decay": 0.01}
# Every value that decides a run is here, so that no default of train_model changes a recipe.
COMMON: Flags = PAPERS_SCHEDULE | {
    "history_size": 20,
    "label_truncate": 72,
    "gradient_clip": 0.1,
    "update_freq": 1,
    "precision": "bf16",
    "chunk_tokens": GPUS[24],
    "max_train_steps": -1,
    "max_train_time": -1.0,
    "validation_every_n_secs": -1.0,
    "validation_every_n_steps": -1,
    "validation_metric": "accuracy",
    "validation_max_exs": -1,
    "eval_candidates": "inline",
    "save_after_valid": True,
    "save_every_n_secs": 600.0,
}
BERT: Flags = {
    "backbone": "bert-base-uncased",
    "output_scaling": 1.0,
    "reduction_type": "first",
    "text_truncate": 360,
    "train_layers": "all_but_embeddings",
    "optimizer": "adamw",
    "weight_decay": 0.01,
}
OWN: Flags = {  # paper 5.3 and ParlAI's commands
    "output_scaling": 0.06,
    "reduction_type": "mean",
    "text_truncate": 362,
    "train_layers": "all",
    "optimizer": "adamax",
    "weight_decay": 0.0,
}
VARIANTS: Mapping[str, Flags] = {
    "": {},
    "31-negatives": {"batchsize": 32},
    "63-negatives": {"batchsize": 64},
    "127-negatives": {"batchsize": 128},
    "255-negatives": {"batchsize": 256},
    "top-layer": {"train_layers": "top"},
    "top-4-layers": {"train_layers": "top4"},
    "every-layer": {"train_layers": "all"},
    "mean": {"reduction_type": "mean"},
    "mean-of-first-16": {"reduction_type": "first_m", "poly_n_codes": 16},
    "mean-of-first-64": {"reduction_type": "first_m", "poly_n_codes": 64},
}
NOT_FOR_SMOKE = ("init_model", "num_epochs", "validation_patience", "validation_every_n_epochs")
FOR_SMOKE: Flags = {
    "backbone": "scratch:tiny",
    "precision": "fp32",
    "batchsize": 4,
    "eval_batchsize": 4,
    "max_train_steps": 2,
    "validation_every_n_epochs": -1.0,
    "validation_max_exs": 8,
    "short_final_eval": True,
}


def of_pretraining(recipe: Recipe) -> Flags:
    """Return the flags for the initial weights, and for how such weights are trained."""
    if recipe.pretraining == "bert":
        return BERT
    own = OWN | ({"reduction_type": "first"} if recipe.kind == "cross" else {})
    if recipe.model in ("bi", "poly-64", "cross"):  # ParlAI has one of each
        start = f"zoo:pretrained_transformers/{recipe.kind}_model_huge_{recipe.pretraining}/model"
        return own | {"init_model": start}
    # The transformer alone: its file may hold 64 codes, which are of no use here.
    return own | {"backbone": f"zoo:{recipe.pretraining}"}


def of_architecture(recipe: Recipe) -> Flags:
    """Return the flags for the architecture, and for how it is trained (paper 5.1)."""
    agent: Flags = {"model": AGENTS[recipe.kind]}
    if recipe.kind == "cross":
        training: Flags = {"candidates": "inline", "batchsize": 16, "warmup_updates": 1000, "eval_batchsize": 10}
        return agent | training | {"validation_max_exs": 2500, "joint_head": "linear"}
    towers: Flags = {
        "share_encoders": False,
        "similarity": "dot",
        "candidates": "batch",
        "warmup_updates": 100,
        "eval_batchsize": 32,
    }
    if recipe.kind == "bi":
        return agent | towers
    vectors: Flags = {"polyencoder_type": CONTEXT_VECTORS[recipe.vectors], "poly_n_codes": recipe.m}
    return agent | towers | vectors | {"poly_attention_type": "basic", "codes_init": "normal"}


def of_task(recipe: Recipe) -> Flags:
    """Return the flags for data, batch and length of the training."""
    epochs = {"bi": 10.0, "poly": 8.0, "cross": 12.0}[recipe.kind]
    if recipe.task == "wikipedia":
        return {
            "task": "polyagents.tasks.wiki_search",
            "eval_candidates": "fixed",
            "fixed_candidates_path": os.path.join("wiki_search", POOL),
            "batchsize": 256,
            "text_truncate": 64,
            "label_truncate": 256,
            "num_epochs": 1.0,
            "validation_every_n_epochs": 0.1,
        }
    flags: Flags = {"task": f"polyagents.tasks.{recipe.task}"}
    if recipe.kind == "cross":
        return flags | {"num_epochs": epochs} | ({} if recipe.task == "convai2" else {"cross_negatives": 15})
    # ParlAI's command for its poly-encoder has 256 on ConvAI2, too.
    wide = recipe.task == "convai2" and (recipe.kind == "bi" or recipe.pretraining == "bert")
    flags["batchsize"] = 512 if wide else 256
    if recipe.task == "dstc7":
        return flags | {"validation_patience": 5}
    if recipe.task == "ubuntu":
        flags["validation_max_exs"] = 8000
    return flags | {"num_epochs": epochs}


def recipe(name: str, values: tuple[Value, ...]) -> Recipe:
    """Make the recipe of a row."""
    task, model, pretraining, *variant = name.split("/")
    return Recipe(name, task, model, pretraining, "".join(variant), values)


RECIPES: Mapping[str, Recipe] = {
    each.name: each for each in sorted(itertools.starmap(recipe, expected().items()), key=lambda each: each.place)
}


def find(name: str) -> Recipe:
    """Return the recipe with a name, with or without `/smoke`.

    Raises:
        InputError: there is none.
    """
    name = name.removesuffix(SMOKE)
    if name in RECIPES:
        return RECIPES[name]
    raise InputError(f"There is no recipe {name!r}{similar(name)}; polyagents recipe list shows all of them.")


def similar(name: str) -> str:
    """Return names that the user may have meant, for an error message; "" if none is similar."""
    close = difflib.get_close_matches(name, RECIPES, cutoff=0.5)
    return f" (did you mean {' or '.join(close)}?)" if close else ""


def flags_of(name: str) -> Flags | None:
    """Return what `-o NAME` sets; None if the name is not a recipe's."""
    if name.removesuffix(SMOKE) not in RECIPES:
        return None
    return find(name).smoke_flags if name.endswith(SMOKE) else find(name).flags
