"""A ParlAI teacher that streams shards: each example once in an epoch, over all processes, from any position on."""

import abc
import os
from collections.abc import Sequence
from typing import Any

from parlai.core.message import Message
from parlai.core.opt import Opt
from parlai.core.teachers import FixedDialogTeacher
from parlai.utils.data import DatatypeHelper
from parlai.utils.distributed import get_rank, num_workers

from polyagents.files.json_files import read_json

from .order import Order, ShardedExamples, Spot


class Stream:
    """What the teachers of a batch share.

    Attributes:
        shards: the examples of the split.
        order: the order of the examples.
        size: the number of examples for this process.
        is_evaluation: whether this is not a training set.
    """

    def __init__(self, opt: Opt, datatype: str, shards: ShardedExamples):
        self.shards = shards
        self.order = Order(self.shards.sizes, int(opt.get("teacher_seed") or 0))
        self.is_evaluation = not DatatypeHelper.is_training(datatype)
        self.shuffle = DatatypeHelper.should_shuffle(datatype)
        # Each process has its own examples, except where the dictionary is built.
        divided = self.is_evaluation or self.shuffle
        self.step: int = num_workers() if divided else 1
        self.first: int = get_rank() if divided else 0
        self.size = self.order.total
        if self.is_evaluation:
            self.size = len(range(self.first, self.order.total, self.step))
        if self.shuffle:
            self.first += examples_before(opt, self.order.total)
            background = opt.get("background_index")
            if background is not None:  # --num-workers: several teachers read ahead for this process
                self.first += self.step * background
                self.step *= opt["num_workers"]

    def spot(self, number: int) -> tuple[Spot, int]:
        """Return the shard position of this process's n-th example, and its position in the stream."""
        place = self.first + number * self.step
        return (self.order.spot(place) if self.shuffle else self.order.as_written(place)), place


class StreamTeacher(FixedDialogTeacher, abc.ABC):
    """Streams the training set in an order that the seed decides (`--teacher-seed`), with one shard in memory.

    A resumed training continues with the examples that come next. This is not ParlAI's ChunkTeacher, which shuffles
    anew in every run, and whose queue holds 100,000 examples.

    Attributes:
        has_own_targets: the data were built with all targets, and `--every-utterance` adds none.
    """

    has_own_targets = True

    def __init__(self, opt: Opt, shared: dict[str, Any] | None = None):
        self.datatype = DatatypeHelper.strip_stream(opt["datatype"])  # it streams anyway
        self.random = False
        self.number = 0
        super().__init__(opt, shared)
        if shared is None and is_to_be_validated(opt, self.datatype):
            self.open(opt, "valid")  # if there is none, this is said before the training and not after it
        self.data = self.open(opt, self.datatype) if shared is None else shared["data"]
        self.id = self.__module__.split(".")[-2]
        self.reset()

    @abc.abstractmethod
    def open(self, opt: Opt, datatype: str) -> Stream:
        """Open what is to be streamed; the fields of an example are `text` and `label`."""

    def share(self) -> dict[str, Any]:
        """ParlAI: return what the teachers of a batch share."""
        return super().share() | {"data": self.data}

    def num_examples(self) -> int:
        """ParlAI: return the number of examples of the split; in evaluation, of this process's part of it."""
        return self.data.size

    def num_episodes(self) -> int:
        """ParlAI: return the number of episodes; every example is one."""
        return self.data.size

    def next_episode_idx(self, num_eps: int | None = None, loop: bool | None = None) -> int:
        """FixedDialogTeacher: return the next number, whichever teacher of the batch asks."""
        self.index.value += 1
        self.number = self.index.value
        return self.number % self.data.size if self.cycle and self.data.size else self.number

    def skip(self, examples: int) -> None:
        """Skip examples, without reading them."""
        self.index.value += examples

    def get(self, episode_idx: int, entry_idx: int = 0) -> Message:
        """FixedDialogTeacher: return the example of `next_episode_idx`."""
        spot, place = self.data.spot(self.number)
        return Message(self.fields(self.data.shards.example(spot), spot, place) | {"episode_done": True})

    def fields(self, example: dict[str, Any], spot: Spot, place: int) -> dict[str, Any]:
        """Return text and labels of an example, and its label_candidates if it has any."""
        fields = {"text": example["text"], "labels": [example["label"]]}
        others = self.others(spot, place)
        return fields | {"label_candidates": [example["label"], *others]} if others else fields

    def others(self, spot: Spot, place: int) -> Sequence[str]:
        """Return candidates besides the label; none if the batch gives them."""
        return ()


def is_to_be_validated(opt: Opt, datatype: str) -> bool:
    """Say whether train_model will validate on the same task, as it does at its end at the latest."""
    is_first = not opt.get("background_index")  # of the teachers that --num-workers makes
    is_trained_on = DatatypeHelper.is_training(datatype) and "validation_metric" in opt
    return is_first and is_trained_on and not opt.get("evaltask")


def examples_before(opt: Opt, epoch: int) -> int:
    """Return how many examples a resumed training has had, as far as ParlAI has stored it."""
    checkpoint = f"{opt.get('model_file')}.checkpoint"
    if not opt.get("load_from_checkpoint") or not os.path.exists(checkpoint):
        return 0
    try:
        return round(read_json(f"{checkpoint}.trainstats")["total_epochs"] * epoch)
    except (OSError, ValueError, KeyError, TypeError):
        return 0  # the training itself reports errors in them
