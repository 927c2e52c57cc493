"""Reads CSV files row by row, without Python's limit for the length of a cell, which holds for a whole process."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import BinaryIO, NamedTuple

from polyagents.console import number_of
from polyagents.errors import InputError
from polyagents.files.lines import LONGEST, lines_of, text_lines


def check_names(names: Sequence[str], where: str) -> None:
    """Refuse, with an InputError, a header that names two columns alike; columns without a name do not count."""
    if twice := [name for name, times in Counter(names).items() if name and times > 1]:
        raise InputError(f"{where} has more than one column {twice[0]!r}; give each a name of its own.")


class NotCsv(Exception):
    """A row cannot be divided into cells."""


class Header(NamedTuple):
    """The names of the columns of a table, and what divides its cells."""

    names: list[str]
    delimiter: str


def header_of(file: BinaryIO, name: str) -> Header:
    """Read the first row of a file at its beginning.

    Cells are divided by tabs in a .tsv file, else by the first comma, semicolon or tab of the first line that is not
    between quotes, since spreadsheets write semicolons in many countries. A line before it, such as `sep=;`, is
    Excel's, and decides.

    Args:
        name: the file's name, also in error sentences.

    Raises:
        InputError: as `rows_of`.
    """
    head = next((line for line in lines_of(file, name) if line.strip()), b"")
    if named := re.fullmatch(rb'"?sep=([,;\t|])"?\r?\n', head):
        delimiter = named[1].decode()
    else:
        found = re.search(rb"[,;\t]", re.sub(rb'"[^"]*"', b"", head))
        delimiter = "\t" if name.lower().endswith(".tsv") else found[0].decode() if found else ","
        file.seek(0)
    return Header(next(rows_of(file, name, delimiter), []), delimiter)


def named_rows(file: BinaryIO, name: str, header: Header, before: int = 0) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the rows after the header as cells by column, each with its name in a sentence; otherwise as `rows_of`.

    Args:
        before: how many rows are before the file's position.

    Raises:
        InputError: as `rows_of`; or a row has not as many cells as the header.
    """
    for number, row in enumerate(rows_of(file, name, header.delimiter), before + 1):
        where = f"Row {number:,} of {name}"
        if len(row) != len(header.names):
            raise InputError(
                f"{where} has {number_of(len(row), 'cell')}, and the first line {len(header.names)}; put texts with "
                f"commas, quotes or line ends between double quotes."
            )
        yield where, dict(zip(header.names, row, strict=True))


def rows_of(file: BinaryIO, name: str, delimiter: str = ",") -> Iterator[list[str]]:
    """Yield the rows from the file's position on, without blank lines; the position stays after the row yielded last.

    A cell that begins with a double quote ends at the next single one, and may hold delimiters and line ends; within
    other cells a quote is a character like any other. Python's reader agrees, but for the length of cells.

    Args:
        name: the file's name in error sentences.

    Raises:
        InputError: as `text_lines`; or a row is not CSV, or longer than a line may be.
    """
    lines = text_lines(file, name, keep_ends=True)
    for line in lines:
        if line.strip("\r\n"):
            try:
                yield row_of(line, lines, delimiter)
            except NotCsv as error:
                raise InputError(
                    f"{name} is not valid CSV in the row that begins with {line[:60]!r}: {error}."
                ) from error


def row_of(line: str, lines: Iterator[str], delimiter: str) -> list[str]:
    """Divide a row into its cells, given its first line and the `lines` after it, of which a quoted cell may take some.

    Raises:
        NotCsv: a quote is not closed, is followed by text, or a carriage return stands alone.
    """
    cells, place, size = [], 0, 0
    while True:
        if line.startswith('"', place):
            parts, place = [], place + 1
            while True:
                end = line.find('"', place)
                if end < 0:
                    parts.append(line[place:])
                    size += len(line)
                    line, place = next(lines, ""), 0
                    if not line or size > LONGEST:
                        raise NotCsv(f"a quote is not closed within {size:,} characters")
                else:
                    parts.append(line[place:end])
                    place = end + 1
                    if not line.startswith('"', place):
                        break
                    parts.append('"')  # written twice
                    place += 1
            cells.append("".join(parts))
            if not line.startswith(delimiter, place):
                if line[place:].strip("\r\n"):
                    raise NotCsv(f"a closed quote is followed by {line[place : place + 10]!r}")
                return cells
            place += 1
        else:
            end = line.find(delimiter, place)
            cell = line[place:end] if end >= 0 else line[place:].rstrip("\r\n")
            if "\r" in cell or "\n" in cell:
                raise NotCsv("a carriage return stands alone; end lines with a line feed")
            cells.append(cell)
            if end < 0:
                return cells
            place = end + 1
