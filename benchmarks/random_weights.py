"""How fast models learn from random weights, by the weights' deviation, reduction and scaling: ParlAI's ranker test.

    python -m polyagents.benchmarks.random_weights

`integration_tests:overfit` has four examples; a model that cannot learn them by heart in 100 updates learns nothing.
"""

import itertools
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import transformers
from parlai.scripts.train_model import TrainLoop, TrainModel
from torch import nn

from polyagents.benchmarks import measure
from polyagents.console import Bar, markdown
from polyagents.models import backbone
from polyagents.parlai_patches import patches
from polyagents.parlai_patches.compat import quiet

UPDATES, PART, RATE, SEEDS = 100, 25, 1e-3, (1, 2, 3)
BERT = 0.55  # the deviation of BERT's outputs, to which --output-scaling auto scales others
ROOT = 0.2973  # 128^-.25: divides the dot products of a width of 128 by its root
SCALINGS = {"bi": (1.0, BERT, ROOT), "poly": (1.0, BERT, ROOT), "cross": (1.0,)}


@contextmanager
def deviation(of_width: Callable[[int], float]) -> Iterator[None]:
    """Give scratch backbones weights of another deviation."""
    config_of = backbone.scratch_config

    def config(*arguments: Any) -> transformers.PretrainedConfig:
        made = config_of(*arguments)
        made.initializer_range = of_width(made.hidden_size)
        return made

    with mock.patch.object(backbone, "scratch_config", config):
        yield


@contextmanager
def xlm() -> Iterator[None]:
    """Draw weights like XLM, and so the paper: embeddings N(0, width^-0.5), linear layers as torch draws them."""

    def draw(_: Any, module: nn.Module) -> None:
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)
        elif isinstance(module, nn.Linear | nn.LayerNorm):
            module.reset_parameters()

    with mock.patch.object(transformers.BertPreTrainedModel, "_init_weights", draw):
        yield


WEIGHTS = {
    "N(0, .02)": lambda: deviation(lambda _: 0.02),
    "N(0, width^-0.5)": lambda: deviation(lambda width: width**-0.5),
    "XLM's": xlm,
}


def losses(model: str, seed: int, **flags: Any) -> list[float]:
    """Return the mean training loss of each part of the updates."""
    with tempfile.TemporaryDirectory() as folder, quiet():
        opt = TrainModel.setup_args().parse_kwargs(
            task="integration_tests:overfit",
            model=f"polyagents:{model.capitalize()}Encoder",
            backbone="scratch:tiny",
            poly_n_codes=16,
            model_file=os.path.join(folder, "M"),
            batchsize=4,
            candidates="batch",
            learningrate=RATE,
            max_train_steps=UPDATES,
            log_every_n_steps=PART,
            lr_scheduler="none",
            warmup_updates=-1,
            validation_every_n_epochs=-1.0,
            seed=seed,
            **flags,
        )
        return [float(log["mean_loss"]) for log in TrainLoop(opt).train_steps()]


def main() -> None:
    """Print a row for each model: the loss of the last part that is logged."""
    patches.apply()
    cases = [
        (model, weights, reduction, scaling)
        for model, weights, reduction in itertools.product(SCALINGS, WEIGHTS, ("first", "mean"))
        for scaling in SCALINGS[model]
    ]
    rows = []
    for model, weights, reduction, scaling in Bar(cases):
        with WEIGHTS[weights]():
            each = [losses(model, seed, reduction_type=reduction, output_scaling=scaling) for seed in SEEDS]
        rows.append(
            {
                "model": model,
                "weights": weights,
                "reduction": reduction,
                "scaling": scaling,
                "loss": " ".join(f"{loss:.3f}" for loss in np.mean(each, axis=0)),
            }
        )
    print(f"{measure.machine()}; {len(SEEDS)} seeds, rate {RATE}; loss after each {PART} of {UPDATES} updates")
    print(markdown(rows))


if __name__ == "__main__":
    main()
