"""The rows of files, one block at a time: Arrow files of `datasets`, row groups of parquet, JSON lines.

Opening them counts rows. Arrow and parquet files know their own counts; JSON lines are read through once.
"""

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from polyagents.errors import InputError, first_line
from polyagents.files.json_files import parse_json

from ..streaming.order import Spot
from .columns import Columns

if TYPE_CHECKING:
    from datasets import Dataset

ROWS = 10_000  # rows of a block of JSON lines or of an Arrow file, which is in memory and shuffled as a unit
Row = dict[str, Any]


@dataclass(frozen=True)
class Block:
    """Some consecutive rows.

    Attributes:
        count: the number of rows.
        path: the file, for error messages.
        first: the number of rows before them in the file.
        load: reads the given columns of the rows.
    """

    count: int
    path: str
    first: int
    load: Callable[[Sequence[str]], list[Row]]


class Table:
    """The examples of a split, with one block in memory (`streaming.order.Examples`)."""

    def __init__(self, blocks: Sequence[Block], columns: Columns):
        self.blocks, self.columns = list(blocks), columns
        self._loaded = functools.lru_cache(maxsize=1)(self._load)

    @property
    def sizes(self) -> list[int]:
        """The number of rows of each block."""
        return [block.count for block in self.blocks]

    def example(self, spot: Spot) -> dict[str, Any]:
        """Return `text`, `labels` and `negatives` of an example.

        Raises:
            InputError: the row holds something other than texts, or the file has changed.
        """
        row, block = self._loaded(spot.shard)[spot.row], self.blocks[spot.shard]
        return self.columns.example(row, f"Row {block.first + spot.row + 1:,} of {block.path}")

    def _load(self, number: int) -> list[Row]:
        block = self.blocks[number]
        rows = block.load(self.columns.names)
        if len(rows) != block.count:
            raise InputError(f"{block.path} has changed since it was opened; start again.")
        return rows


# ---- the three kinds of files ----------------------------------------------------------------------------------------


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
        InputError: it is none.
    """
    try:
        row = parse_json(line)
        if isinstance(row, dict):
            return row
    except ValueError:
        pass
    raise InputError(f"{path} has a line that is not a JSON object: {line[:60].decode('utf-8', 'replace')!r}.")
