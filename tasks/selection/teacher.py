"""A response selection corpus as a ParlAI teacher."""

import copy
import os
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from parlai.core.opt import Opt
from parlai.core.teachers import DialogTeacher
from parlai.utils.data import DatatypeHelper

from polyagents.tasks.counts import check_count, say_once

from .reply_lines import read_questions, read_replies

Entry = tuple[Any, ...]  # context, labels, reward, candidates


@dataclass(frozen=True)
class Corpus:
    """A data set.

    Attributes:
        folder: the folder of its files below --datapath.
        source: where they can be downloaded.
        files: the file of each split.
        candidates: the number of candidates per context in valid and in test.
    """

    name: str
    folder: str
    source: str
    files: Mapping[str, str]
    candidates: Mapping[str, int]


class SelectionTeacher(DialogTeacher):
    """The right replies in training; in valid and test the candidates, in an order given by the context's number.

    Attributes:
        sample: a folder of made-up files that replace the real ones; None for the real ones.
    """

    corpus: Corpus
    sample: str | None = None

    def __init__(self, opt: Opt, shared: dict[str, Any] | None = None):
        opt = copy.deepcopy(opt)
        self.split = DatatypeHelper.fold(opt["datatype"])
        folder = self.sample or os.path.join(opt["datapath"], self.corpus.folder)
        opt["datafile"] = os.path.join(folder, self.corpus.files[self.split])
        if self.sample:
            opt["datatype"] = DatatypeHelper.strip_stream(opt["datatype"])  # a stream would note its length beside it
        super().__init__(opt, shared)

    def setup_data(self, path: str) -> Iterator[tuple[Entry, bool]]:
        """DialogTeacher: yield the examples, each an episode of its own."""
        names = ", ".join(self.corpus.files.values())
        how = f"it is not downloaded: put {names} of {self.corpus.source} into {os.path.dirname(path)}"
        for entry in self.right_replies(path, how) if self.split == "train" else self.questions(path, how):
            yield entry, True

    def right_replies(self, path: str, how: str) -> Iterator[Entry]:
        """Yield the training examples; wrong replies say nothing about what is right."""
        found = useless = 0
        for reply in read_replies(path, how):
            found += 1
            if reply.is_right and reply.context and reply.text:
                yield reply.context, (reply.text,)
            elif reply.is_right:
                useless += 1
        self.tell(path, found, useless, "right replies that are empty, or have no context")

    def questions(self, path: str, how: str) -> Iterator[Entry]:
        """Yield the contexts of which some candidates are right and some are wrong."""
        found = useless = 0
        size = self.corpus.candidates[self.split]
        for number, question in enumerate(read_questions(path, size, how), 1):
            found += size
            right = [text for text in question.right if text]
            if right and question.context and len(question.right) < size:
                # The files have the right ones first.
                shuffled = random.Random(number).sample(question.candidates, size)
                yield question.context, right, None, shuffled
            else:
                useless += 1
        self.tell(path, found, useless, "contexts of whose candidates none is right, or all are")

    def tell(self, path: str, found: int, useless: int, what: str) -> None:
        """Say what was skipped, and whether the file has another size than the published one."""
        if useless:
            say_once(self.opt, f"{path}: {useless:,} {what}; they are skipped.")
        if not (self.sample or self.stream):
            check_count(self.opt, self.corpus.name, self.split, found, "lines", path)
