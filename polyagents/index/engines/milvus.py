"""Milvus: a server or a cluster by its URL, or a folder of this machine (Milvus Lite), with the same code.

Measured of Milvus Lite 3.2 (docs/scale.md): an index is used only if it was built after the candidates were added, a
list has at most 16,384 entries, and a search sends all fields back unless one asks for ids. So candidates are added
under a flat index, which any server needs before it reads at all, and the graph replaces it at the end; a search asks
for ids first, and for the vectors of each candidate once.
"""

import contextlib
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from polyagents.errors import first_line
from polyagents.files.hashing import utf8
from polyagents.index.columns import Record
from polyagents.index.engines.engine import (
    OF_FIELD,
    OWN_ID,
    SENT_AT_ONCE,
    Collection,
    EngineError,
    Found,
    Version,
    fields_among,
    in_messages,
    require_fields,
)
from polyagents.index.faiss_index import HNSW_BUILD, HNSW_LINKS
from polyagents.index.filters import LONGEST, Filter, Value

LONGEST_LIST = 16_384  # Milvus's own limit, also for queries at once
LONGEST_TEXT = 65_535  # bytes, of Milvus's VARCHAR
SECONDS = 30.0  # for a call; building an index may take a day
INDEX_SECONDS = 86_400.0
# A server that was restarted is found within a second; gRPC's own waits grow to two minutes.
CHANNEL = {
    f"grpc.{bound}_reconnect_backoff_ms": wait for bound, wait in (("initial", 100), ("min", 100), ("max", 1_000))
} | {"grpc.keepalive_time_ms": 330_000}
# pymilvus pings the server every ten seconds, and a gRPC server takes more than one ping in five minutes without calls
# for an attack: it would close the connection while it builds the graph of a million candidates.
MODEL, INDEX = "polyagents.model", "polyagents.index"  # keys of a collection's properties
TYPES = {"text": "VARCHAR", "int": "INT64", "float": "DOUBLE", "bool": "BOOL"}


