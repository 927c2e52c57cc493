"""Candidates with the user's own ids and fields: JSON lines, CSV, Parquet, or Python's dicts, checked once.

A candidate's key is of its id; a plain line's id is the line itself. A file is read twice: once to check it and to
record where each candidate is, 44 bytes each, and then part by part.
"""

import functools
import json
from abc import abstractmethod
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np

from polyagents.console import say
from polyagents.errors import InputError, first_line
from polyagents.files.csv_rows import Header, check_names, header_of, named_rows
from polyagents.files.hashing import stream_digest, text_key, utf8
from polyagents.files.json_files import json_fault, parse_json
from polyagents.files.lines import lines_of
from polyagents.files.python_arguments import is_whole
from polyagents.index.columns import Record
from polyagents.index.filters import KINDS, Fields, is_short_text, limits_of_kind, value_of
from polyagents.index.texts import CandidatesFile, FileTexts, Texts, key_columns, last_of_each, open_candidates
from polyagents.properties import cached_property

JSON_LINES, TABLES, PARQUET = (".jsonl", ".ndjson", ".json"), (".csv", ".tsv"), ".parquet"
ALWAYS = ("id", "text")
EXAMPLE = '{"id": "a1", "text": "hello"}'
ROWS = 2_048  # of a Parquet file, converted at once
# Limits of a row group, which is read as a whole. Chosen here: a million rows of a thousand characters.
GROUP_BYTES, GROUP_ROWS = 2**30, 2**24


def has_ids(path: str) -> bool:
    """Tell by its name whether a file contains candidates with ids, not plain lines."""
    return path.lower().endswith((*JSON_LINES, *TABLES, PARQUET))


def candidates_of(path: str, fields: Fields | None, is_update: bool = False) -> CandidatesFile:
    """Open a file of candidates: plain lines, or with ids: JSON lines, CSV, TSV or Parquet, by the end of its name.

    Args:
        fields: those that are declared; None or none for plain lines.
        is_update: whether the last candidate of an id counts; otherwise an id may not be there twice.

    Raises:
        InputError: it cannot be read, a candidate is not one, or plain lines cannot have the fields.
    """
    if has_ids(path):
        kinds: dict[str | tuple[str, ...], type[FileRecords]]
        kinds = {JSON_LINES: JsonRecords, TABLES: CsvRecords, PARQUET: ParquetRecords}
        (kind,) = (kind for ends, kind in kinds.items() if path.lower().endswith(ends))
        return kind(path, fields or {}, is_update)
    if fields:
        raise InputError(
            f"Candidates file {path} has plain lines, which have no fields; give CSV (.csv), Parquet (.parquet), or "
            f'JSON lines (.jsonl), each such as {{"id": "a1", "text": "hello", "{next(iter(fields))}": ...}}.'
        )
    return FileTexts(path)


def read_candidates(path: str) -> list[str]:
    """Read the texts of all candidates of a file into memory; with the errors of `candidates_of`."""
    return all_of(candidates_of(path, None))


def all_of(texts: CandidatesFile) -> list[str]:
    """Read all texts of a file, and close it."""
    with texts.file:
        return texts.part(0, len(texts))


def read_ids(path: str) -> list[str]:
    """Read what to remove: ids, whose texts do not matter, or the lines of a file; an InputError says what is wrong."""
    if not has_ids(path):
        return all_of(FileTexts(path))
    with open_candidates(path) as file:
        rows = json_rows(path, file)
        if path.lower().endswith(PARQUET):
            rows = RowGroups(path, ["id"]).all_rows()
        elif path.lower().endswith(TABLES):
            rows = csv_rows(path, file, csv_header(path, file, ["id"]), {})
        ids = list(dict.fromkeys(id_of(row, where) for where, row in rows))
    if not ids:
        raise InputError(f"{path} has no ids; give one row for each, such as {EXAMPLE}.")
    return ids


