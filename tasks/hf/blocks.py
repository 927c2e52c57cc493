"""The rows of files, a block at a time: Arrow files of `datasets`, row groups of parquet, JSON lines.

Opening them counts rows. Arrow and parquet files know their own counts; JSON lines are gone through once.
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

ROWS = 10_000  # of a block of JSON lines or of an Arrow file: what is in memory, and what is shuffled as one
Row = dict[str, Any]


@dataclass(frozen=True)
class Block:
    """Some rows.

    Attributes:
        count: how many.
        path: where they are, for a sentence.
        first: how many rows are before them there.
        load: reads them; it is given the columns that are wanted.
    """

    count: int
    path: str
    first: int
    load: Callable[[Sequence[str]], list[Row]]


class Table:
    """The examples of a split, of which one block is in memory (`streaming.order.Examples`)."""

    def __init__(self, blocks: Sequence[Block], columns: Columns):
        self.blocks, self.columns = list(blocks), columns
        self._loaded = functools.lru_cache(maxsize=1)(self._load)

    @property
    def sizes(self) -> list[int]:
        """Number of rows of each block."""
        return [block.count for block in self.blocks]

    def example(self, spot: Spot) -> dict[str, Any]:
        """Its `text`, `labels` and `negatives`.

        Raises:
            InputError: the row holds something else than texts, or the file has changed.
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
    """The blocks of a data set that `datasets.load_from_disk` has opened, and its columns."""

    def load(columns: Sequence[str], start: int, stop: int) -> list[Row]:
        cells = dataset.select_columns(list(columns))[start:stop]
        return [dict(zip(cells, values, strict=True)) for values in zip(*cells.values(), strict=True)]

    blocks = []
    for start in range(0, len(dataset), ROWS):
        stop = min(start + ROWS, len(dataset))
        blocks.append(Block(stop - start, where, start, functools.partial(load, start=start, stop=stop)))
    return blocks, dataset.column_names


def of_parquet(path: str) -> tuple[list[Block], list[str]]:
    """The row groups of a parquet file, and its columns.

    Raises:
        InputError: it is none.
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
    """The lines of a file in blocks, and the columns that the first of them has.

    Raises:
        InputError: it cannot be read, or its first line is no JSON object.
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
    """A file of bytes.

    Raises:
        InputError: it cannot be read.
    """
    try:
        return open(path, "rb")
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}).") from error


def lines_of(file: Any) -> Iterator[bytes]:
    """The lines from where a file stands, blank ones left out; its place stays the one after the last of them."""
    while line := file.readline():
        if line.strip():
            yield line


def row_of(line: bytes, path: str) -> Row:
    """A line of JSON as a row.

    Raises:
        InputError: it is none.
    """
    try:
        row = parse_json(line)
        if isinstance(row, dict):
            return row
    except ValueError:
        pass
    raise InputError(f"{path} has a line that is no JSON object: {line[:60].decode('utf-8', 'replace')!r}.")
