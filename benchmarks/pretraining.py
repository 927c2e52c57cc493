"""Tokens a second of pre-training: ours against Hugging Face's Trainer, plain masked words, side by side in one run.

    python benchmarks/pretraining.py -t polyagents.tasks.convai2 -dp DATAPATH --backbone scratch:mini

Both train the same model from the same weights on the same pairs in the same precision. The Trainer gets its texts
tokenised beforehand and groups them by length (`train_sampling_strategy`), with as many examples a step as ours has on
average; ours tokenises within the time that is taken. Padding is not counted as tokens.
"""

import copy
import itertools
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from parlai.core.agents import create_agent
from parlai.scripts.build_dict import build_dict
from parlai.scripts.train_model import setup_args
from parlai.utils import logging
from transformers import DataCollatorForLanguageModeling, Trainer, TrainerCallback, TrainingArguments

from polyagents.benchmarks.measure import machine
from polyagents.parlai_agents.task_reader import TaskReader, TextPair
from polyagents.pretraining.pretrain_agent import PretrainAgent
from polyagents.pretraining.pretrain_model import WORDS
from polyagents.pretraining.pretraining_examples import PretrainingExample, encode
from polyagents.pretraining.world import WINDOW

TURNS = 4


class Clock(TrainerCallback):
    """A callback that takes the seconds of the Trainer's steps, without its preparations."""

    def __init__(self) -> None:
        self.begin = self.seconds = 0.0

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """Start the clock at the first step."""
        self.begin = self.begin or time.perf_counter()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """Stop the clock after the last step."""
        self.seconds = time.perf_counter() - self.begin


class Counting(DataCollatorForLanguageModeling):
    """A collator that counts real tokens and all tokens of every batch."""

    real = width = 0

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Transformers' own batch."""
        batch = super().__call__(*arguments, **named)
        self.real += int(batch["attention_mask"].sum())
        self.width += batch["attention_mask"].numel()
        return batch


def ours(agent: PretrainAgent, pairs: list[TextPair], updates: int, window: int) -> tuple[float, float]:
    """Measure tokens per second of updates of masked words, and the share of padding.

    Args:
        updates: how many updates.
    """
    agent.reset_metrics()
    begin, real, width = time.perf_counter(), 0, 0
    plan = [update for update in agent.plan(pairs, window) if update.objectives == (WORDS,)][:updates]
    for number, update in enumerate(plan):
        agent.train_update(update, number)
        lengths = [[len(example) for example in chunk] for chunk in update.chunks]
        real += sum(map(sum, lengths))
        width += sum(max(chunk) * len(chunk) for chunk in lengths)
    return real / (time.perf_counter() - begin), 1 - real / width


def trainers(agent: PretrainAgent, model: Any, examples: list[PretrainingExample], updates: int, size: int, seed: int
             ) -> tuple[float, float]:  # fmt: skip
    """Measure the same for the Trainer.

    Args:
        updates: how many steps.
        size: the number of examples of a step.
    """
    clock = Clock()
    collate = Counting(agent.dict.ready.to_transformers(), mlm_probability=0.15)
    data = [
        {"input_ids": [*one.context, *one.label], "token_type_ids": [0] * len(one.context) + [1] * len(one.label)}
        for one in examples
    ]
    with tempfile.TemporaryDirectory() as folder:
        settings = TrainingArguments(
            output_dir=folder, per_device_train_batch_size=size, max_steps=updates, learning_rate=2e-4,
            adam_beta2=0.98, weight_decay=0.0, warmup_steps=2000, save_strategy="no", report_to="none", seed=seed,
            disable_tqdm=True, logging_strategy="no", use_cpu=not torch.cuda.is_available(),
            bf16=agent.module.encoder.arithmetic(agent.device) == torch.bfloat16, remove_unused_columns=False,
            train_sampling_strategy="group_by_length",
        )  # fmt: skip
        trainer = Trainer(model, settings, data_collator=collate, train_dataset=data, callbacks=[clock])
        trainer.train()
    return collate.real / clock.seconds, 1 - collate.real / collate.width


def main() -> None:
    """Print a table."""
    parser = setup_args()
    parser.add_argument("--updates", type=int, default=8, help="of each turn; there are four")
    parser.set_defaults(model="polyagents:Pretrain", datatype="train", batch_tokens=8_000)
    with tempfile.TemporaryDirectory() as folder:
        opt = parser.parse_args([*sys.argv[1:], "-m", "polyagents:Pretrain", "-mf", os.path.join(folder, "M")])
        logging.disable()
        opt["dict_file"] = os.path.join(folder, "M.dict")
        build_dict(opt, skip_if_built=True)
        agent = create_agent(opt)
        reader = TaskReader(opt, 0)
        windows = [reader.read(WINDOW) for _ in range(TURNS + 1)]
        examples = [encode([(p, True) for p in pairs], agent.dict.ready, agent.text_truncate, agent.label_truncate)
                    for pairs in windows]  # fmt: skip
        mean = sum(map(len, itertools.chain(*examples))) / sum(map(len, examples))
        size = max(round(opt["batch_tokens"] / mean), 1)
        peer = copy.deepcopy(agent.module.lm)
        found: dict[str, list[tuple[float, float]]] = {"polyagents": [], "Trainer": []}
        for turn in range(TURNS + 1):  # the first one warms up
            ways: dict[str, Callable[[], tuple[float, float]]] = {
                "polyagents": partial(ours, agent, windows[turn], opt["updates"], turn),
                "Trainer": partial(trainers, agent, peer, examples[turn], opt["updates"], size, turn),
            }
            for name, way in ways.items():
                found[name].append(way())
    print(machine())
    print(f"{mean:.0f} tokens an example, {size} examples a step of the Trainer; medians of {TURNS} turns")
    print(f"{'':12}{'tokens/s':>9}  {'padding':>8}")
    medians = {
        name: [statistics.median(values) for values in zip(*rows[1:], strict=True)] for name, rows in found.items()
    }
    for name, (speed, padding) in medians.items():
        print(f"{name:12}{speed:9,.0f}  {padding:8.1%}")
    print(f"ratio {medians['polyagents'][0] / medians['Trainer'][0]:.2f}")


if __name__ == "__main__":
    main()
