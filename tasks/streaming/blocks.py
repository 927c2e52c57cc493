"""The rows of files, one block at a time: Arrow files of `datasets`, row groups of parquet, JSON lines, CSV.

Opening them counts rows. Arrow and parquet files know their own counts; JSON lines and CSV are read through once.
"""

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, overload

from polyagents.errors import InputError, first_line
from polyagents.files import lines
from polyagents.files.csv_rows import header_of, named_rows
from polyagents.files.json_files import json_fault, parse_json

from .order import Spot

if TYPE_CHECKING:
    import pyarrow
    from datasets import Dataset

ROWS = 10_000  # rows of a block of lines or of an Arrow file, which is in memory and shuffled as a unit
# Limits of a row group, which is read as a whole. Chosen here: a million rows of a thousand characters.
GROUP_BYTES, GROUP_CELLS = 2**30, 2**24
Row = dict[str, Any]


class Columns(Protocol):
    """The columns that are read, and how an example is made of them."""

    @property
    def names(self) -> Sequence[str]:
        """The columns."""
        ...

    def example(self, row: Mapping[str, Any], where: str) -> dict[str, Any]:
        """Read a row, which `where` names in a sentence."""
        ...


@dataclass(frozen=True)
class Block:
    """Some consecutive rows.

    Attributes:
        path: the file, for error messages.
        first: the number of rows before them in the file.
        load: reads the given columns of the rows.
        chosen: which of the rows that are read there belong to the split; None for all.
    """

    count: int
    path: str
    first: int
    load: Callable[[Sequence[str]], Sequence[Row]]
    chosen: Sequence[int] | None = None

    def rows(self, columns: Sequence[str]) -> Sequence[Row]:
        """Read the rows of the split.

        Raises:
            InputError: the file has changed since it was opened.
        """
        rows = self.load(columns)
        if len(rows) != self.count:
            raise InputError(f"{self.path} has changed since it was opened; start again.")
        return rows if self.chosen is None else [rows[place] for place in self.chosen]

    def where(self, row: int) -> str:
        """The name of a row of the split, for a sentence."""
        return f"Row {self.first + (row if self.chosen is None else self.chosen[row]) + 1:,} of {self.path}"


class Table:
    """The examples of a split, with one block in memory (`streaming.order.ShardedExamples`)."""

    def __init__(self, blocks: Sequence[Block], columns: Columns):
        self.blocks, self.columns = list(blocks), columns
        self._loaded = functools.lru_cache(maxsize=1)(self._load)

    @property
    def sizes(self) -> list[int]:
        """The number of rows of each block."""
        return [block.count if block.chosen is None else len(block.chosen) for block in self.blocks]

    def example(self, spot: Spot) -> dict[str, Any]:
        """Return what the columns make of a row.

        Raises:
            InputError: the row holds something other than texts, or the file has changed.
        """
        return self.columns.example(self._loaded(spot.shard)[spot.row], self.blocks[spot.shard].where(spot.row))

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for shard, size in enumerate(self.sizes):
            for row in range(size):
                yield self.example(Spot(shard, row))

    def _load(self, number: int) -> Sequence[Row]:
        return self.blocks[number].rows(self.columns.names)


# ---- the kinds of files ----------------------------------------------------------------------------------------


class ColumnRows(Sequence[Row]):
    """Rows whose cells are kept by column, as files of columns have them."""

    def __init__(self, columns: Mapping[str, list[Any]]):
        self.columns = columns

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    @overload
    def __getitem__(self, index: int) -> Row: ...

    @overload
    def __getitem__(self, index: slice) -> list[Row]: ...

    def __getitem__(self, index: int | slice) -> Row | list[Row]:
        if isinstance(index, slice):
            return [self[place] for place in range(len(self))[index]]
        return {name: cells[index] for name, cells in self.columns.items()}


def of_saved(dataset: "Dataset", where: str) -> tuple[list[Block], list[str]]:
    """Return the blocks and columns of a data set that `datasets.load_from_disk` has opened."""

    def load(columns: Sequence[str], start: int, stop: int) -> ColumnRows:
        for name in columns:
            feature = dataset.features[name]
            while hasattr(feature, "feature"):  # of a list
                feature = feature.feature
            if hasattr(feature, "decode_example"):  # such as an image, which may be read from any address
                raise InputError(f"{where} has no texts in the column {name}, but {type(feature).__name__}.")
        table = dataset.select_columns(list(columns)).with_format("arrow")[start:stop]  # which decodes nothing
        return ColumnRows({name: cells_of(table[name], f"{where}, column {name}") for name in columns})

    blocks = []
    for start in range(0, len(dataset), ROWS):
        stop = min(start + ROWS, len(dataset))
        blocks.append(Block(stop - start, where, start, functools.partial(load, start=start, stop=stop)))
    return blocks, dataset.column_names


def of_parquet(path: str) -> tuple[list[Block], list[str]]:
    """Return the row groups and columns of a parquet file.

    Raises:
        InputError: it is not a parquet file.
    """
    import pyarrow
    from pyarrow import parquet

    def read(action: Callable[[], Any], why: str) -> Any:
        try:
            return action()
        except (OSError, pyarrow.ArrowException) as error:
            raise InputError(f"{path} {why} ({first_line(error)}).") from error

    file = read(lambda: parquet.ParquetFile(opened(path)), "cannot be read as a parquet file")

    def load(columns: Sequence[str], group: int) -> ColumnRows:
        parts = checked_parts(file.metadata.row_group(group), columns, f"Row group {group + 1:,} of {path}")
        reader = read(lambda: parquet.ParquetFile(opened(path), read_dictionary=parts), "is damaged")
        table = read(lambda: reader.read_row_group(group, columns=list(columns)), "is damaged")
        return ColumnRows(
            {name: cells_of(table[name], f"{path}, column {name}") for name in columns if name in table.column_names}
        )

    blocks, first = [], 0
    for group in range(file.num_row_groups):
        count = file.metadata.row_group(group).num_rows
        if count:
            blocks.append(Block(count, path, first, functools.partial(load, group=group)))
        first += count
    return blocks, list(file.schema_arrow.names)