class Records(Texts):
    """Candidates of different ids; subclasses know where they are.

    Attributes:
        name: for sentences.
        kept: [C] numbers of their rows, ascending.
    """

    name: str
    fields: Fields
    keys = contents = key_columns(b"")
    kept = np.arange(0)
    repeated = 0

    def _check_all(self, rows: Iterable[tuple[str, Any]], fields: Fields, is_update: bool) -> None:
        """Read all rows once, each with its name in a sentence."""
        self.fields = fields
        keys, contents, empty = bytearray(), bytearray(), dict.fromkeys(fields)
        for where, row in rows:
            record = record_of(row, fields, where)
            if empty:
                empty = {name: None for name in empty if row.get(name) is None}
            keys += text_key(utf8(record.id))
            contents += text_key(json.dumps(record).encode())
        if not keys:
            raise InputError(f"{self.name} holds no candidate; it needs one per row, with id and text.")
        if empty:
            say(f"{self.name} has no value in the declared field{'s' * (len(empty) > 1)} {', '.join(empty)}.")
        self.keys, self.contents = key_columns(keys), key_columns(contents)
        self.kept = np.arange(len(self.keys))
        last = last_of_each(self.keys)
        if len(last) < len(self) and not is_update:
            again = int(np.setdiff1d(self.kept, last)[0])
            raise InputError(
                f"{self.name} has the id {self.records(again, again + 1)[0].id!r:.80} twice; an index has each id "
                f"once (in an update, polyagents index add, the last one counts)."
            )
        self.repeated = len(self) - len(last)
        self.keep(last)

    def __len__(self) -> int:
        return len(self.kept)

    def part(self, start: int, stop: int) -> list[str]:
        """Return the texts from one place to another, without the last."""
        return [record.text for record in self.records(start, stop)]

    def records(self, start: int, stop: int) -> list[Record]:
        """Return the candidates from one place to another, without the last; errors as of `part`."""
        rows = self._rows(self.kept[start:stop])
        return [record_of(row, self.fields, self.name) for row in rows]

    @abstractmethod
    def _rows(self, numbers: np.ndarray) -> list[Any]:
        """Read rows by their numbers, ascending."""

    def keep(self, places: np.ndarray) -> None:
        """Discard all others."""
        self.keys, self.contents, self.kept = self.keys[places], self.contents[places], self.kept[places]


class ListedRecords(Records):
    """Candidates that are all in memory, as dicts with id, text and fields."""

    name = "The list of candidates"

    def __init__(self, given: Iterable[Any], fields: Fields, is_update: bool):
        self.given, self.fields = list(given), fields
        if self.given:
            named = ((f"The candidate at place {place}", row) for place, row in enumerate(self.given))
            self._check_all(named, fields, is_update)

    def _rows(self, numbers: np.ndarray) -> list[Any]:
        return [self.given[number] for number in numbers]


class FileRecords(Records, CandidatesFile):
    """The candidates of a file, which is read through when it is opened."""

    def __init__(self, path: str, fields: Fields, is_update: bool):
        self.name = f"Candidates file {path}"
        self.declared, self.is_update = fields, is_update
        super().__init__(path)

    def _read_through(self) -> None:
        self.digest = stream_digest(self.file)
        self.file.seek(0)
        self._check_all(self._all_rows(), self.declared, self.is_update)

    @abstractmethod
    def _all_rows(self) -> Iterator[tuple[str, Any]]:
        """Yield all rows, each with its name in a sentence."""


class JsonRecords(FileRecords):
    """The candidates of a file of JSON lines, found by their offsets."""

    def _all_rows(self) -> Iterator[tuple[str, Any]]:
        self.offsets = array("q")
        return json_rows(self.path, self.file, self.offsets)

    def _next_row(self) -> Any:
        return parse_json(self.file.readline().removeprefix(b"\xef\xbb\xbf"))

    def _rows(self, numbers: np.ndarray) -> list[Any]:
        rows = []
        for number in numbers:
            self.file.seek(self.offsets[number])
            rows.append(self._next_row())
        self.check_unchanged()
        return rows


