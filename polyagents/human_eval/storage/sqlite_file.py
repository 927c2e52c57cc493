"""Checks an SQLite file before anything writes to it: it may be damaged, or another program's."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from sqlalchemy import Connection, select
from sqlalchemy.dialects import sqlite

from polyagents.human_eval.storage.database_tables import Base


def objection(path: str) -> str | None:
    """Return the fault of a file that is to be our database; None if it has none, or is missing. Nothing is written."""
    if not size(path) or size(f"{path}-journal"):  # SQLite repairs what a killed writer has left when it opens the file
        return None
    if os.path.exists(f"{path}-wal"):
        return looked_at(path, "mode=ro")
    # If nobody has it open, SQLite would leave its own files next to it. Somebody may open it just now.
    wrong = looked_at(path, "immutable=1")
    return looked_at(path, "mode=ro") if wrong and os.path.exists(f"{path}-wal") else wrong


def size(path: str) -> int:
    """Return the bytes of a file; 0 if there is none."""
    return os.path.getsize(path) if os.path.exists(path) else 0


def looked_at(path: str, how: str) -> str | None:
    """Return the fault of a database that is opened in a given way."""
    try:
        with closing(sqlite3.connect(f"{Path(path).absolute().as_uri()}?{how}", uri=True)) as connection:
            connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
            (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            if found != "ok":
                return f"it is damaged: {' '.join(found.split())}"
            there = connection.execute(
                'SELECT t.name, c.name, c.type, c."notnull", c.pk FROM sqlite_master t, pragma_table_info(t.name) c '
                "WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite_%'"
            ).fetchall()
    except (sqlite3.Error, UnicodeDecodeError) as error:  # UnicodeDecodeError: a message that quotes damaged bytes
        return str(error)
    tables = columns_by_table()
    for table in {table for table, *_ in there}:
        if table not in tables or not tables[table] <= {tuple(column) for name, *column in there if name == table}:
            return f"it belongs to another program: its table {table} is not ours"
    return None


def columns_by_table() -> dict[str, set[tuple[str, str, int, int]]]:
    """Return our columns as SQLite has them: name, type, NULL refused, key; without those that opening a file adds."""
    dialect = sqlite.dialect()
    return {
        table.name: {
            (column.name, column.type.compile(dialect), int(not column.nullable), int(column.primary_key))
            for column in table.columns
            if not column.info.get("added")
        }
        for table in Base.metadata.sorted_tables
    }


def orphans(connection: Connection) -> str | None:
    """Return the table that refers to a missing row; None if none does.

    SQLite looks at references only when something is written, and PostgreSQL never keeps such a row.
    """
    for key in (key for table in Base.metadata.sorted_tables for key in table.foreign_keys):
        alone = select(key.parent).outerjoin(key.column.table, key.parent == key.column)
        found = connection.execute(alone.where(key.parent.is_not(None), key.column.is_(None)).limit(1)).first()
        if found:
            return f"{key.parent} is {found[0]!r:.60}, and there is no such {key.column}"
    return None
