"""What the tasks banking77 and clinc150 share: the files of a data set of intents, and its ParlAI teacher."""

import abc
import os
import random
import zlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from parlai.core.opt import Opt
from parlai.core.params import ParlaiParser

from polyagents.arguments import positive_int
from polyagents.console import number_of
from polyagents.errors import InputError, NoTestSplit
from polyagents.files.locks import exclusive_folder
from polyagents.tasks.counts import warn_of_count
from polyagents.zoo.download import download

from .one_message import OneMessageTeacher

PARTS = 5  # of a training set without a valid split, by a checksum of the text: one is valid


class Example(NamedTuple):
    """A text in one line, and its intent in words."""

    text: str
    intent: str

    @classmethod
    def of(cls, text: str, intent: str) -> "Example":
        """Make an example of the cells of a file."""
        return cls(" ".join(text.split()), " ".join(intent.replace("_", " ").split()))


class PublicFile(NamedTuple):
    """A published file: its address, which names a commit, and the SHA-256 of its content."""

    url: str
    sha256: str


def obtain(files: Iterable[PublicFile], folder: str) -> str:
    """Download the files that a folder lacks, once for all processes that ask together.

    Raises:
        InputError: a file cannot be downloaded, or is not the published one.
    """
    paths = {file: os.path.join(folder, os.path.basename(file.url)) for file in files}
    if not all(map(os.path.exists, paths.values())):
        # Whatever else is in the folder of the data set's name stays: only files that are missing are written.
        with exclusive_folder(folder, "intents", "--datapath", lambda _: True):
            for file, path in paths.items():
                if not os.path.exists(path):
                    download(file.url, path, file.sha256)
    return folder


def is_held_out(example: Example) -> bool:
    """Return whether a training example is in valid, whatever else the file holds."""
    return zlib.crc32(example.text.encode()) % PARTS == 0


def few(examples: Sequence[Example], count: int, seed: int) -> list[Example]:
    """Draw as many examples of each intent; the draws of one intent do not depend on the others.

    Raises:
        InputError: an intent has fewer.
    """
    by_intent: dict[str, list[Example]] = {}
    for example in examples:
        by_intent.setdefault(example.intent, []).append(example)
    rarest = min(by_intent, key=lambda intent: len(by_intent[intent]))
    if len(by_intent[rarest]) < count:
        raise InputError(
            f"--few-shot {count}: the intent {rarest!r} has {number_of(len(by_intent[rarest]), 'training example')}; "
            f"give a smaller number."
        )
    return [one for intent, own in by_intent.items() for one in random.Random(f"{seed} {intent}").sample(own, count)]


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
            warn_of_count(opt, self.name, split, len(found), "examples", folder)
            warn_of_count(opt, self.name, "in all", len({example.intent for example in train}), "intents", folder)
        if split == "train" and opt.get("few_shot"):
            found = few(found, opt["few_shot"], opt.get("few_shot_seed") or 0)
        return [
            {"text": text, "labels": [] if intent == self.none_intent else [intent], "label_candidates": intents}
            for text, intent in found
        ]

    def fields(self, example: dict[str, Any]) -> dict[str, Any]:
        """OneMessageTeacher: return an example with a list of its own."""
        return example | {"label_candidates": list(example["label_candidates"])}
