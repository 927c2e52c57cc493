"""The texts of candidates: the distinct lines of a file, found by their offsets and never all in memory."""

import codecs
import hashlib
import os
import weakref
from abc import ABC, abstractmethod
from array import array
from collections.abc import Sequence
from typing import Any, BinaryIO

import numpy as np

from polyagents.console import Bar
from polyagents.errors import InputError
from polyagents.files import lines
from polyagents.files.hashing import text_key, utf8
from polyagents.index.columns import Record
from polyagents.index.filters import Fields

QUIET_BYTES = 100_000_000  # read in a few seconds; a longer file gets a progress bar


def key_columns(keys: bytes | bytearray) -> np.ndarray:
    """Convert keys, one after the other, to [C, 2] int64, which can be sorted and compared."""
    return np.frombuffer(keys, "<i8").reshape(-1, 2)


def first_of_each(keys: np.ndarray) -> np.ndarray:
    """Return the indices of keys [C, 2] that no earlier key equals, ascending."""
    order, is_first = sorted_keys(keys)
    return np.sort(order[is_first])


def last_of_each(keys: np.ndarray) -> np.ndarray:
    """Return the indices of keys [C, 2] that no later key equals, ascending."""
    return np.sort(len(keys) - 1 - first_of_each(keys[::-1]))


