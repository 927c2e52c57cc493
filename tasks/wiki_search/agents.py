"""The Wikipedia article search as ParlAI teachers; `polyagents build_wiki_search` makes their data."""

import itertools
import json
import os
from typing import Any

from parlai.core.message import Message
from parlai.core.opt import Opt
from parlai.core.params import ParlaiParser
from parlai.core.teachers import FixedDialogTeacher
from parlai.utils.data import DatatypeHelper
from parlai.utils.distributed import get_rank, num_workers

from polyagents.errors import InputError

from .manifest import POOL, files_of, read_manifest
from .order import Order, Shards, Spot, some_others


class WikiSearchTeacher(FixedDialogTeacher):
    """Streams the training set in an order that the seed decides (`--teacher-seed`), one shard in memory.

    A training that is resumed goes on with the examples that come next. Not ParlAI's ChunkTeacher: it shuffles anew in
    every run, and its queue holds 100,000 articles.
    """

    negatives = 0  # of each training example
    eval_candidates = 0  # from the pool, beside the label

    @classmethod
    def add_cmdline_args(cls, parser: ParlaiParser, partial_opt: Opt | None = None) -> ParlaiParser:
        """ParlAI: the flags of the task."""
        super().add_cmdline_args(parser, partial_opt)
        group = parser.add_argument_group("Wikipedia article search (polyagents)")
        group.add_argument(
            "--wiki-search-path",
            help="folder that polyagents build_wiki_search made; by default wiki_search below --datapath",
        )
        group.add_argument(
            "--wiki-eval-candidates",
            type=int,
            help="in evaluation, rank each label among so many articles of the pool, the same for all (with "
            "--eval-candidates inline); for all of it give --eval-candidates fixed --fixed-candidates-path "
            "DIR/pool.txt, by default as many as the teacher has",
        )
        return parser

    def __init__(self, opt: Opt, shared: dict[str, Any] | None = None):
        self.datatype = DatatypeHelper.strip_stream(opt["datatype"])  # it streams anyway
        self.random = False
        self.number = 0
        super().__init__(opt, shared)
        if shared is None:
            self.data = Data(opt, self.datatype, self.eval_candidates)
        else:
            self.data = shared["data"]
        self.id = "wiki_search"
        self.reset()

    def share(self) -> dict[str, Any]:
        """ParlAI: what the teachers of a batch have in common."""
        return super().share() | {"data": self.data}

    def num_examples(self) -> int:
        """ParlAI: of the split; in evaluation, of this process's part of it."""
        return self.data.size

    def num_episodes(self) -> int:
        """ParlAI: every example is one."""
        return self.data.size

    def next_episode_idx(self, num_eps: int | None = None, loop: bool | None = None) -> int:
        """FixedDialogTeacher: the next one for whichever teacher of the batch asks."""
        self.index.value += 1
        self.number = self.index.value
        return self.number % self.data.size if self.cycle and self.data.size else self.number

    def get(self, episode_idx: int, entry_idx: int = 0) -> Message:
        """FixedDialogTeacher: the example of `next_episode_idx`."""
        spot, place = self.data.spot(self.number)
        example = self.data.shards.example(spot)
        message = Message({"text": example["text"], "labels": [example["label"]], "episode_done": True})
        others = self.data.pool if self.data.is_evaluation else self.data.others(spot, place, self.negatives)
        if others:
            message["label_candidates"] = [example["label"], *others]
        return message


class DefaultTeacher(WikiSearchTeacher):
    """The one that `-t polyagents.tasks.wiki_search` finds: text and label; candidates are those of the batch."""


class CrossTeacher(WikiSearchTeacher):
    """With candidates of its own: 15 random articles in training (paper 5.1), 99 of the pool in evaluation."""

    negatives = 15
    eval_candidates = 99  # chosen here: a cross-encoder reads each of them with each query


class Data:
    """What the teachers of a batch share.

    Attributes:
        shards: the examples of the split.
        size: how many of them there are for this process.
        pool: articles that labels are ranked among; the same list for every example.
        is_evaluation: not a training set.
    """

    def __init__(self, opt: Opt, datatype: str, eval_candidates: int):
        folder = opt.get("wiki_search_path") or os.path.join(opt["datapath"], "wiki_search")
        made = read_manifest(folder)
        self.shards = Shards(list(files_of(folder, made, DatatypeHelper.fold(datatype))))
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
        given = opt.get("wiki_eval_candidates")
        wanted = (eval_candidates if given is None else given) if self.is_evaluation else 0
        self.pool = first_of_pool(folder, wanted, given is not None)

    def spot(self, number: int) -> tuple[Spot, int]:
        """Of this process's n-th example, and its place in the stream."""
        place = self.first + number * self.step
        return (self.order.spot(place) if self.shuffle else self.order.as_written(place)), place

    def others(self, spot: Spot, place: int, wanted: int) -> list[str]:
        """Labels of random other examples, of the same shard: that one is in memory."""
        rows = some_others(self.order.sizes[spot.shard], wanted, spot.row, f"{self.order.seed} {place}")
        return [self.shards.example(Spot(spot.shard, row))["label"] for row in rows] if wanted else []


def first_of_pool(folder: str, wanted: int, was_asked: bool) -> list[str]:
    """The first articles of the pool; they are in random order.

    Raises:
        InputError: it has not as many as the user wants.
    """
    path = os.path.join(folder, POOL)
    try:
        with open(path, encoding="utf-8") as file:
            found = [line.rstrip("\n") for line in itertools.islice(file, max(wanted, 0))]
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}); build the data again.") from error
    if wanted < 0 or (len(found) < wanted and was_asked):
        raise InputError(f"--wiki-eval-candidates {wanted}: the pool {path} has {len(found):,} articles; give fewer.")
    return found


def examples_before(opt: Opt, epoch: int) -> int:
    """How many examples a training that goes on from its checkpoint has had, as far as ParlAI has written it down."""
    checkpoint = f"{opt.get('model_file')}.checkpoint"
    if not opt.get("load_from_checkpoint") or not os.path.exists(checkpoint):
        return 0
    try:
        with open(f"{checkpoint}.trainstats", encoding="utf-8") as file:
            return round(json.load(file)["total_epochs"] * epoch)
    except (OSError, ValueError, KeyError, TypeError):
        return 0  # training itself says what is wrong with them