class CsvRecords(JsonRecords):
    """The candidates of a CSV or TSV file, found by their offsets as JSON lines are."""

    def _all_rows(self) -> Iterator[tuple[str, Any]]:
        self.header, self.offsets = csv_header(self.path, self.file, ALWAYS), array("q")
        return csv_rows(self.path, self.file, self.header, self.declared, self.offsets)

    def _next_row(self) -> Any:
        return next(csv_rows(self.path, self.file, self.header, self.declared))[1]


class ParquetRecords(FileRecords):
    """The candidates of a Parquet file, found by the numbers of their rows."""

    @cached_property
    def groups(self) -> "RowGroups":
        """The open file; each process opens its own."""
        return RowGroups(self.path, [*ALWAYS, *self.declared])

    def _all_rows(self) -> Iterator[tuple[str, Any]]:
        return self.groups.all_rows()

    def _rows(self, numbers: np.ndarray) -> list[Any]:
        rows = self.groups.at(numbers)
        self.check_unchanged()
        return rows

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "groups"}


class RowGroups:
    """The row groups of a Parquet file, of which one is in memory."""

    def __init__(self, path: str, columns: Sequence[str]):
        try:
            import pyarrow
            from pyarrow import parquet
        except ModuleNotFoundError as error:
            raise InputError(
                f"{path} is a Parquet file, which needs pyarrow; run pip install 'polyagents[hf]'."
            ) from error

        self.path = path
        self.faults = (OSError, UnicodeDecodeError, pyarrow.ArrowException)
        schema = self._read(lambda: parquet.read_metadata(path)).schema
        leaves = {schema.column(place).path for place in range(len(schema.names))}  # of lists and objects: longer paths
        there = self._read(schema.to_arrow_schema).names
        self.columns = [name for name in columns if name in there]
        for name in self.columns:
            if there.count(name) > 1:
                raise InputError(f"{path} has more than one column {name}; leave one of them.")
            if name not in leaves:
                raise InputError(f"{path} has lists or objects in its column {name}; give single values.")
        # Each text once, however often a file repeats it: otherwise a file of a kilobyte may fill the memory.
        self.file = self._read(lambda: parquet.ParquetFile(path, read_dictionary=self.columns))
        counts = [self.file.metadata.row_group(group).num_rows for group in range(self.file.num_row_groups)]
        self.starts = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
        self.table = functools.lru_cache(maxsize=1)(self._table)

    def _read(self, action: Callable[[], Any]) -> Any:
        try:
            return action()
        except self.faults as error:
            raise InputError(f"{self.path} cannot be read as a Parquet file ({first_line(error)}).") from error

    def _table(self, group: int) -> Any:
        about = self.file.metadata.row_group(group)
        parts = [part for part in map(about.column, range(about.num_columns)) if part.path_in_schema in self.columns]
        size = sum(part.total_uncompressed_size for part in parts)
        if size > GROUP_BYTES or about.num_rows > GROUP_ROWS or any("DELTA_BYTE" in str(p.encodings) for p in parts):
            raise InputError(
                f"Row group {group + 1:,} of {self.path} has {about.num_rows:,} rows of {size:,} bytes; write the file "
                f"with row groups of at most {GROUP_ROWS:,} rows and {GROUP_BYTES:,} bytes, and no DELTA_BYTE_ARRAY."
            )
        return self._read(lambda: self.file.read_row_group(group, columns=self.columns))

    def all_rows(self) -> Iterator[tuple[str, Any]]:
        """Yield the rows of all groups, each with its name in a sentence."""
        for group, first in enumerate(self.starts[:-1].tolist()):
            table = self.table(group)
            for start in range(0, len(table), ROWS):
                for number, row in enumerate(self._read(table.slice(start, ROWS).to_pylist), first + start + 1):
                    yield f"Row {number:,} of {self.path}", row

    def at(self, numbers: np.ndarray) -> list[Any]:
        """Return rows by their numbers, ascending."""
        owners = np.searchsorted(self.starts, numbers, side="right") - 1
        found: list[Any] = []
        for group in np.unique(owners).tolist():
            table = self.table(group)
            local = numbers[owners == group] - self.starts[group]
            found += self._read(table.take(local).to_pylist)
        return found


