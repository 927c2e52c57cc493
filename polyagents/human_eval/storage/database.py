"""One way to write to SQLite and PostgreSQL: one writer at a time."""

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, inspect, make_url, text
from sqlalchemy.exc import ArgumentError, DBAPIError, InvalidRequestError
from sqlalchemy.orm import Session

from polyagents.errors import InputError, first_line
from polyagents.human_eval.storage.database_tables import Base
from polyagents.human_eval.storage.sqlite_file import objection, orphans

WAIT = 60  # seconds that a writer waits for others; a write takes milliseconds
LOCK = 1_903_017  # the number of our advisory lock in PostgreSQL: any, as long as every version of this file has it
POSSIBLE = "give the file of an SQLite database, or postgresql://USER:PASSWORD@HOST/NAME"


class StorageFault(InputError):
    """The error for a database that fails while it is in use: a full disk, a damaged page, a lost server."""


class Database:
    """A database with our tables.

    A write locks all other writers out, on SQLite by its own lock, on PostgreSQL by an advisory one: what is read in a
    write is still so when it ends, whoever else writes. People answer far too rarely for that to be slow.
    """

    def __init__(self, url: str):
        """Open a database (an SQLite file, or postgresql://...), and make the tables that it lacks.

        An InputError says if it cannot be opened, is not a database, is damaged, or another program's.
        """
        place = parsed_url(url)
        self.name = place.database if is_sqlite(place) else place.render_as_string(hide_password=True)
        if is_sqlite(place) and (wrong := objection(str(self.name))):
            raise InputError(f"--database {self.name} cannot be used ({wrong}); {POSSIBLE}.")
        try:
            engine = sqlite(place) if is_sqlite(place) else postgresql(place)
            self.writer = engine.execution_options(begin="BEGIN IMMEDIATE")
            self.reader = engine if is_sqlite(place) else engine.execution_options(isolation_level="REPEATABLE READ")
            with self.writer.begin() as connection:
                lock(connection)
                Base.metadata.create_all(connection)
                add_columns(connection)
                if is_sqlite(place) and (wrong := orphans(connection)):
                    raise InputError(f"--database {self.name} cannot be used ({wrong}); {POSSIBLE}.")
        except DBAPIError as error:
            said = str(error.orig).strip().splitlines()[0]
            raise InputError(f"--database {self.name} cannot be used ({said}); {POSSIBLE}.") from error

    @contextmanager
    def atomic_write(self) -> Iterator[Session]:
        """Open a session that is committed as a whole at its end, or not at all; nobody else writes meanwhile."""
        with self.faults(), Session(self.writer) as session, session.begin():
            lock(session.connection())
            yield session

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """Open a session that sees one state of the database, whoever writes in the meantime."""
        with self.faults(), Session(self.reader) as session:
            yield session

    @contextmanager
    def faults(self) -> Iterator[None]:
        """Report a database failure in one sentence, as a StorageFault."""
        try:
            yield
        except InputError:
            raise
        except (DBAPIError, InvalidRequestError, RecursionError, ValueError) as error:  # the last three: damaged rows
            said = first_line(error.orig if isinstance(error, DBAPIError) and error.orig else error)
            raise StorageFault(f"The database {self.name} failed ({said}); stored data are kept.") from error

    def checkpoint(self) -> None:
        """Move what SQLite has in its log into its file, so that what was removed is not left in the log."""
        if self.writer.dialect.name == "sqlite":
            with self.faults(), contextlib.closing(self.writer.raw_connection()) as connection:
                connection.cursor().execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        """Close all connections."""
        self.writer.dispose()


def parsed_url(url: str) -> URL:
    """Parse the user's value into SQLAlchemy's URL."""
    if "://" not in url:
        return URL.create("sqlite", database=os.path.abspath(url))
    try:
        found = make_url(url)
    except (ArgumentError, ValueError) as error:
        raise InputError(f"--database {url!r} is not a URL; {POSSIBLE}.") from error
    if found.drivername in ("postgresql", "postgres"):
        return found.set(drivername="postgresql+psycopg")  # SQLAlchemy's own default has had no new version for years
    # SQLite's parameters would open another file than the one that is checked, or one that is gone afterwards.
    if found.drivername == "sqlite" and found.database not in ("", None, ":memory:") and not found.query:
        return found
    where = " without a file or with parameters" if found.drivername == "sqlite" else ""
    raise InputError(f"--database: {found.drivername!r}{where} is not supported; {POSSIBLE}.")


def is_sqlite(url: URL) -> bool:
    """Return whether a database is a file."""
    return url.get_backend_name() == "sqlite"


def add_columns(connection: Connection) -> None:
    """Add the columns that an earlier version has not made; what they hold is unknown for its rows."""
    for table in Base.metadata.sorted_tables:
        there = {column["name"] for column in inspect(connection).get_columns(table.name)}
        for column in table.columns:
            if column.info.get("added") and column.name not in there:
                kind = column.type.compile(connection.dialect)
                connection.exec_driver_sql(f"ALTER TABLE {table.name} ADD COLUMN {column.name} {kind}")


def sqlite(url: URL) -> Engine:
    """Make an engine that begins transactions itself: Python's driver begins them at the first write, too late."""
    engine = create_engine(url, connect_args={"timeout": WAIT, "isolation_level": None}, pool_timeout=WAIT)

    @event.listens_for(engine, "connect")
    def connect(connection: Any, _: Any) -> None:
        connection.execute("PRAGMA journal_mode = WAL")  # readers do not wait for writers
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA secure_delete = ON")  # who is forgotten is not in the file either

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql(connection.get_execution_options().get("begin", "BEGIN"))

    return engine


def postgresql(url: URL) -> Engine:
    """Make an engine, if there is a driver."""
    try:
        return create_engine(url, pool_timeout=WAIT, pool_pre_ping=True)  # the server may have been restarted
    except ModuleNotFoundError as error:
        raise InputError(f"PostgreSQL needs {error.name}; run: pip install 'polyagents[postgres]'.") from error


def lock(connection: Connection) -> None:
    """Wait for all other writers; SQLite did so at the beginning of the transaction."""
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"SELECT pg_advisory_xact_lock({LOCK})"))