def checked_parts(group: Any, columns: Sequence[str], where: str) -> list[str]:
    """Return the parts of columns that are read as a file stores them: each text once, however often it is meant.

    Otherwise a file of a kilobyte may fill the memory.
    """
    parts, size, cells = [], 0, 0
    for part in map(group.column, range(group.num_columns)):
        if part.path_in_schema.split(".")[0] in columns:
            has_prefixes = "DELTA_BYTE_ARRAY" in part.encodings  # of the text before, so that all may be long
            parts += [] if has_prefixes else [part.path_in_schema]
            size += part.total_uncompressed_size * (part.num_values if has_prefixes else 1)
            cells += part.num_values
    if size > GROUP_BYTES or cells > GROUP_CELLS:
        raise InputError(
            f"{where} has {cells:,} cells of up to {size:,} bytes together, and at most {GROUP_CELLS:,} of "
            f"{GROUP_BYTES:,} bytes are read at once; write the file with smaller row groups, and no DELTA_BYTE_ARRAY."
        )
    return parts


def cells_of(column: "pyarrow.ChunkedArray", where: str) -> list[Any]:
    """Return the cells of a column of Arrow; equal texts of a dictionary are one object."""
    return [cell for chunk in column.chunks for cell in values_of(chunk, where)]


def values_of(array: "pyarrow.Array", where: str) -> list[Any]:
    """Return the values of a part of a column, as `cells_of` does."""
    from pyarrow import compute, types

    if types.is_dictionary(array.type):
        words = array.dictionary.to_pylist()
        return [None if place is None else words[place] for place in array.indices.to_pylist()]
    if types.is_list(array.type) or types.is_large_list(array.type) or types.is_fixed_size_list(array.type):
        items, lengths = values_of(array.flatten(), where), compute.list_value_length(array).to_pylist()
        ends = itertools.accumulate(length or 0 for length in lengths)
        return [None if n is None else items[end - n : end] for n, end in zip(lengths, ends, strict=True)]
    if types.is_nested(array.type):
        raise InputError(f"{where}, is a {type(array).__name__} and has no texts.")
    values: list[Any] = array.to_pylist()
    return values


def of_json_lines(path: str) -> tuple[list[Block], list[str]]:
    """Return the lines of a file in blocks, and the columns of the first line.

    Raises:
        InputError: it cannot be read, or its first line is not a JSON object.
    """

    def load(columns: Sequence[str], begin: int, count: int) -> list[Row]:
        with opened(path) as file:
            file.seek(begin)
            return [row_of(line, path) for line in itertools.islice(filled_lines(file, path), count)]

    blocks: list[Block] = []
    with opened(path) as file:
        first = next(filled_lines(file, path), None)
        names = list(row_of(first, path)) if first is not None else []
        file.seek(0)
        while True:
            begin, count = file.tell(), sum(1 for _ in itertools.islice(filled_lines(file, path), ROWS))
            if not count:
                return blocks, names
            blocks.append(Block(count, path, len(blocks) * ROWS, functools.partial(load, begin=begin, count=count)))


def opened(path: str) -> BinaryIO:
    """Open a file of bytes.

    Raises:
        InputError: it cannot be read.
    """
    try:
        return lines.opened(path)
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}).") from error


def filled_lines(file: BinaryIO, path: str) -> Iterator[bytes]:
    """Yield the lines from a file's position on, without blank ones; the position stays after the last of them."""
    return (line for line in lines.lines_of(file, path) if line.strip())


def row_of(line: bytes, path: str) -> Row:
    """Parse a line of JSON as a row.

    Raises:
        InputError: it is not a JSON object.
    """
    reason = ""
    try:
        row = parse_json(line)
        if isinstance(row, dict):
            return row
    except ValueError as error:
        reason = json_fault(error)
    raise InputError(
        f"{path} has a line that is not a JSON object{reason}: {line[:60].decode('utf-8', 'replace')!r}; give one "
        f"object per line, without an array around them."
    )


def of_csv(path: str) -> tuple[list[Block], list[str]]:
    """Return the rows of a CSV file in blocks, and the columns that its first line names (files/csv_rows.py).

    Raises:
        InputError: it cannot be read, is not in UTF-8, or a row has not as many cells as the first line.
    """

    def load(columns: Sequence[str], begin: int, count: int) -> list[Row]:
        with opened(path) as file:
            file.seek(begin)
            return [row for _, row in itertools.islice(named_rows(file, path, header), count)]

    with opened(path) as file:
        header = header_of(file, path)
        blocks: list[Block] = []
        while True:
            begin, first = file.tell(), len(blocks) * ROWS
            count = sum(1 for _ in itertools.islice(named_rows(file, path, header, first), ROWS))
            if not count:
                return blocks, header.names
            blocks.append(Block(count, path, first, functools.partial(load, begin=begin, count=count)))