def json_rows(path: str, file: BinaryIO, offsets: "array[int] | None" = None) -> Iterator[tuple[str, Any]]:
    """Yield rows of JSON lines with their names in a sentence, and append their offsets; blank lines are skipped."""
    for number, raw in enumerate(lines_of(file, f"Candidates file {path}"), 1):
        if not raw.strip():
            continue
        where = f"Line {number:,} of {path}"
        try:
            row = parse_json(raw)
        except ValueError as error:
            raise InputError(
                f"{where} is not JSON{json_fault(error)}; give one object per line, such as {EXAMPLE}."
            ) from error
        if isinstance(row, list):
            raise InputError(f"{where} is a JSON array; give one object per line, such as {EXAMPLE}.")
        if offsets is not None:
            offsets.append(file.tell() - len(raw))
        yield where, row


def csv_header(path: str, file: BinaryIO, needed: Sequence[str]) -> Header:
    """Read the header of a CSV file at its beginning; an InputError says if columns are missing, or there twice."""
    header = header_of(file, path)
    check_names(header.names, path)
    if header.names and (missing := [name for name in needed if name not in header.names]):
        raise InputError(
            f"Candidates file {path} has no column {missing[0]} in its first line ({', '.join(header.names)[:60]!r}); "
            f"name its columns id and text or, for plain lines, give the file a name that ends in .txt."
        )
    return header


def csv_rows(
    path: str, file: BinaryIO, header: Header, fields: Fields, offsets: "array[int] | None" = None
) -> Iterator[tuple[str, Any]]:
    """Yield the rows from a CSV file's position on, as `json_rows` does; a cell has its field's kind, or is empty."""
    begin = file.tell()
    for where, row in named_rows(file, path, header):
        if offsets is not None:
            offsets.append(begin)
        yield where, row | {name: cell_value(row.get(name), kind) for name, kind in fields.items()}
        begin = file.tell()


def cell_value(cell: str | None, kind: str) -> Any:
    """Return a cell as JSON has it; a text that spells no value of the kind stays a text, and is refused as one."""
    if not cell or kind == "text":
        return cell or None
    try:
        return parse_json(cell.lower())  # as spreadsheets write TRUE
    except ValueError:
        return cell


def record_of(row: Any, fields: Fields, where: str) -> Record:
    """Check a candidate, of which other keys are ignored; an InputError says what is wrong, and `where`."""
    number = id_of(row, where)
    text = row.get("text")
    if not isinstance(text, str) or not text.strip() or not is_whole(text):
        raise InputError(f"{where} has the text {text!r:.60}; give a text that is not blank, without half characters.")
    values = []
    for name, kind in fields.items():
        given = row.get(name)
        value = None if given is None else value_of(given, kind)
        if value is None and given is not None:
            raise InputError(
                f"{where} has the {name} {given!r:.60}; give {KINDS[kind]}{limits_of_kind(kind)}, or omit it."
            )
        values.append(value)
    return Record(number, text, tuple(values))


def id_of(row: Any, where: str) -> str:
    """Return the id of a row, after a check."""
    if not isinstance(row, Mapping):
        raise InputError(f"{where} is {row!r:.60}; give an object such as {EXAMPLE}.")
    found = row.get("id")
    if not isinstance(found, str) or not found or not is_short_text(found):
        raise InputError(f"{where} has the id {found!r:.60}; give a text{limits_of_kind('text')}, such as {EXAMPLE}.")
    return found
