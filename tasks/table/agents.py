"""Tables of examples as a ParlAI teacher."""

import contextlib
import itertools
import random
from collections.abc import Mapping
from typing import Any

from parlai.core.opt import Opt
from parlai.core.params import ParlaiParser
from parlai.utils.data import DatatypeHelper

from polyagents.errors import InputError
from polyagents.properties import cached_property
from polyagents.text.normalize import normalized

from ..counts import say_once
from ..streaming.blocks import Table
from ..streaming.data_files import EmptySplit
from ..streaming.order import Spot
from ..streaming.teacher import Stream, StreamTeacher
from .splits import KINDS, is_divided, open_split, splits_of

ANSWERS = 1_000  # labels of a table, at most, all of which are ranked: an FAQ, intents
CANDIDATES = 20  # of an example among more labels; as many as ConvAI2's have
POOL = 10_000  # examples that these are drawn from: the first ones of a split, so that they fit into memory


class DefaultTeacher(StreamTeacher):
    """A context, its labels, and its own candidates with the labels among them, where it has some."""

    data: "Data"

    @classmethod
    def add_cmdline_args(cls, parser: ParlaiParser, partial_opt: Opt | None = None) -> ParlaiParser:
        """ParlAI: add the flag of the task."""
        super().add_cmdline_args(parser, partial_opt)
        group = parser.add_argument_group("Tables of your own data (polyagents)")
        group.add_argument("--table-path", help=f"columns context, label and, optionally, candidates: {KINDS}")
        return parser

    def open(self, opt: Opt, datatype: str) -> "Data":
        """StreamTeacher: open the split."""
        path = opt.get("table_path")
        if not path:
            raise InputError(f"-t polyagents.tasks.table needs --table-path: {KINDS}.")
        table = open_split(path, DatatypeHelper.fold(datatype))
        if is_divided(path):
            say_once(
                opt,
                f"{path} is one file: a checksum of each context puts about eight in ten examples into train, one into "
                f"valid and one into test.",
            )
        return Data(opt, datatype, table, path)

    def fields(self, example: dict[str, Any], spot: Spot, place: int) -> dict[str, Any]:
        """StreamTeacher: return text and labels of an example, and its label_candidates if it has any."""
        labels, candidates = example["labels"], example["candidates"]
        fields = {"text": example["context"], "labels": list(labels)}
        if candidates:
            fields["label_candidates"] = [*(one for one in labels if one not in candidates), *candidates]
        elif self.data.is_evaluation:
            fields["label_candidates"] = self.data.candidates_of(example)
        return fields


class Data(Stream):
    """What the teachers of a batch share."""

    shards: Table

    def __init__(self, opt: Opt, datatype: str, shards: Table, path: str):
        super().__init__(opt, datatype, shards)
        self.path = path

    @cached_property
    def known(self) -> tuple[dict[str, str], dict[str, set[str]]] | None:
        """The labels of train and valid, by how they read, and what is right for each context of the pool.

        None if there are no labels, or more than ANSWERS.
        """
        found: dict[str, str] = {}
        right: dict[str, set[str]] = {}
        for context, labels in self.pool:
            right.setdefault(context, set()).update(map(normalized, labels))
        for split in [one for one in splits_of(self.path) if one != "test"]:
            with contextlib.suppress(EmptySplit):
                for example in open_split(self.path, split):
                    for label in example["labels"]:
                        found.setdefault(normalized(label), label)
                    if example["context"] in right:
                        right[example["context"]].update(map(normalized, example["labels"]))
                    if len(found) > ANSWERS:
                        return None
        return (found, right) if found else None

    @cached_property
    def pool(self) -> list[tuple[str, list[str]]]:
        """The contexts and labels of the first examples of the split."""
        some = itertools.islice(self.shards, POOL)
        return [(example["context"], example["labels"]) for example in some if example["labels"]]

    def candidates_of(self, example: Mapping[str, Any]) -> list[str]:
        """Return what an example ranks that has no candidates: all labels of the table, or some if these are many."""
        if self.known is None:
            return self.drawn_candidates(example)
        answers, right = self.known
        labels = {normalized(label): label for label in example["labels"]}
        right_here = {*labels, *right.get(example["context"], ())}  # another right answer to it is not wrong
        return [*labels.values(), *(text for reading, text in answers.items() if reading not in right_here)]

    def drawn_candidates(self, example: Mapping[str, Any]) -> list[str]:
        """Return the labels of an example and of other ones, all of which read differently.

        Without them, an example that is evaluated in a batch of its own would be ranked among nothing but its label.
        The draw follows from the context, so that every evaluation asks the same.
        """
        found = {normalized(label): label for label in example["labels"]}
        draw = random.Random(example["context"])
        for _ in range(5 * CANDIDATES):  # more than are wanted, as replies repeat
            if not self.pool or len(found) >= CANDIDATES:
                break
            context, labels = self.pool[int(draw.random() * len(self.pool))]
            if context != example["context"]:  # another right answer to it is not wrong
                found.setdefault(normalized(labels[0]), labels[0])
        return list(found.values())
