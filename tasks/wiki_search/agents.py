"""The Wikipedia article search as ParlAI teachers; `polyagents build_wiki_search` makes their data."""

import copy
import itertools
import os
from collections.abc import Sequence
from typing import Any

from parlai.core.opt import Opt
from parlai.core.params import ParlaiParser
from parlai.utils.data import DatatypeHelper

from polyagents.arguments import count
from polyagents.console import number_of
from polyagents.errors import InputError
from polyagents.files.lines import opened, text_lines

from ..streaming.data_manifest import damaged, files_of
from ..streaming.order import Shards, Spot, some_others
from ..streaming.teacher import Stream, StreamTeacher
from .splitting import POOL, read_manifest


class WikiSearchTeacher(StreamTeacher):
    """Sentences as queries, and the articles that they were taken from as labels."""

    data: "Data"
    negatives = 0  # of each training example
    eval_candidates = 0  # from the pool, besides the label

    @classmethod
    def add_cmdline_args(cls, parser: ParlaiParser, partial_opt: Opt | None = None) -> ParlaiParser:
        """ParlAI: add the flags of the task."""
        super().add_cmdline_args(parser, partial_opt)
        group = parser.add_argument_group("Wikipedia article search (polyagents)")
        group.add_argument(
            "--wiki-search-path",
            help="folder that polyagents build_wiki_search made; by default wiki_search below --datapath",
        )
        group.add_argument(
            "--wiki-eval-candidates",
            type=count,
            help="in evaluation, rank each label among this many articles of the pool, the same for all (with "
            "--eval-candidates inline); for all of it give --eval-candidates fixed --fixed-candidates-path "
            "DIR/pool.txt, by default the teacher's number",
        )
        return parser

    def open(self, opt: Opt, datatype: str) -> "Data":
        """StreamTeacher: open the split, and the pool."""
        return Data(opt, datatype, self.eval_candidates)

    def others(self, spot: Spot, place: int) -> Sequence[str]:
        """StreamTeacher: return articles of the pool, or in training random articles."""
        return self.data.pool if self.data.is_evaluation else self.data.others(spot, place, self.negatives)


class DefaultTeacher(WikiSearchTeacher):
    """The teacher that `-t polyagents.tasks.wiki_search` finds: text and label; the batch gives the candidates."""


class CrossTeacher(WikiSearchTeacher):
    """A teacher with candidates: 15 random articles in training (paper 5.1), 99 of the pool in evaluation."""

    negatives = 15
    eval_candidates = 99  # chosen here: a cross-encoder reads each of them with each query


class Sample(DefaultTeacher):
    """`-t polyagents.tasks.wiki_search:sample`: 40 short articles, written for it, in the folder next to this file."""

    def __init__(self, opt: Opt, shared: dict[str, Any] | None = None):
        opt = copy.copy(opt)
        opt["wiki_search_path"] = os.path.join(os.path.dirname(__file__), "sample")
        super().__init__(opt, shared)


class Data(Stream):
    """What the teachers of a batch share.

    Attributes:
        pool: articles among which labels are ranked; the same list for every example.
    """

    def __init__(self, opt: Opt, datatype: str, eval_candidates: int):
        folder = opt.get("wiki_search_path") or os.path.join(opt["datapath"], "wiki_search")
        made = read_manifest(folder)
        super().__init__(opt, datatype, Shards(list(files_of(folder, made, DatatypeHelper.fold(datatype)))))
        given = opt.get("wiki_eval_candidates")
        wanted = (eval_candidates if given is None else given) if self.is_evaluation else 0
        self.pool = first_of_pool(folder, wanted, given is not None)

    def others(self, spot: Spot, place: int, wanted: int) -> list[str]:
        """Return labels of random other examples of the same shard, which is in memory."""
        rows = some_others(self.order.sizes[spot.shard], wanted, spot.row, f"{self.order.seed} {place}")
        return [self.shards.example(Spot(spot.shard, row))["label"] for row in rows] if wanted else []


def first_of_pool(folder: str, wanted: int, was_asked: bool) -> list[str]:
    """Return the first articles of the pool, which is in random order.

    Args:
        was_asked: whether the user gave this number, so that fewer are an error.
    """
    path = os.path.join(folder, POOL)
    try:
        with opened(path) as file:
            found = list(itertools.islice(text_lines(file, path), wanted))
    except OSError as error:
        raise damaged(path, f"cannot be read ({error.strerror})") from error
    if len(found) < wanted and was_asked:
        raise InputError(
            f"--wiki-eval-candidates {wanted}: the pool {path} has {number_of(len(found), 'article')}; give fewer."
        )
    return found
