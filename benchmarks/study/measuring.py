"""The measurements of a model: the rank of each evaluated example's label, and the time of a reply."""

import contextlib
import hashlib
import itertools
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from parlai.agents.repeat_label.repeat_label import RepeatLabelAgent
from parlai.core.opt import Opt
from parlai.core.worlds import create_task

from polyagents.errors import InputError
from polyagents.parlai_agents.task_reader import TaskReader
from polyagents.parlai_patches.exchanges import (
    PARLAIS_SEED,
    ReaderDraws,
    WorldInOrder,
    add_to_hash,
    exchanges,
    is_example,
)
from polyagents.ranker import median_seconds

TRAIN, VALID = "train:evalmode", "valid"  # splits, read once and in their order

# The median reply is over this many contexts, fewer if they would take longer: pairs are slow. Chosen here.
TIMED_CONTEXTS = (3, 50)
TIMED_SECONDS = 10.0


class Example(NamedTuple):
    """One example as texts: the context, one line per utterance; all labels; its own candidates; its dialogue."""

    context: str
    labels: tuple[str, ...]
    candidates: tuple[str, ...]
    dialogue: int


class Ranks(NamedTuple):
    """An evaluation.

    Attributes:
        ranks: of each example's label, from 1, in the order of the task.
        evaluated: a hash of the examples with their candidates.
        dialogues: how many of the examples each dialogue has, in the same order.
    """

    ranks: list[int]
    evaluated: str
    dialogues: list[int]


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Restore every state that training draws from."""
    before = (random.getstate(), np.random.get_state())
    with torch.random.fork_rng(range(torch.cuda.device_count())):
        try:
            yield
        finally:
            random.setstate(before[0])
            np.random.set_state(before[1])


def evaluation_opt(opt: Opt, split: str) -> Opt:
    """Return the options of a run for the evaluation of a split."""
    return Opt(opt | {"task": opt["evaltask"], "datatype": split, "batchsize": opt["eval_batchsize"]})


def evaluate(world: WorldInOrder) -> Ranks:
    """Evaluate a model on a task as `polyagents evaluate` does, keeping the rank of each example.

    Raises:
        InputError: the examples have no labels.
    """
    ranks, dialogues = [], []
    for dialogue, _, reply in exchanges(world):
        if (rank := (reply.get("metrics") or {}).get("rank")) is not None:
            ranks.append(int(rank.value()))
            dialogues.append(dialogue)
    if not ranks:
        raise InputError("The split has no examples with labels; there is nothing to measure.")
    return Ranks(ranks, world.digest, lengths(dialogues))


def lengths(dialogues: Iterable[int]) -> list[int]:
    """Return how many examples each dialogue has, given the dialogue of each example, in order."""
    return [sum(1 for _ in own) for _, own in itertools.groupby(dialogues)]


def examples_of(opt: Opt, split: str, num_examples: int) -> tuple[list[Example], str]:
    """Return the first examples, which `evaluate` meets, as texts, and its hash of them.

    Args:
        opt: the options of a run, with the task that is evaluated.
        num_examples: how many; all if there are fewer.
    """
    own, digest = Opt(evaluation_opt(opt, split) | {"batchsize": 1}), hashlib.sha256()
    world, found, said = create_task(own, RepeatLabelAgent(own)), list[Example](), list[str]()
    draws, dialogue = ReaderDraws(PARLAIS_SEED), 0
    while len(found) < num_examples and not world.epoch_done():
        with draws.used():
            world.parley()
        message = world.get_acts()[0]
        labels = tuple(message.get("eval_labels") or ())
        said += [message["text"]] if message.get("text") else []
        if is_example(message):
            found.append(Example("\n".join(said), labels, tuple(message.get("label_candidates") or ()), dialogue))
            add_to_hash(message, digest)
        dialogue += bool(message.get("episode_done"))
        said = [] if message.get("episode_done") else [*said, *labels[:1]]
    return found, digest.hexdigest()[:16]


def distinct_labels(opt: Opt, count: int, first: Iterable[str] = (), splits: Sequence[str] = (TRAIN,)) -> list[str]:
    """Return distinct labels of the task that is evaluated: `count` of them, or all if there are fewer.

    Args:
        opt: the options of a run, with that task.
        count: how many at most.
        first: these come before the splits'.
        splits: read in this order, each in its own, until there are enough.
    """
    labels = dict.fromkeys(first)
    for split in splits:
        reader = TaskReader(Opt(opt | {"task": opt["evaltask"], "datatype": split}), seed=0)
        while len(labels) < count and (pairs := reader.read(count)):
            labels |= dict.fromkeys(pair.label for pair in pairs if pair.label)
    return list(labels)[:count]


def milliseconds_per_reply(reply: Callable[[str], Any], examples: Sequence[Example]) -> float:
    """Return the median time of a reply, one context after the other."""
    begin = time.perf_counter()
    reply(examples[0].context)  # the first one warms up
    affordable = int(TIMED_SECONDS / (time.perf_counter() - begin))
    least, most = TIMED_CONTEXTS
    timed = examples[: max(least, min(most, affordable))]
    return 1e3 * median_seconds(reply, [example.context for example in timed])
