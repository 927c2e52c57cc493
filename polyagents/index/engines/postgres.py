"""PostgreSQL with pgvector, for those who have it: a table for each model's vectors, and one that lists these tables.

A search is one SQL statement: every vector asks the index, and each candidate that was found is sent once, with its
vector.
"""

import contextlib
import hashlib
import os
import socket
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from torch import Tensor

from polyagents.errors import first_line
from polyagents.files.hashing import utf8
from polyagents.index.columns import Record
from polyagents.index.engines.engine import (
    OF_FIELD,
    OWN_ID,
    Collection,
    EngineError,
    Found,
    Version,
    fields_among,
    in_messages,
    require_fields,
)
from polyagents.index.faiss_index import HNSW_BUILD, HNSW_LINKS
from polyagents.index.filters import Filter

LONGEST_LIST = 1_000  # pgvector's own limit of hnsw.ef_search, beyond which a graph's lists are cut short
WIDEST = 2_000  # numbers in a vector that pgvector indexes, and that fit on a page
REMOVED_AT_ONCE = 10_000  # candidates, in a statement
PASSED_OVER = 1_000_000  # entries of a graph that a search looks at before it is content with fewer candidates
SECONDS = 30  # that a statement may take; building an index may take as long as it likes
LISTED = "polyagents_collections"
SCAN_MEMORY = 64  # times the server's work_mem, of 4 MB by default
# Texts are ordered by their bytes.
TYPES = {"text": 'text COLLATE "C"', "int": "bigint", "float": "double precision", "bool": "boolean"}
SENT = {TYPES["text"]: "text", "bigint": "int8", "double precision": "float8", "boolean": "bool"}

