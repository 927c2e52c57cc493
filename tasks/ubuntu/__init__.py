"""Ubuntu Dialogue Corpus V2: which of ten replies comes next? Wrong rows are skipped, utterances kept separate.

`-t polyagents.tasks.ubuntu`, from the files that ParlAI downloads. An example:

    hi , my sound is gone since the upgrade
    anybody ?
    did you look whether it is muted in alsamixer ?
        -> it was __eou__ thanks a lot

`-t polyagents.tasks.ubuntu:sample` is a few made-up rows in the same format, without a download.
"""

import copy
import os
import random
from collections.abc import Iterator
from typing import Any

from parlai.core.opt import Opt
from parlai.core.teachers import DialogTeacher
from parlai.tasks.ubuntu.build import build
from parlai.utils.data import DatatypeHelper

from polyagents.console import number_of
from polyagents.errors import InputError
from polyagents.tasks.counts import say_once, warn_of_count

from .rows import EVALUATION, TRAIN, context_of, read_rows, reply_of

LABELS = {"1": True, "0": False, "1.0": True, "0.0": False}


class DefaultTeacher(DialogTeacher):
    """The rows of label 1 in training; ten candidates in valid and test, in an order given by the row's number."""

    sample: str | None = None  # a folder of made-up files, without a download

    def __init__(self, opt: Opt, shared: dict[str, Any] | None = None):
        opt = copy.deepcopy(opt)
        self.split = DatatypeHelper.fold(opt["datatype"])
        if self.sample is None:
            build(opt)  # ParlAI's, which downloads the files if necessary
        folder = self.sample or os.path.join(opt["datapath"], "Ubuntu")
        opt["datafile"] = os.path.join(folder, f"{self.split}.csv")
        super().__init__(opt, shared)

    def setup_data(self, path: str) -> Iterator[tuple[tuple[Any, ...], bool]]:
        """DialogTeacher: yield the examples, each an episode of its own."""
        rows = negatives = 0
        for row in read_rows(path, TRAIN if self.split == "train" else EVALUATION):
            rows += 1
            if self.split != "train":
                label, *_ = candidates = [reply_of(text) for text in row[1:]]
                random.Random(rows).shuffle(candidates)
                yield (context_of(row[0]), (label,), None, candidates), True
            elif row[2] not in LABELS:
                raise InputError(f"{path}, row {rows}: the label is {row[2]!r}; it is 1 or 0.")
            elif LABELS[row[2]]:
                yield (context_of(row[0]), (reply_of(row[1]),)), True
            else:
                negatives += 1
        if negatives:
            say_once(self.opt, f"{path}: negatives (label 0) are skipped, {negatives:,} of {number_of(rows, 'row')}.")
        if not (self.sample or self.stream):
            warn_of_count(self.opt, "Ubuntu V2", self.split, rows, "rows", path)


class Sample(DefaultTeacher):
    """Made-up rows in the same files."""

    sample = os.path.join(os.path.dirname(__file__), "sample")