class Milvus:
    """A connection to Milvus, for one name; `where` is the address, without a token."""

    def __init__(self, uri: str, token: str, name: str):
        """Connect; an EngineError says if no server answers, or it refuses the connection.

        Args:
            uri: of a server, or a folder of Milvus Lite.
            token: a password, or a user and a password; empty for none.
        """
        os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # otherwise it reports every process that we start
        from pymilvus import MilvusClient  # which takes a second, and is an extra

        for library in ("pymilvus", "milvus_lite"):  # they print tracebacks of errors that we report in a sentence
            logging.getLogger(library).setLevel(logging.CRITICAL)
        self.name, self.where, self.token = name, uri, token
        with self.sentences("cannot be opened"):
            self.client = MilvusClient(uri, token=token, timeout=SECONDS, grpc_options=CHANNEL)

    def __reduce__(self) -> tuple[type["Milvus"], tuple[str, str, str]]:
        return Milvus, (self.where, self.token, self.name)

    @property
    def is_shared(self) -> bool:
        """Whether it is a server, not a folder."""
        return self.where.startswith("http")

    def versions(self) -> list[Version]:
        """List the collections of the name."""
        with self.sentences("cannot be read"):
            current = self._current()
            found = []
            for table in sorted(self.client.list_collections(timeout=SECONDS)):
                if table.startswith(f"{self.name}_"):
                    described = self.client.describe_collection(table, timeout=SECONDS)
                    properties = described.get("properties") or {}
                    if MODEL in properties and table == self._table(properties[MODEL]):
                        width, fields = self._width(table, described["fields"]), fields_of_schema(described["fields"])
                        about = properties[MODEL], width, properties.get(INDEX, ""), table == current
                        found.append(Version(*about, fields))
            return found

    def collection(self, version: Version) -> "MilvusCollection":
        """Return the candidates of a version."""
        return MilvusCollection(self, self._table(version.model), version.width, version.fields)

    def create(self, model: str, width: int, fields: dict[str, str] | None = None) -> "MilvusCollection":
        """Create an empty collection for a model's vectors of width D, or return the existing one."""
        from pymilvus import DataType

        table = self._table(model)
        with self.sentences("cannot make a collection"):
            if self.name in self.client.list_collections(timeout=SECONDS):
                raise EngineError(f"Milvus at {self.where} has another collection {self.name}; give another name.")
            if not self.client.has_collection(table, timeout=SECONDS):
                schema = self.client.create_schema(auto_id=False, enable_dynamic_field=False)
                schema.add_field("id", DataType.INT64, is_primary=True)
                schema.add_field("vector", DataType.FLOAT_VECTOR, dim=width)
                schema.add_field("text", DataType.VARCHAR, max_length=LONGEST_TEXT)
                if fields is not None:
                    schema.add_field(OWN_ID, DataType.VARCHAR, max_length=LONGEST)
                for name, kind in (fields or {}).items():
                    length = {"max_length": 2 * LONGEST} if kind == "text" else {}
                    schema.add_field(OF_FIELD + name, DataType[TYPES[kind]], nullable=True, **length)
                self.client.create_collection(
                    table,
                    schema=schema,
                    consistency_level="Strong",  # what was added or deleted is seen by the next search
                    properties={MODEL: model, INDEX: "exact"},
                    index_params=self._index("FLAT"),
                    timeout=SECONDS,
                )
            else:
                described = self.client.describe_collection(table, timeout=SECONDS)
                require_fields(f"Milvus at {self.where}", fields_of_schema(described["fields"]), fields)
            if not self.client.list_indexes(table):  # a build was killed while it built another one
                self.client.create_index(table, self._index("FLAT"), timeout=INDEX_SECONDS)
            self.client.load_collection(table, timeout=INDEX_SECONDS)
        return MilvusCollection(self, table, width, fields)

    def switch(self, model: str) -> None:
        """Let the name refer to the collection of this model."""
        table = self._table(model)
        with self.sentences(f"cannot switch {self.name}"):
            if self._current() is None:
                self.client.create_alias(table, self.name, timeout=SECONDS)
            else:
                self.client.alter_alias(table, self.name, timeout=SECONDS)

    def close(self) -> None:
        """Close the connection."""
        self.client.close()

    def _table(self, model: str) -> str:
        return f"{self.name}_{model[:16]}"

    def _width(self, table: str, fields: Sequence[Mapping[str, Any]]) -> int:
        """Return the width of a collection's vectors, after a check that it is as `create` makes it."""
        from pymilvus import DataType

        there = {field["name"]: field for field in fields}
        made = {"id": DataType.INT64, "vector": DataType.FLOAT_VECTOR, "text": DataType.VARCHAR}
        if any(name not in there or there[name]["type"] != kind for name, kind in made.items()) or (
            not there["id"].get("is_primary") or there["text"].get("nullable")
        ):
            raise EngineError(
                f"Milvus at {self.where}: the collection {table} is not as polyagents made it; build the candidates "
                f"under another name."
            )
        return int(there["vector"]["params"]["dim"])

    def _current(self) -> str | None:
        """Return the collection that the name refers to."""
        from pymilvus import MilvusException

        try:
            return str(self.client.describe_alias(self.name, timeout=SECONDS)["collection_name"])
        except MilvusException as error:
            if "not found" in str(error) or "not exist" in str(error):
                return None
            raise

    def _index(self, kind: str) -> Any:
        params = self.client.prepare_index_params()
        own = {"M": HNSW_LINKS, "efConstruction": HNSW_BUILD} if kind == "HNSW" else {}
        params.add_index("vector", index_type=kind, index_name="vector", metric_type="IP", params=own)
        return params

    @contextlib.contextmanager
    def sentences(self, what: str) -> Iterator[None]:
        """Turn errors of Milvus into one sentence, an EngineError."""
        import grpc
        from pymilvus import MilvusException

        try:
            yield
        except grpc.RpcError as error:  # a grpc.Call as well
            raise EngineError(f"Milvus at {self.where} {what}: {error.details() or error.code().name}.") from error
        except MilvusException as error:
            reason = first_line(ValueError(error.message))
            if reason == "Open local milvus failed":
                reason = unopened(self.where)
            raise EngineError(f"Milvus at {self.where} {what}: {reason}.") from error
        except OSError as error:
            raise EngineError(f"Milvus at {self.where} {what}: {first_line(error)}.") from error