MAKE_LIST = f"""
CREATE TABLE IF NOT EXISTS {LISTED} (
    name text, model text, width integer NOT NULL, index_type text NOT NULL, is_current boolean NOT NULL,
    PRIMARY KEY (name, model))
"""
# Of each column of a table: name, type, whether NULL is refused, whether it is in the key.
COLUMNS = """
SELECT attname, format_type(atttypid, atttypmod), attnotnull,
    EXISTS (SELECT FROM pg_index WHERE indrelid = attrelid AND indisprimary AND attnum = ANY(indkey))
FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""
# The graph is asked once for each vector (LATERAL), and what several of them found is joined to its vector once.
SEARCH = """
WITH asked AS MATERIALIZED (
    SELECT place, near.id, near.product
    FROM unnest(%(vectors)s::vector[]) WITH ORDINALITY AS context (vector, place)
    CROSS JOIN LATERAL (
        SELECT id, - (candidate.vector <#> context.vector) AS product
        FROM {table} AS candidate WHERE {conditions}
        ORDER BY candidate.vector <#> context.vector LIMIT %(count)s) AS near),
found AS (SELECT id, array_agg(place) AS places, array_agg(product) AS products FROM asked GROUP BY id)
SELECT id, places, products, vector FROM found JOIN {table} USING (id)
"""


class Postgres:
    """A connection to PostgreSQL, for one name; `where` is the address, without a password."""

    def __init__(self, url: str, where: str, name: str):
        """Connect; an EngineError says if no server answers or it refuses, or the database lacks pgvector."""
        self.name, self.where, self.url = name, where, url
        self.lock = threading.RLock()  # a probe's question may come within another thread's transaction
        self.opened = self._connect()

    def __reduce__(self) -> tuple[type["Postgres"], tuple[str, str, str]]:
        from psycopg.conninfo import make_conninfo

        # The user, the password and the like may be of this machine's environment and files, which others lack.
        found = self.connection.info
        own = make_conninfo(self.url, **found.get_parameters(), password=found.password or None)
        return Postgres, (own, self.where, self.name)

    is_shared = True

    @property
    def connection(self) -> Any:
        """The connection, opened again if the server was restarted; an EngineError says if none answers."""
        if self.opened.closed:
            self.opened = self._connect()
        return self.opened

    def _connect(self) -> Any:
        import psycopg  # an extra
        from pgvector.psycopg import register_vector

        with self.sentences("cannot be opened"):
            try:
                connection = psycopg.connect(self.url, connect_timeout=10, autocommit=True)
            except psycopg.ProgrammingError as error:  # its message repeats the URL, password and all
                raise EngineError(f"PostgreSQL at {self.where}: the URL has a part that libpq cannot read.") from error
            with contextlib.suppress(psycopg.Error):  # it may be there without our help; without it the next step fails
                connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
            connection.execute(f"SET statement_timeout = '{SECONDS}s'")
        try:
            register_vector(connection)
        except psycopg.ProgrammingError as error:
            connection.close()
            raise EngineError(
                f"PostgreSQL at {self.where} lacks pgvector; install it, and run CREATE EXTENSION vector in the "
                f"database."
            ) from error
        return connection

    def versions(self) -> list[Version]:
        """List the collections of the name."""
        with self.sentences("cannot be read"):
            if self.connection.execute("SELECT to_regclass(%s)", (LISTED,)).fetchone()[0] is None:
                return []
            rows = self.connection.execute(
                f"SELECT model, width, index_type, is_current FROM {LISTED} WHERE name = %s ORDER BY model",
                (self.name,),
            ).fetchall()
            there = [(one, self.collection(one).found()) for one in (Version(*row) for row in rows)]
            # Others were dropped by hand.
            return [replace(one, fields=made.fields) for one, made in there if made is not None]

    def collection(self, version: Version) -> "PostgresCollection":
        """Return the candidates of a version."""
        return PostgresCollection(self, version.model, version.width, version.fields)

    def create(self, model: str, width: int, fields: dict[str, str] | None = None) -> "PostgresCollection":
        """Create an empty collection for a model's vectors of width D, or return the existing one."""
        if width > WIDEST:
            raise EngineError(f"pgvector indexes vectors of up to {WIDEST:,} numbers, and these have {width:,}.")
        made = PostgresCollection(self, model, width, fields)
        with self.sentences("cannot make a collection"), self.connection.transaction():
            if found := made.found():  # and may be in use: what follows would wait for whoever reads it
                require_fields(f"PostgreSQL at {self.where}", found.fields, fields)
                return made  # not `found`, whose fields are in the table's order: records have their values in this one
            self.connection.execute(MAKE_LIST)
            self.connection.execute(
                made.sql(
                    "CREATE TABLE {table} (id bigint PRIMARY KEY, vector vector({width}) NOT NULL, text text NOT NULL)"
                )
            )
            for name, kind in made.columns():
                made.change(f"ALTER TABLE {{table}} ADD COLUMN {{column}} {kind}", name)
            # Vectors are read by the thousand: out of line they would be looked up one by one.
            self.connection.execute(made.sql("ALTER TABLE {table} ALTER COLUMN vector SET STORAGE PLAIN"))
            self.connection.execute(
                f"INSERT INTO {LISTED} VALUES (%s, %s, %s, 'exact', false) ON CONFLICT (name, model) "
                "DO UPDATE SET width = excluded.width, index_type = 'exact', is_current = false",
                (self.name, model, width),
            )
        return made

    def switch(self, model: str) -> None:
        """Let the name refer to the collection of this model."""
        with self.sentences(f"cannot switch {self.name}"):
            self.connection.execute(
                f"UPDATE {LISTED} SET is_current = (model = %s) WHERE name = %s", (model, self.name)
            )

    def close(self) -> None:
        """Close the connection."""
        self.opened.close()

    @contextlib.contextmanager
    def sentences(self, what: str, seconds: float | None = SECONDS + 5) -> Iterator[None]:
        """Turn errors of PostgreSQL into one sentence, an EngineError.

        Args:
            seconds: after which a server that does not answer, not even that a statement took too long, is given up;
                None waits.
        """
        import psycopg

        try:
            with self.lock, given_up_after(seconds, getattr(self, "opened", None)):
                yield
        except psycopg.Error as error:
            raise EngineError(f"PostgreSQL at {self.where} {what}: {first_line(error)}.") from error


class PostgresCollection(Collection):
    """A table of candidates."""

    longest = LONGEST_LIST

    def __init__(self, engine: Postgres, model: str, width: int, fields: dict[str, str] | None = None):
        super().__init__(width, fields)
        self.engine, self.model = engine, model
        self.table = f"{engine.name}_{model[:16]}"

    def sql(self, statement: str, **parts: Any) -> Any:
        """Return a statement with this table and its width in it, and other parts, which are SQL."""
        from psycopg.sql import SQL, Identifier, Literal

        own = {"table": Identifier(self.table), "width": Literal(self.width), "index": Identifier(f"{self.table}_hnsw")}
        return SQL(statement).format(**own, **parts)

    def ask(self, statement: str, values: Any, what: str = "did not answer", binary: bool = False, **parts: Any) -> Any:
        """Return the rows that a statement finds; if it fails, the sentence says that PostgreSQL `what`."""
        with self.engine.sentences(what):
            return self.engine.connection.execute(self.sql(statement, **parts), values, binary=binary).fetchall()

    def columns(self) -> list[tuple[str, str]]:
        """Return name and type of each column that candidates with ids have in addition."""
        if self.fields is None:
            return []
        return [(OWN_ID, TYPES["text"]), *((OF_FIELD + name, TYPES[kind]) for name, kind in self.fields.items())]

    def change(self, statement: str, column: str) -> None:
        """Execute a statement about a column."""
        from psycopg.sql import Identifier

        self.engine.connection.execute(self.sql(statement, column=Identifier(column)))

    def found(self) -> "PostgresCollection | None":
        """Return the collection with the fields of its table; None if there is no such table.

        An EngineError says if it lacks a column that `create` makes.
        """
        rows = self.engine.connection.execute(COLUMNS, (f'"{self.table}"',)).fetchall()
        if not rows:
            return None
        made = {("id", "bigint", True, True), ("vector", f"vector({self.width})", True, False)}
        if not made | {("text", "text", True, False)} <= {*rows}:
            raise EngineError(
                f"PostgreSQL at {self.engine.where}: the table {self.table} is not as polyagents made it, with vectors "
                f"of {self.width} numbers; build the candidates under another name."
            )
        kinds = {kind: name for name, kind in TYPES.items()} | {"text": "text"}
        fields = fields_among({name: kinds.get(kind, "") for name, kind, *_ in rows})
        return PostgresCollection(self.engine, self.model, self.width, fields)

    def upsert(
        self, ids: np.ndarray, texts: Sequence[str], vectors: Tensor, records: Sequence[Record] | None = None
    ) -> None:
        """Add candidates, or replace candidates of the same id; a message is stored completely or not at all."""
        from psycopg.sql import SQL, Identifier

        extra = self.columns()
        more = [(record.id, *record.values) for record in records or ()] or [()] * len(texts)
        names = [Identifier(name) for name, _ in extra]
        listed = {
            "made": SQL("").join(
                SQL(", {} ").format(name) + SQL(kind) for name, (_, kind) in zip(names, extra, strict=True)
            ),
            "names": SQL("").join(SQL(", {}").format(name) for name in names),
            "set": SQL("").join(SQL(", {0} = excluded.{0}").format(name) for name in names),
        }
        raw, connection = [utf8(text).decode() for text in texts], self.engine.connection
        if zero := next((text for text in raw if "\0" in text), None):
            raise EngineError(f"PostgreSQL keeps no text with a zero byte; remove it from {zero[:40]!r}.")
        with self.engine.sentences("did not take candidates", None):  # a graph that is there grows one by one
            for part in in_messages(raw, self.width):
                with connection.transaction(), connection.cursor() as cursor:
                    cursor.execute("SET LOCAL statement_timeout = 0")
                    cursor.execute(
                        self.sql(
                            "CREATE TEMPORARY TABLE sent (id bigint, vector vector, text text{made}) ON COMMIT DROP",
                            **listed,
                        )
                    )
                    with cursor.copy("COPY sent FROM STDIN WITH (FORMAT BINARY)") as copy:
                        copy.set_types(["int8", "vector", "text", *(SENT[kind] for _, kind in extra)])
                        for row in zip(ids[part].tolist(), vectors[part].numpy(), raw[part], more[part], strict=True):
                            copy.write_row((*row[:3], *row[3]))
                    cursor.execute(
                        self.sql(
                            "INSERT INTO {table} (id, vector, text{names}) "
                            "SELECT DISTINCT ON (id) id, vector, text{names} FROM sent "
                            "ON CONFLICT (id) DO UPDATE SET vector = excluded.vector, text = excluded.text{set}",
                            **listed,
                        )
                    )
                    if cursor.rowcount != len(set(ids[part].tolist())):
                        raise self._overruled()

    def _overruled(self) -> EngineError:
        """Return the error for a change that PostgreSQL accepted and did not make."""
        return EngineError(
            f"PostgreSQL at {self.engine.where} did not change {self.table} as told; look for a rule or a trigger."
        )

    def delete(self, ids: np.ndarray) -> None:
        """Remove candidates; an EngineError says if PostgreSQL refuses, or keeps some."""
        for start in range(0, len(ids), REMOVED_AT_ONCE):
            part = ids[start : start + REMOVED_AT_ONCE]
            with self.engine.sentences("did not remove candidates"):
                self.engine.connection.execute(self.sql("DELETE FROM {table} WHERE id = ANY(%s)"), (part.tolist(),))
            if self.there(part).any():
                raise self._overruled()

    def count(self, where: Filter | None = None) -> int:
        """Count the candidates that meet the conditions."""
        conditions, values = conditions_of(where)
        statement = "SELECT count(*) FROM {table} AS candidate WHERE {conditions}"
        ((found,),) = self.ask(statement, values, "did not count candidates", conditions=conditions)
        return int(found)

    def those(self, where: Filter, most: int) -> np.ndarray:
        """Return the ids of candidates that meet the conditions, at most that many, in no order."""
        conditions, values = conditions_of(where)
        statement = "SELECT id FROM {table} AS candidate WHERE {conditions} LIMIT %(most)s"
        rows = self.ask(statement, {**values, "most": most}, conditions=conditions)
        return np.array([row[0] for row in rows], np.int64)

    def read(self, ids: Sequence[int] | np.ndarray, columns: Sequence[str]) -> list[dict[str, Any]]:
        """Return `id` and other columns of the candidates that still exist, in no order."""
        from psycopg.sql import SQL, Identifier

        names = ["id", *columns]
        listed = SQL(", ").join(map(Identifier, names))
        statement, is_binary = "SELECT {listed} FROM {table} WHERE id = ANY(%s)", "vector" in columns
        rows = self.ask(statement, (np.asarray(ids).tolist(),), binary=is_binary, listed=listed)
        found = [dict(zip(names, row, strict=True)) for row in rows]
        return [{**row, "vector": row["vector"].to_numpy()} for row in found] if is_binary else found

    def nearest(self, vectors: Tensor, count: int, depth: int, where: Filter | None = None) -> Found:
        """Find the `count` candidates with the largest dot products for each vector."""
        asked = list(vectors.float().cpu().numpy())
        with self.engine.sentences("did not answer"), self.engine.connection.transaction():
            self.engine.connection.execute(f"SET LOCAL hnsw.ef_search = {int(depth)}")
            if where is not None:  # what it passes over is kept in memory
                self.engine.connection.execute(f"SET LOCAL hnsw.scan_mem_multiplier = {SCAN_MEMORY}")
            # What was removed or replaced stays in the graph until VACUUM: it is passed over, not counted.
            self.engine.connection.execute("SET LOCAL hnsw.iterative_scan = strict_order")
            self.engine.connection.execute(f"SET LOCAL hnsw.max_scan_tuples = {PASSED_OVER}")
            with self.engine.connection.cursor(binary=True) as cursor:
                conditions, values = conditions_of(where)
                statement = self.sql(SEARCH, conditions=conditions)
                rows = cursor.execute(statement, {**values, "vectors": asked, "count": count}).fetchall()
        found = [{"id": row[0], "vector": row[3].to_numpy()} for row in rows]
        return Found(*lists_of(rows, len(asked)), *self.in_order(found))

    def build_index(self, index_type: str) -> None:
        """Build the index over all candidates, unless it exists."""
        connection = self.engine.connection
        make = (
            "CREATE INDEX IF NOT EXISTS {index} ON {table} USING hnsw (vector vector_ip_ops) "
            f"WITH (m = {HNSW_LINKS}, ef_construction = {HNSW_BUILD})"
        )
        with self.engine.sentences("did not build an index", None), connection.transaction():
            connection.execute("SET LOCAL statement_timeout = 0")
            connection.execute(self.sql(make if index_type == "hnsw" else "DROP INDEX IF EXISTS {index}"))
            for name, _ in self.columns()[1:]:
                short = hashlib.sha256(f"{self.table}.{name}".encode()).hexdigest()[:16]  # names have 63 bytes at most
                self.change(f"CREATE INDEX IF NOT EXISTS polyagents_{short} ON {{table}} ({{column}})", name)
            connection.execute(
                f"UPDATE {LISTED} SET index_type = %s WHERE name = %s AND model = %s",
                (index_type, self.engine.name, self.model),
            )


def conditions_of(where: Filter | None) -> tuple[Any, dict[str, Any]]:
    """Return conditions in SQL, with names that were declared and no value, and the parameters that they name."""
    from psycopg.sql import SQL, Identifier, Placeholder

    parts: list[Any] = [SQL("true")]
    values: dict[str, Any] = {}

    def bound(value: Any, kind: str) -> Any:
        values[f"value{len(values)}"] = value
        return Placeholder(f"value{len(values) - 1}") + SQL(f"::{kind}")

    for condition in where or ():
        column = Identifier("candidate", OF_FIELD + condition.field)
        kind = TYPES[condition.kind].partition(" COLLATE")[0]
        if condition.one_of is not None:
            parts.append(SQL("{} = ANY({})").format(column, bound(list(condition.one_of), f"{kind}[]")))
        for operator, value in condition.bounds:
            parts.append(SQL("{} {} {}").format(column, SQL(operator), bound(value, kind)))
    return SQL(" AND ").join(parts), values


@contextlib.contextmanager
def given_up_after(seconds: float | None, connection: Any) -> Iterator[None]:
    """End a psycopg connection whose server does not answer in time, so that its caller gets an error.

    libpq has no limit for an answer, and a stopped process keeps its socket open. Without seconds (None), or without a
    connection, nothing is limited.
    """
    if seconds is None or connection is None or connection.closed:
        yield
        return
    watch = threading.Timer(seconds, shut_down_socket, [connection.fileno()])
    watch.daemon = True
    watch.start()
    try:
        yield
    finally:
        watch.cancel()


def shut_down_socket(descriptor: int) -> None:
    """Shut down a socket whose owner will close it."""
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as own:
        own.shutdown(socket.SHUT_RDWR)


def lists_of(rows: Sequence[tuple[Any, ...]], asked: int) -> tuple[np.ndarray, np.ndarray]:
    """Arrange rows (id, places from 1, products, ...) as products and ids [q, n], descending, -1 after an end."""
    ids = np.repeat([row[0] for row in rows], [len(row[1]) for row in rows]).astype(np.int64)
    places = np.concatenate([np.asarray(row[1], np.int64) for row in rows] or [np.empty(0, np.int64)]) - 1
    values = np.concatenate([np.asarray(row[2], np.float32) for row in rows] or [np.empty(0, np.float32)])
    order = np.lexsort((ids, -values, places))
    ids, places, values = ids[order], places[order], values[order]
    starts = np.searchsorted(places, np.arange(asked + 1))
    rank = np.arange(len(ids)) - starts[places]
    longest = int(np.diff(starts).max(initial=0))
    products, lists = np.zeros((asked, longest), np.float32), np.full((asked, longest), -1, np.int64)
    products[places, rank], lists[places, rank] = values, ids
    return products, lists
