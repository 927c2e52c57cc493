"""The lines of a source, each with the position after it."""

from collections.abc import Iterator
from typing import NamedTuple

from polyagents.files.lines import LONGEST

from .source import Place, Source


class SourceLine(NamedTuple):
    """A line, without its end.

    Attributes:
        data: its bytes.
        begin: the position of the first of them.
        after: the position after it.
        offset: byte of the file up to which it has been read.
    """

    data: bytes
    begin: Place
    after: Place
    offset: int


def lines(source: Source, start: Place) -> Iterator[SourceLine]:
    """Yield the lines of one file from a position on, empty ones included.

    Raises:
        Damaged: a line is too long to be one.
    """
    parts: list[bytes] = []  # of a line that has not ended yet
    begin, after, offset = start, start, 0
    for piece in source.pieces(start):
        *ended, last = piece.data.split(b"\n")
        begin, after, offset = begin if parts else piece.place, piece.place, piece.offset
        for end in ended:
            data, parts = b"".join([*parts, end]), []
            after = after.later(len(end) + 1)
            yield SourceLine(data, begin, after, offset)
            begin = after
        parts += [last] if last else []
        if sum(map(len, parts)) > LONGEST:
            raise source.damaged(begin, offset, f"a line of more than {LONGEST:,} bytes")
        after = after.later(len(last))
    if parts:
        yield SourceLine(b"".join(parts), begin, after, offset)