def unopened(folder: str) -> str:
    """Say why Milvus Lite has not opened a folder, since its error does not."""
    if not os.path.isdir(folder):
        return "it is a file, not a folder" if os.path.exists(folder) else "the folder cannot be made"
    if not os.access(folder, os.W_OK):
        return "the folder cannot be written to"
    return "another process may have it open; several can ask a server, milvus-lite server --data-dir"


class MilvusCollection(Collection):
    """A collection of Milvus."""

    longest = LONGEST_LIST

    def __init__(self, engine: Milvus, table: str, width: int, fields: dict[str, str] | None = None):
        super().__init__(width, fields)
        self.engine, self.client, self.table = engine, engine.client, table

    def _ask(self, what: str, question: Callable[..., Any], **arguments: Any) -> Any:
        """Call a method of the client for this collection; a server that was restarted has to load it first."""
        from pymilvus import MilvusException

        with self.engine.sentences(what):
            try:
                return question(self.table, timeout=SECONDS, **arguments)
            except MilvusException as error:
                if "load" not in str(error.message):
                    raise
            self.client.load_collection(self.table, timeout=SECONDS)
            return question(self.table, timeout=SECONDS, **arguments)

    def upsert(
        self, ids: np.ndarray, texts: Sequence[str], vectors: Tensor, records: Sequence[Record] | None = None
    ) -> None:
        """Add candidates, or replace candidates of the same id."""
        rows = [
            {"id": int(number), "vector": vector, "text": utf8(text).decode()}
            for number, text, vector in zip(ids, texts, vectors.numpy(), strict=True)
        ]
        for row, record in zip(rows, records or (), strict=False):
            row |= {OWN_ID: record.id}
            for (name, kind), value in zip((self.fields or {}).items(), record.values, strict=True):
                row[OF_FIELD + name] = hexadecimal(str(value)) if kind == "text" and value is not None else value
        longest = max(texts, key=lambda text: len(utf8(text)), default="")
        if len(utf8(longest)) > LONGEST_TEXT:
            raise EngineError(
                f"Milvus keeps texts of up to {LONGEST_TEXT:,} bytes, and a candidate has {len(utf8(longest)):,}; it "
                f"begins with {longest[:40]!r}."
            )
        for part in in_messages(texts, self.width):
            self._ask("did not take candidates", self.client.upsert, data=rows[part])

    def delete(self, ids: np.ndarray) -> None:
        """Remove candidates."""
        for start in range(0, len(ids), LONGEST_LIST):
            part = ids[start : start + LONGEST_LIST].tolist()
            self._ask("did not remove candidates", self.client.delete, ids=part)

    def count(self, where: Filter | None = None) -> int:
        """Count the candidates that meet the conditions."""
        asked = {"filter": expression(where), "output_fields": ["count(*)"]}
        (row,) = self._ask("did not count candidates", self.client.query, **asked)
        return int(row["count(*)"])

    def those(self, where: Filter, most: int) -> np.ndarray:
        """Return the ids of candidates that meet the conditions, at most that many, in no order."""
        rows = self._ask(
            "did not answer", self.client.query, filter=expression(where), output_fields=["id"], limit=most
        )
        return np.array([row["id"] for row in rows], np.int64)

    def read(self, ids: Sequence[int] | np.ndarray, columns: Sequence[str]) -> list[dict[str, Any]]:
        """Return `id` and other columns of the candidates that still exist, in no order."""
        size = LONGEST_TEXT if "text" in columns else 4 * self.width if "vector" in columns else 8
        at_once = max(min(SENT_AT_ONCE // size, LONGEST_LIST), 1)
        rows: list[dict[str, Any]] = []
        for start in range(0, len(ids), at_once):
            part = np.asarray(ids[start : start + at_once]).tolist()
            rows += self._ask("did not answer", self.client.get, ids=part, output_fields=["id", *columns])
        texts = [name for name, kind in (self.fields or {}).items() if kind == "text" and OF_FIELD + name in columns]
        for row in rows:
            row |= {OF_FIELD + name: from_hexadecimal(row[OF_FIELD + name]) for name in texts}
        return rows

    def nearest(self, vectors: Tensor, count: int, depth: int, where: Filter | None = None) -> Found:
        """Find the `count` candidates with the largest dot products for each vector."""
        alone = len(vectors) == 1 and count * (4 * self.width + LONGEST_TEXT) <= SENT_AT_ONCE
        answers = self._ask(
            "did not answer",
            self.client.search,
            data=vectors.float().cpu().numpy(),
            limit=count,
            filter=expression(where),
            anns_field="vector",
            search_params={"metric_type": "IP", "params": {"ef": depth}},  # a flat index ignores ef
            output_fields=["id", "vector", "text"] if alone else ["id"],
        )
        longest = max((len(answer) for answer in answers), default=0)
        lists, products = np.full((len(answers), longest), -1, np.int64), np.zeros((len(answers), longest), np.float32)
        for row, answer in enumerate(answers):
            lists[row, : len(answer)] = [one["id"] for one in answer]
            products[row, : len(answer)] = [one["distance"] for one in answer]
        # The list of one vector has each candidate once; the lists of several share many, so each is asked for once.
        # Not every index returns vector and text.
        if alone and all({"vector", "text"} <= one["entity"].keys() for one in answers[0]):
            rows = [{"id": one["id"], "vector": one["entity"]["vector"]} for one in answers[0]]
            texts = {one["id"]: one["entity"]["text"] for one in answers[0]}
            return Found(products, lists, *self.in_order(rows), texts)
        return Found(products, lists, *self.vectors(np.unique(lists[lists >= 0])))

    def build_index(self, index_type: str) -> None:
        """Build the index over all candidates, unless it exists."""
        from pymilvus import MilvusException

        with self.engine.sentences("did not build an index"):
            described = self.client.describe_collection(self.table, timeout=SECONDS)
            if described["properties"].get(INDEX) == index_type:
                return
            self.client.flush(self.table, timeout=INDEX_SECONDS)
            self.client.release_collection(self.table, timeout=SECONDS)
            self.client.drop_index(self.table, "vector", timeout=SECONDS)
            kind = "HNSW" if index_type == "hnsw" else "FLAT"
            try:
                self.client.create_index(self.table, self.engine._index(kind), timeout=INDEX_SECONDS)
            except MilvusException:  # the client repeats a call without an answer, and then the index exists
                if self._index_type() != kind:
                    raise
            self.client.load_collection(self.table, timeout=INDEX_SECONDS)
            properties = {**described["properties"], INDEX: index_type}
            self.client.alter_collection_properties(self.table, properties, timeout=SECONDS)

    def _index_type(self) -> str | None:
        """Return the kind of the existing index: FLAT, HNSW, or None."""
        described = self.client.describe_index(self.table, "vector", timeout=SECONDS)
        return described and str(described["index_type"])


def fields_of_schema(described: Sequence[Mapping[str, Any]]) -> dict[str, str] | None:
    """Return name and kind of each declared field of a collection's columns; None for plain lines."""
    kinds = {name: kind for kind, name in TYPES.items()}
    return fields_among({column["name"]: kinds.get(column["type"].name, "") for column in described})


def hexadecimal(text: str) -> str:
    """Return the UTF-8 bytes of a text in hexadecimal digits, which are in the same order.

    Texts of fields are kept so, and no expression contains what a user wrote: Milvus and Milvus Lite read quotes and
    escapes in different ways, and Milvus Lite takes no parameters.
    """
    return text.encode("utf-8").hex()


def from_hexadecimal(digits: str | None) -> str | None:
    """Return the text; the digits themselves if `hexadecimal` has not written them, None for none."""
    if digits is None:
        return None
    try:
        return bytes.fromhex(digits).decode("utf-8")
    except ValueError:
        return digits


def expression(where: Filter | None) -> str:
    """Return conditions in Milvus's language: names that were declared, numbers, and hexadecimal digits."""
    parts = []
    for condition in where or ():
        name = OF_FIELD + condition.field
        if condition.one_of is not None:
            values = ", ".join(map(literal, condition.one_of))
            parts.append(f"{name} in [{values}]" if values else "id < 0")  # which none has
        parts += [f"{name} {operator} {literal(value)}" for operator, value in condition.bounds]
    return " and ".join(parts)


def literal(value: Value) -> str:
    """Return a value in Milvus's language."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{hexadecimal(value)}"' if isinstance(value, str) else repr(value)
