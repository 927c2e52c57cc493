"""The rows of files, one block at a time: Arrow files of `datasets`, row groups of parquet, JSON lines, CSV.

Opening them counts rows. Arrow and parquet files know their own counts; JSON lines and CSV are read through once.
"""

import csv
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from polyagents.errors import InputError, first_line
from polyagents.files.json_files import parse_json

from .order import Spot

if TYPE_CHECKING:
    from datasets import Dataset

ROWS = 10_000  # rows of a block of lines or of an Arrow file, which is in memory and shuffled as a unit
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
        count: the number of rows.
        path: the file, for error messages.
        first: the number of rows before them in the file.
        load: reads the given columns of the rows.
        chosen: which of the rows that are read there belong to the split; None for all.
    """

    count: int
    path: str
    first: int
    load: Callable[[Sequence[str]], list[Row]]
    chosen: Sequence[int] | None = None

    def rows(self, columns: Sequence[str]) -> list[Row]:
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
    """The examples of a split, with one block in memory (`streaming.order.Examples`)."""

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

    def _load(self, number: int) -> list[Row]:
        return self.blocks[number].rows(self.columns.names)


# ---- the kinds of files ----------------------------------------------------------------------------------------


def of_saved(dataset: "Dataset", where: str) -> tuple[list[Block], list[str]]:
    """Return the blocks and columns of a data set that `datasets.load_from_disk` has opened.

    Args:
        dataset: the data set.
        where: its name in error messages.
    """

    def load(columns: Sequence[str], start: int, stop: int) -> list[Row]:
        cells = dataset.select_columns(list(columns))[start:stop]
        return [dict(zip(cells, values, strict=True)) for values in zip(*cells.values(), strict=True)]

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

    try:
        file = parquet.ParquetFile(path)
    except (OSError, pyarrow.ArrowException) as error:
        raise InputError(f"{path} cannot be read as a parquet file ({first_line(error)}).") from error

    def load(columns: Sequence[str], group: int) -> list[Row]:
        try:
            rows: list[Row] = file.read_row_group(group, columns=list(columns)).to_pylist()
        except (OSError, pyarrow.ArrowException) as error:
            raise InputError(f"{path} is damaged ({first_line(error)}).") from error
        return rows

    blocks, first = [], 0
    for group in range(file.num_row_groups):
        count = file.metadata.row_group(group).num_rows
        if count:
            blocks.append(Block(count, path, first, functools.partial(load, group=group)))
        first += count
    return blocks, list(file.schema_arrow.names)


def of_json_lines(path: str) -> tuple[list[Block], list[str]]:
    """Return the lines of a file in blocks, and the columns of the first line.

    Raises:
        InputError: it cannot be read, or its first line is not a JSON object.
    """

    def load(columns: Sequence[str], begin: int, count: int) -> list[Row]:
        with opened(path) as file:
            file.seek(begin)
            return [row_of(line, path) for line in itertools.islice(lines_of(file), count)]

    blocks: list[Block] = []
    with opened(path) as file:
        first = next(lines_of(file), None)
        names = list(row_of(first, path)) if first is not None else []
        file.seek(0)
        while True:
            begin, count = file.tell(), sum(1 for _ in itertools.islice(lines_of(file), ROWS))
            if not count:
                return blocks, names
            blocks.append(Block(count, path, len(blocks) * ROWS, functools.partial(load, begin=begin, count=count)))


def opened(path: str) -> Any:
    """Open a file of bytes.

    Raises:
        InputError: it cannot be read.
    """
    try:
        return open(path, "rb")
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}).") from error


def lines_of(file: Any) -> Iterator[bytes]:
    """Yield the lines from a file's position on, without blank ones; the position stays after the last of them."""
    while line := file.readline():
        if line.strip():
            yield line


def row_of(line: bytes, path: str) -> Row:
    """Parse a line of JSON as a row.

    Args:
        line: the line.
        path: the file, for error messages.

    Raises:
        InputError: it is not a JSON object.
    """
    try:
        row = parse_json(line)
        if isinstance(row, dict):
            return row
    except ValueError:
        pass
    raise InputError(f"{path} has a line that is not a JSON object: {line[:60].decode('utf-8', 'replace')!r}.")


def of_csv(path: str) -> tuple[list[Block], list[str]]:
    """Return the rows of a CSV file in blocks, and the columns that its first line names.

    Cells are divided by tabs in a .tsv file, else by commas, or by semicolons where the first line has no comma, as
    spreadsheets write them in many countries.

    Raises:
        InputError: it cannot be read, is not in UTF-8, or a row has not as many cells as the first line.
    """

    def load(columns: Sequence[str], begin: int, count: int, before: int) -> list[Row]:
        with opened(path) as file:
            file.seek(begin)
            rows = itertools.islice(cells_of(file, path, delimiter, before), count)
            return [dict(zip(names, row, strict=True)) for row in rows]

    with opened(path) as file:
        delimiter = delimiter_of(path, file.readline())
        file.seek(0)
        names = next(cells_of(file, path, delimiter, 0), [])
        blocks: list[Block] = []
        while True:
            begin, count = file.tell(), 0
            first = len(blocks) * ROWS
            for row in itertools.islice(cells_of(file, path, delimiter, first + 1), ROWS):
                count += 1
                if len(row) != len(names):
                    raise InputError(
                        f"Row {first + count:,} of {path} has {len(row)} cells, and the first line {len(names)}; put "
                        f"texts with commas, quotes or line ends between double quotes."
                    )
            if not count:
                return blocks, names
            blocks.append(
                Block(count, path, first, functools.partial(load, begin=begin, count=count, before=first + 1))
            )


def delimiter_of(path: str, line: bytes) -> str:
    """Return what separates the cells of a file.

    Args:
        path: the file, whose name may tell.
        line: its first line.
    """
    if path.lower().endswith(".tsv"):
        return "\t"
    return ";" if b"," not in line and b";" in line else ","


def cells_of(file: Any, path: str, delimiter: str, before: int) -> Iterator[list[str]]:
    """Yield the rows from a file's position on, without blank ones; the position stays after the last of them.

    Args:
        file: a file of bytes.
        path: its name in error messages.
        delimiter: separates cells.
        before: the number of rows before the position, for error messages.

    Raises:
        InputError: it is not in UTF-8, or no CSV.
    """

    def decoded() -> Iterator[str]:
        while line := file.readline():
            try:
                yield line.decode("utf-8-sig" if file.tell() == len(line) else "utf-8")
            except UnicodeDecodeError as error:
                raise InputError(
                    f"{path} is not in UTF-8 ({line[:40]!r}); save it as CSV in UTF-8, which spreadsheets offer."
                ) from error

    number = before
    try:
        for row in csv.reader(decoded(), delimiter=delimiter, strict=True):
            if row:
                number += 1
                yield row
    except csv.Error as error:
        raise InputError(f"Row {number:,} of {path} or the one after it is no CSV ({error}).") from error