def sorted_keys(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the order [C] that sorts keys [C, 2], and which of the sorted ones differ from the one before."""
    order = np.lexsort((keys[:, 1], keys[:, 0]))  # stable: among equals the first stays first
    ordered = keys[order]
    is_first = np.ones(len(keys), bool)
    is_first[1:] = (ordered[1:] != ordered[:-1]).any(1)
    return order, is_first


def places_among(keys: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return the place of each key [C, 2] among others [N, 2] that are distinct, [C]; -1 if it is not among them."""
    both = np.concatenate([others, keys])
    order, is_first = sorted_keys(both)
    first = order[np.flatnonzero(is_first)][np.cumsum(is_first) - 1]  # of the group of each, in sorted order
    found = np.empty(len(both), np.int64)
    found[order] = first
    return np.where(found[len(others) :] < len(others), found[len(others) :], -1)


class Texts(ABC):
    """Different candidates in a fixed order: plain lines, whose id is the line itself, or with ids of their own.

    Attributes:
        keys: [C, 2], of each id.
        repeated: how many repetitions were skipped.
        fields: name and kind of each field; None for plain lines.
    """

    keys: np.ndarray
    repeated: int
    fields: Fields | None = None

    @property
    def contents(self) -> np.ndarray:
        """Keys of all that a shard contains of each, [C, 2]: for plain lines the same."""
        return self.keys

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def part(self, start: int, stop: int) -> list[str]:
        """Return the texts from one place to another, without the last; an InputError says if the file was changed."""

    def records(self, start: int, stop: int) -> list[Record] | None:
        """Return the same candidates with ids and fields; None for plain lines."""
        return None

    @abstractmethod
    def keep(self, places: np.ndarray) -> None:
        """Discard all other texts."""


class ListedTexts(Texts):
    """Plain lines that are all in memory."""

    def __init__(self, texts: Sequence[str]):
        self.texts = list(dict.fromkeys(texts))
        self.keys = key_columns(b"".join(text_key(utf8(text)) for text in self.texts))
        self.repeated = len(texts) - len(self.texts)

    def __len__(self) -> int:
        return len(self.texts)

    def part(self, start: int, stop: int) -> list[str]:
        """Return the texts from one place to another, without the last."""
        return self.texts[start:stop]

    def keep(self, places: np.ndarray) -> None:
        """Discard all other texts."""
        self.texts = [self.texts[place] for place in places]
        self.keys = self.keys[places]


class CandidatesFile(Texts):
    """A file of candidates that is read through once, stays open, and is read again part by part.

    If the object is sent to another process, that one opens the file itself, at the same path, and refuses one of
    another length there. Its `digest` is the SHA-256 of the whole file.
    """

    digest: str

    def __init__(self, path: str):
        self.path = path
        self._open()
        self.stat = self._stat()
        self._read_through()

    def _open(self) -> None:
        self.file = open_candidates(self.path)
        weakref.finalize(self, self.file.close)  # whoever reads it last need not know that it is a file

    @abstractmethod
    def _read_through(self) -> None:
        """Check the whole file, and record where its candidates are."""

    def check_unchanged(self) -> None:
        """Refuse, with an InputError, a file that has changed since it was opened."""
        if self._stat() != self.stat:
            raise InputError(
                f"Candidates file {self.path} was changed while it was being encoded; run the command again."
            )

    def __getstate__(self) -> dict[str, Any]:
        """Return all but the open file and the keys, which are needed only to plan a build."""
        return {name: value for name, value in vars(self).items() if name not in ("file", "keys", "contents")} | {
            "path": os.path.abspath(self.path)
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._open()
        size, own = self.stat[0], self._stat()
        if own[0] != size:
            raise InputError(
                f"Candidates file {self.path} has {own[0]:,} bytes here and {size:,} where the work was planned; share "
                f"it, or copy it to every machine."
            )
        self.stat = own  # a copy is of another time

    def _stat(self) -> tuple[int, int]:
        found = os.fstat(self.file.fileno())
        return found.st_size, found.st_mtime_ns


class FileTexts(CandidatesFile):
    """The distinct lines of a UTF-8 text file, without white space around them; blank lines are skipped.

    One pass records the offset of each line: 28 bytes a line.

    Raises:
        InputError: the file is missing, no UTF-8 text, or empty.
    """

    def _read_through(self) -> None:
        sha, keys = hashlib.sha256(), bytearray()
        offsets, lengths = array("q"), array("i")
        quiet = self.stat[0] < QUIET_BYTES
        with Bar(total=self.stat[0], unit="B", unit_scale=True, desc="Reading candidates", disable=quiet) as bar:
            for number, raw in enumerate(lines.lines_of(self.file, f"Candidates file {self.path}"), 1):
                position = self.file.tell() - len(raw)
                if number == 1:
                    sha.update(codecs.BOM_UTF8[:position])  # which is not a part of the first line
                sha.update(raw)
                try:
                    text = raw.decode("utf-8").strip().encode("utf-8")
                except UnicodeDecodeError as error:
                    raise InputError(
                        f"Candidates file {self.path} is not UTF-8 in line {number}; save it as UTF-8."
                    ) from error
                if text:
                    offsets.append(position + raw.find(text))
                    lengths.append(len(text))
                    keys += text_key(text)
                bar.update(len(raw))
        if not offsets:
            raise InputError(f"Candidates file {self.path} holds no text; it needs one candidate per line.")
        self.offsets, self.lengths = np.frombuffer(offsets, np.int64), np.frombuffer(lengths, np.int32)
        self.keys = key_columns(keys)
        self.keep(first_of_each(self.keys))
        self.repeated = len(offsets) - len(self)
        self.digest = sha.hexdigest()

    def __len__(self) -> int:
        return len(self.offsets)

    def part(self, start: int, stop: int) -> list[str]:
        """Read the lines from one place to another, without the last."""
        texts = []
        for offset, length in zip(self.offsets[start:stop], self.lengths[start:stop], strict=True):
            self.file.seek(int(offset))
            texts.append(self.file.read(int(length)))
        self.check_unchanged()
        return [text.decode("utf-8") for text in texts]

    def keep(self, places: np.ndarray) -> None:
        """Discard all other lines."""
        self.offsets, self.lengths, self.keys = self.offsets[places], self.lengths[places], self.keys[places]


def open_candidates(path: str) -> BinaryIO:
    """Open a candidates file; an InputError says if it cannot be opened, or is a pipe."""
    try:
        return lines.opened(path)
    except OSError as error:
        raise InputError(
            f"Candidates file {path} cannot be read ({error.strerror}); give an existing text file with one candidate "
            f"per line."
        ) from error
