"""Tables of examples as a ParlAI teacher."""

import functools
import itertools
import random
from collections.abc import Mapping
from typing import Any

from parlai.core.opt import Opt
from parlai.core.params import ParlaiParser
from parlai.utils.data import DatatypeHelper

from polyagents.errors import InputError
from polyagents.text.normalize import normalized

from ..counts import say_once
from ..streaming.blocks import Table
from ..streaming.order import Spot
from ..streaming.teacher import Stream, StreamTeacher
from .splits import KINDS, is_divided, open_split

CANDIDATES = 20  # of an example that has none of its own, in valid and test; as many as ConvAI2's have
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
        return Data(opt, datatype, table)

    def fields(self, example: dict[str, Any], spot: Spot, place: int) -> dict[str, Any]:
        """StreamTeacher: return text and labels of an example, and its label_candidates if it has any."""
        labels, candidates = example["labels"], example["candidates"]
        fields = {"text": example["context"], "labels": list(labels)}
        if candidates:
            fields["label_candidates"] = [*(one for one in labels if one not in candidates), *candidates]
        elif self.data.is_evaluation:
            fields["label_candidates"] = self.data.drawn_candidates(example)
        return fields


class Data(Stream):
    """What the teachers of a batch share."""

    shards: Table

    @functools.cached_property
    def pool(self) -> list[tuple[str, str]]:
        """The contexts and labels of the first examples of the split."""
        some = itertools.islice(self.shards, POOL)
        return [(example["context"], example["labels"][0]) for example in some]

    def drawn_candidates(self, example: Mapping[str, Any]) -> list[str]:
        """Return the labels of an example and of other ones, all of which read differently.

        Without them, an example that is evaluated in a batch of its own would be ranked among nothing but its label.
        The draw follows from the context, so that every evaluation asks the same.
        """
        found = {normalized(label): label for label in example["labels"]}
        draw = random.Random(example["context"])
        for _ in range(5 * CANDIDATES):  # more than are wanted, as replies repeat
            if len(found) >= CANDIDATES:
                break
            context, label = self.pool[int(draw.random() * len(self.pool))]
            if context != example["context"]:  # another right answer to it is no wrong one
                found.setdefault(normalized(label), label)
        return list(found.values())
