"""Ubuntu V2 as a ParlAI teacher."""

import copy
import os
import random
from collections.abc import Iterator
from typing import Any

from parlai.core.opt import Opt
from parlai.core.teachers import DialogTeacher
from parlai.tasks.ubuntu.build import build
from parlai.utils.data import DatatypeHelper

from polyagents.errors import InputError
from polyagents.tasks.counts import check_count, say_once

from .rows import EVALUATION, TRAIN, context_of, read_rows, reply_of

SAMPLE = os.path.join(os.path.dirname(__file__), "sample")
LABELS = {"1": True, "0": False, "1.0": True, "0.0": False}


class DefaultTeacher(DialogTeacher):
    """The rows of label 1 in training; ten candidates in valid and test, in an order given by the row's number."""

    def __init__(self, opt: Opt, shared: dict[str, Any] | None = None):
        opt = copy.deepcopy(opt)
        self.split = DatatypeHelper.fold(opt["datatype"])
        opt["datafile"] = os.path.join(self.folder(opt), f"{self.split}.csv")
        # Where a stream notes its length; ParlAI's teacher counts other rows of the same file.
        opt["length_datafile"] = f"{opt['datafile']}.polyagents.lengths"
        super().__init__(opt, shared)

    def folder(self, opt: Opt) -> str:
        """Return the folder of ParlAI's teacher, which downloads the files if necessary."""
        build(opt)
        return os.path.join(opt["datapath"], "Ubuntu")

    def check(self, found: int, path: str) -> None:
        """Compare the number of rows with the paper's."""
        if not self.stream:
            check_count(self.opt, "Ubuntu V2", self.split, found, "rows", path)

    def setup_data(self, path: str) -> Iterator[tuple[tuple[Any, ...], bool]]:
        """DialogTeacher: yield the examples, each an episode of its own."""
        rows = negatives = 0
        for row in read_rows(path, TRAIN if self.split == "train" else EVALUATION):
            rows += 1
            if self.split != "train":
                yield question(row, rows), True
            elif is_positive(row, f"{path}, row {rows}"):
                yield (context_of(row[0]), (reply_of(row[1]),)), True
            else:
                negatives += 1
        if negatives:
            say_once(
                self.opt, f"{path}: {negatives:,} of {rows:,} rows have label 0; they are negatives, and left out."
            )
        self.check(rows, path)


class Sample(DefaultTeacher):
    """Made-up rows in the same files, without a download."""

    def __init__(self, opt: Opt, shared: dict[str, Any] | None = None):
        opt = copy.deepcopy(opt)
        opt["datatype"] = DatatypeHelper.strip_stream(opt["datatype"])  # a stream would note its length beside the file
        super().__init__(opt, shared)

    def folder(self, opt: Opt) -> str:
        """Return the folder beside this file."""
        return SAMPLE

    def check(self, found: int, path: str) -> None:
        """Do nothing: nobody published scores on the sample."""


def is_positive(row: list[str], where: str) -> bool:
    """Return whether the reply of a training row is the right one."""
    label = row[2]
    if label not in LABELS:
        raise InputError(f"{where}: the label is {label!r}; it is 1 or 0.")
    return LABELS[label]


def question(row: list[str], number: int) -> tuple[str, tuple[str], None, list[str]]:
    """Return a row of valid or test as DialogTeacher expects it: context, label, no reward, candidates."""
    label, *_ = candidates = [reply_of(text) for text in row[1:]]
    random.Random(number).shuffle(candidates)
    return context_of(row[0]), (label,), None, candidates
