"""The smallest interface to a vector database, so that a new one is one file.

A user names a set of candidates, say `replies`. An engine keeps a collection for each model that encoded them, and the
name refers to one of these, the current one. A new model's collection is filled meanwhile, and becomes the current one
in one step. A candidate's id is computed from its text, so that adding it twice changes nothing, and a build that was
killed asks which ids are there already.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, get_type_hints

import numpy as np
import torch
from torch import Tensor

from polyagents.errors import InputError
from polyagents.files.hashing import text_key, utf8
from polyagents.files.json_files import fits
from polyagents.index.approximate import Found as Found  # a part of the interface
from polyagents.index.columns import Record
from polyagents.index.faiss_index import HNSW_LIST
from polyagents.index.filters import Filter
from polyagents.index.texts import key_columns

INDEX_TYPES = ("hnsw", "exact")
OWN_ID, OF_FIELD = "own_id", "f_"  # names of columns
# Candidates in the list of one vector: short at first, since each costs its vector's way over the network, and long
# if the stop rule asks for more.
SHORT_LIST, LONG_LIST = 64, HNSW_LIST
SENT_AT_ONCE = 32_000_000  # bytes; Milvus takes 64 million in a message


class EngineError(InputError):
    """An engine does not answer, or refuses; the sentence has its address without passwords."""


def candidate_ids(names: Sequence[str]) -> np.ndarray:
    """Compute the engine's ids of users' ids, or of plain lines: int64 [C], 0 or more, 63 bits of a hash.

    Two of n names have the same id with a probability of n^2 / 2^64: one in 200,000 for ten million, one in 2,000 for a
    hundred million. Of two such lines only the one that was added first is kept.
    """
    keys = key_columns(b"".join(text_key(utf8(name)) for name in names))
    ids: np.ndarray = keys[:, 0] & np.int64(2**63 - 1)
    return ids


@dataclass(frozen=True)
class Version:
    """The candidates of one name that one model encoded, D wide; the name may refer to them (`is_current`).

    Attributes:
        fields: name and kind of each declared field; None for plain lines.
    """

    model: str
    width: int
    index_type: str
    is_current: bool
    fields: dict[str, str] | None = None

    def __post_init__(self) -> None:
        """Check what the engine has said; an EngineError says if a value is of another type."""
        for name, hint in get_type_hints(Version).items():
            if not fits(value := getattr(self, name), hint):
                raise EngineError(f"The {name} of a collection is {value!r:.60}, which polyagents did not write.")


class Collection(ABC):
    """Candidates with their vectors, all of one model; it returns lists of at most `longest`.

    A user's own id is in the column OWN_ID, and each field in one of its own, with the prefix OF_FIELD.
    """

    longest: int

    def __init__(self, width: int, fields: dict[str, str] | None):
        self.width, self.fields = width, fields

    @abstractmethod
    def upsert(
        self, ids: np.ndarray, texts: Sequence[str], vectors: Tensor, records: Sequence[Record] | None = None
    ) -> None:
        """Add C candidates with ids [C] and vectors [C, D], or replace candidates of the same ids, for the next search.

        Args:
            records: the same candidates with their own ids and fields, if the collection has `fields`.

        Raises:
            EngineError: the engine refuses, or does not answer.
        """

    @abstractmethod
    def delete(self, ids: np.ndarray) -> None:
        """Remove candidates; missing ids are not an error."""

    @abstractmethod
    def count(self, where: Filter | None = None) -> int:
        """Count the candidates that meet the conditions."""

    @abstractmethod
    def those(self, where: Filter, most: int) -> np.ndarray:
        """Return the ids of candidates that meet the conditions, at most that many, in no order."""

    @abstractmethod
    def read(self, ids: Sequence[int] | np.ndarray, columns: Sequence[str]) -> list[dict[str, Any]]:
        """Return `id` and other columns of the candidates that still exist, in no order."""

    @abstractmethod
    def nearest(self, vectors: Tensor, count: int, depth: int, where: Filter | None = None) -> Found:
        """Find the `count` candidates with the largest dot products for each of vectors [q, D].

        Args:
            where: conditions that all of them must meet; None for none.
            depth: how many candidates a graph visits, `count` or more: short lists of a deep search miss as few as long
                ones.
        """

    @abstractmethod
    def build_index(self, index_type: str) -> None:
        """Build the index over all candidates, unless it exists."""

    def there(self, ids: np.ndarray) -> np.ndarray:
        """Tell which of the ids [C] exist, [C] boolean."""
        return np.isin(ids, [row["id"] for row in self.read(ids, [])])

    def texts(self, ids: Sequence[int] | np.ndarray) -> list[str | None]:
        """Return texts in the order of the ids; None for a candidate that was removed in the meantime."""
        found = {row["id"]: row["text"] for row in self.read(ids, ["text"])}
        return [found.get(int(one)) for one in ids]

    def vectors(self, ids: np.ndarray) -> tuple[np.ndarray, Tensor]:
        """Return the ids [r], ascending, of candidates that still exist, and their vectors [r, D] fp32."""
        return self.in_order(self.read(ids, ["vector"]))

    def in_order(self, rows: Sequence[Mapping[str, Any]]) -> tuple[np.ndarray, Tensor]:
        """Return the ids [r] of rows, ascending, and their vectors [r, D] fp32."""
        members = np.array([row["id"] for row in rows], np.int64)
        order = members.argsort()
        found = np.array([row["vector"] for row in rows], np.float32).reshape(len(rows), self.width)
        return members[order], torch.from_numpy(found[order])

    def records(self, ids: np.ndarray) -> list[Record | None]:
        """Return candidates of a collection with `fields`, in the order of the ids; None for a missing one."""
        fields = [OF_FIELD + name for name in self.fields or ()]
        rows = self.read(ids, ["text", OWN_ID, *fields])
        found = {row["id"]: Record(row[OWN_ID], row["text"], tuple(row[name] for name in fields)) for row in rows}
        return [found.get(int(one)) for one in ids]


class VectorEngine(Protocol):
    """A connection, for one name. It is pickled as its address and credentials, and connects again.

    Attributes:
        name: the set of candidates.
        where: the address, for messages; it contains no password.
    """

    name: str
    where: str

    @property
    def is_shared(self) -> bool:
        """Whether other processes can be connected at the same time."""
        ...

    def versions(self) -> list[Version]:
        """List the collections of the name."""
        ...

    def collection(self, version: Version) -> Collection:
        """Return the candidates of a version."""
        ...

    def create(self, model: str, width: int, fields: dict[str, str] | None = None) -> Collection:
        """Create an empty collection for a model's vectors of width D, or return the one that is there.

        Args:
            fields: name and kind of each declared field; None for plain lines.

        Raises:
            EngineError: the engine refuses, or does not answer, or has a collection with other fields.
        """
        ...

    def switch(self, model: str) -> None:
        """Let the name refer to the collection of this model, in one step."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


