"""The texts that become candidates: the distinct lines of a file, found by their offsets and never all in memory."""

import contextlib
import hashlib
import os
from array import array
from collections.abc import Sequence
from typing import Any, BinaryIO, Protocol

import numpy as np
from tqdm import tqdm

from polyagents.errors import InputError
from polyagents.files.hashing import stream_digest, text_key, utf8

QUIET_BYTES = 100_000_000  # read in a few seconds; a longer file gets a progress bar


def key_columns(keys: bytes | bytearray) -> np.ndarray:
    """Keys one after the other -> [C, 2] int64, a form that sorts and compares."""
    return np.frombuffer(keys, "<i8").reshape(-1, 2)


def first_of_each(keys: np.ndarray) -> np.ndarray:
    """Keys [C, 2] -> indices of those that no earlier key equals, ascending."""
    if not len(keys):
        return np.arange(0)
    order = np.lexsort((keys[:, 1], keys[:, 0]))  # stable: among equals the first stays first
    ordered = keys[order]
    is_first = np.ones(len(keys), bool)
    is_first[1:] = (ordered[1:] != ordered[:-1]).any(1)
    return np.sort(order[is_first])


class Texts(Protocol):
    """Distinct texts in a fixed order.

    Attributes:
        keys: [C, 2], of each text.
        repeated: how many repetitions were left out.
    """

    keys: np.ndarray
    repeated: int

    def __len__(self) -> int:
        """C."""
        ...

    def part(self, start: int, stop: int) -> list[str]:
        """Some of them."""
        ...

    def keep(self, places: np.ndarray) -> None:
        """Forget all others."""
        ...


class ListedTexts:
    """Texts that are in memory anyway."""

    def __init__(self, texts: Sequence[str]):
        self.texts = list(dict.fromkeys(texts))
        self.keys = key_columns(b"".join(text_key(utf8(text)) for text in self.texts))
        self.repeated = len(texts) - len(self.texts)

    def __len__(self) -> int:
        return len(self.texts)

    def part(self, start: int, stop: int) -> list[str]:
        """Some of them."""
        return self.texts[start:stop]

    def keep(self, places: np.ndarray) -> None:
        """Forget all others."""
        self.texts = [self.texts[place] for place in places]
        self.keys = self.keys[places]


class FileTexts:
    """The distinct lines of a UTF-8 text file, stripped; blank lines are left out.

    One pass notes where each line stands: 28 bytes a line. The file stays open and is read again part by part. Another
    process that is sent one opens the file itself, at the same place, and refuses one of another length there.

    Attributes:
        digest: SHA-256 of the whole file.

    Raises:
        InputError: the file is missing, no UTF-8 text, or empty.
    """

    def __init__(self, path: str):
        self.path, self.file = path, opened(path)
        try:
            self._read_through()
        except BaseException:
            self.file.close()
            raise

    def _read_through(self) -> None:
        self.stat = self._stat()
        sha, keys = hashlib.sha256(), bytearray()
        offsets, lengths = array("q"), array("i")
        position = 0
        quiet = self.stat[0] < QUIET_BYTES
        with tqdm(total=self.stat[0], unit="B", unit_scale=True, desc="Reading candidates", disable=quiet) as bar:
            for number, raw in enumerate(self.file, 1):
                sha.update(raw)
                before, text = stripped(raw, self.path, number)
                if text:
                    offsets.append(position + before)
                    lengths.append(len(text))
                    keys += text_key(text)
                position += len(raw)
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
        """Some of the lines.

        Raises:
            InputError: the file has changed since it was opened.
        """
        texts = []
        for offset, length in zip(self.offsets[start:stop], self.lengths[start:stop], strict=True):
            self.file.seek(int(offset))
            texts.append(self.file.read(int(length)))
        if self._stat() != self.stat:
            raise InputError(
                f"Candidates file {self.path} was changed while it was being encoded; run the command again."
            )
        return [text.decode("utf-8") for text in texts]

    def keep(self, places: np.ndarray) -> None:
        """Forget all others."""
        self.offsets, self.lengths, self.keys = self.offsets[places], self.lengths[places], self.keys[places]

    def close(self) -> None:
        """Close the file: no more parts are read."""
        self.file.close()

    def __getstate__(self) -> dict[str, Any]:
        """All but the open file and the keys, which only whoever plans a build needs."""
        return {name: value for name, value in vars(self).items() if name not in ("file", "keys")} | {
            "path": os.path.abspath(self.path)
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.file = opened(self.path)
        size, own = self.stat[0], self._stat()
        if own[0] != size:
            self.file.close()
            raise InputError(
                f"Candidates file {self.path} has {own[0]:,} bytes here and {size:,} where the work was planned; share "
                f"it, or copy it to every machine."
            )
        self.stat = own  # a copy is of another time

    def _stat(self) -> tuple[int, int]:
        found = os.fstat(self.file.fileno())
        return found.st_size, found.st_mtime_ns


def read_candidates(path: str) -> list[str]:
    """All candidates of a file in memory; what `FileTexts` raises."""
    texts = FileTexts(path)
    with contextlib.closing(texts):
        return texts.part(0, len(texts))


def candidates_digest(path: str) -> str:
    """SHA-256 of a candidates file: a `FileTexts` of the same content has it as its `digest`.

    Raises:
        InputError: it cannot be read, or only once.
    """
    with opened(path) as file:
        return stream_digest(file)


def opened(path: str) -> BinaryIO:
    """A candidates file.

    Raises:
        InputError: it cannot be opened, or is a pipe.
    """
    try:
        file = open(path, "rb")  # noqa: SIM115  the caller closes it
    except OSError as error:
        raise InputError(
            f"Candidates file {path} cannot be read ({error.strerror}); give an existing text file with one candidate "
            f"per line."
        ) from error
    if not file.seekable():
        file.close()
        raise InputError(
            f"Candidates file {path} is a stream, and it is read more than once; write it to a file first."
        )
    return file


def stripped(raw: bytes, path: str, number: int) -> tuple[int, bytes]:
    """A line without white space around it, and how many bytes stood before."""
    try:
        line = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"Candidates file {path} is not UTF-8 in line {number}; save it as UTF-8.") from error
    if number == 1:
        line = line.removeprefix("\ufeff")
    text = line.strip().encode("utf-8")
    return raw.find(text), text
