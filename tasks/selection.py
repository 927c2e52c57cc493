"""Response selection corpora, Ubuntu Corpus V1 and Douban: their files, one line per reply, and their teacher.

1<tab>my sound is gone since the upgrade<tab>is it muted<tab>it was thanks
0<tab>my sound is gone since the upgrade<tab>is it muted<tab>sudo apt-get install ruby __number__

1 marks a right reply. In valid and test the candidates of a context are consecutive, in groups of one size.
"""

import copy
import os
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from parlai.core.opt import Opt
from parlai.core.teachers import DialogTeacher
from parlai.utils.data import DatatypeHelper

from polyagents.errors import InputError
from polyagents.files.lines import lines_of, opened
from polyagents.tasks.counts import say_once, warn_of_count

LABELS = {b"1": True, b"0": False}


class Reply(NamedTuple):
    """A line of a file.

    Attributes:
        context: what was said before, one line per utterance, without the files' empty utterances.
        is_right: whether it was given as a reply (or judged to be right).
    """

    context: str
    text: str
    is_right: bool


class Question(NamedTuple):
    """A context of valid or test.

    Attributes:
        context: what was said before, one line per utterance.
        candidates: the replies in the order of the file.
        right: the right ones of them; none, some or all.
    """

    context: str
    candidates: list[str]
    right: list[str]


def read_replies(path: str, how: str) -> Iterator[Reply]:
    """Yield the lines of a file.

    Raises:
        InputError: the file is missing or empty, or one of its lines has another format.
    """
    number = 0
    try:
        with opened(path) as file:
            for number, line in enumerate(lines_of(file, path), 1):
                yield reply_of(line, f"{path}, line {number}")
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}); {how}.") from error
    if not number:
        raise InputError(f"{path} is empty; {how}.")


def reply_of(line: bytes, where: str) -> Reply:
    """Parse a line."""
    label, *texts = line.rstrip(b"\r\n").split(b"\t")
    if label not in LABELS or len(texts) < 2:
        raise InputError(f"{where}: not a label (1 or 0), a context and a reply, divided by tabs.")
    try:
        *context, reply = (" ".join(text.decode("utf-8").split()) for text in texts)
    except UnicodeDecodeError as error:
        raise InputError(f"{where} is not in UTF-8 ({error.reason}).") from error
    return Reply("\n".join(filter(None, context)), reply, LABELS[label])


def read_questions(path: str, size: int, how: str) -> Iterator[Question]:
    """Yield the contexts of valid or test, with their candidates.

    Raises:
        InputError: as `read_replies`; or the lines are not groups of `size` with one context.
    """
    group: list[Reply] = []
    for number, reply in enumerate(read_replies(path, how), 1):
        if group and reply.context != group[0].context:
            raise InputError(
                f"{path}, line {number}: another context than in the line before, where {size} lines in a row have "
                f"one; the file is damaged, or of another release."
            )
        group.append(reply)
        if len(group) == size:
            yield Question(
                group[0].context, [reply.text for reply in group], [reply.text for reply in group if reply.is_right]
            )
            group = []
    if group:
        raise InputError(f"{path} ends within a context: {len(group)} of {size} lines; the file is cut short.")


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
            warn_of_count(self.opt, self.corpus.name, self.split, found, "lines", path)
