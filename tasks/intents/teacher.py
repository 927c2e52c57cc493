"""A data set of intents as a ParlAI teacher."""

import abc
import os
from collections.abc import Sequence
from typing import Any

from parlai.core.opt import Opt
from parlai.core.params import ParlaiParser

from polyagents.arguments import positive_int
from polyagents.errors import InputError, NoTestSplit
from polyagents.tasks.counts import check_count

from ..one_message import OneMessageTeacher
from .files import Example, PublicFile, few, obtain


class IntentTeacher(OneMessageTeacher, abc.ABC):
    """A text, its intent as label, and the intents of the training set as candidates, the same for every example.

    Attributes:
        name: of the data set, in the tables of counts.
        folder: of its files below --datapath.
        files: what is downloaded if it is missing.
        none_intent: the intent of texts that have none, so no candidate of theirs is right; None if there are none.
        sample: a folder of made-up files that replace the real ones; None for the real ones.
    """

    name: str
    folder: str
    files: Sequence[PublicFile]
    none_intent: str | None = None
    sample: str | None = None

    @classmethod
    def add_cmdline_args(cls, parser: ParlaiParser, partial_opt: Opt | None = None) -> ParlaiParser:
        """ParlAI: add the flags of the task."""
        super().add_cmdline_args(parser, partial_opt)
        group = parser.add_argument_group("Intents (polyagents)")
        group.add_argument(
            "--few-shot", type=positive_int, help="train on this many examples of each intent, not on all"
        )
        group.add_argument("--few-shot-seed", type=int, default=0, help="decides which examples --few-shot draws")
        return parser

    @abc.abstractmethod
    def of_split(self, folder: str, split: str) -> list[Example]:
        """Read the examples of a split."""

    def read(self, opt: Opt, split: str) -> list[dict[str, Any]]:
        """OneMessageTeacher: read all examples of a split."""
        folder = self.sample or obtain(self.files, os.path.join(opt["datapath"], self.folder))
        train = self.of_split(folder, "train")
        found = train if split == "train" else self.of_split(folder, split)
        if not found or not train:
            kind = NoTestSplit if train and split == "test" else InputError
            raise kind(f"{folder} has no examples in {split if train else 'train'}.")
        if empty := [number for number, example in enumerate(found, 1) if not all(example)]:
            raise InputError(f"{folder}: example {empty[0]:,} of {split} has no text or no intent.")
        intents = sorted({example.intent for example in train} - {self.none_intent})
        if not self.sample:
            check_count(opt, self.name, split, len(found), "examples", folder)
            check_count(opt, self.name, "in all", len({example.intent for example in train}), "intents", folder)
        if split == "train" and opt.get("few_shot"):
            found = few(found, opt["few_shot"], opt.get("few_shot_seed") or 0)
        return [
            {"text": text, "labels": [] if intent == self.none_intent else [intent], "label_candidates": intents}
            for text, intent in found
        ]

    def fields(self, example: dict[str, Any]) -> dict[str, Any]:
        """OneMessageTeacher: return an example with a list of its own."""
        return example | {"label_candidates": list(example["label_candidates"])}