def fields_among(columns: Mapping[str, str]) -> dict[str, str] | None:
    """Return name and kind of each declared field among columns and their kinds; None for plain lines."""
    if OWN_ID not in columns:
        return None
    return {name.removeprefix(OF_FIELD): kind for name, kind in columns.items() if name.startswith(OF_FIELD)}


def require_fields(where: str, there: Mapping[str, str] | None, wanted: Mapping[str, str] | None) -> None:
    """Refuse, with an EngineError, a collection with other fields than those that are declared."""
    if there != wanted:
        has, asks = (
            "plain lines" if one is None else f"ids and the fields {dict(one)}" if one else "ids without fields"
            for one in (there, wanted)
        )
        raise EngineError(
            f"{where} has a collection of this model with {has}, and the candidates have {asks}; declare the same, or "
            f"build the candidates under another name."
        )


def in_messages(texts: Sequence[str], width: int) -> Iterator[slice]:
    """Split candidates into parts that an engine accepts in one message, and yield the places of each."""
    start = size = 0
    for place, text in enumerate(texts):
        own = len(utf8(text)) + 4 * width + 16
        if size + own > SENT_AT_ONCE and place > start:
            yield slice(start, place)
            start, size = place, 0
        size += own
    if start < len(texts):
        yield slice(start, len(texts))
