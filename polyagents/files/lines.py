"""Lines of files and streams from users: bounded, in UTF-8, with or without a byte order mark."""

import codecs
import errno
import os
import re
import stat
from collections.abc import Iterator
from typing import BinaryIO

from polyagents.errors import InputError

LONGEST = 16 * 2**20  # bytes of a line, a cell or a record. Chosen here: a thousand times the longest dialogues

# The beginnings of files that are not text, and what they are.
NO_TEXTS = {
    re.compile(rb"\x1f\x8b|BZh[1-9]1AY&SY|\x28\xb5\x2f\xfd|\xfd7zXZ"): "is compressed; decompress it first",
    re.compile(rb"PK\x03\x04"): "is a zip archive, such as an Excel workbook; save the sheet as CSV in UTF-8",
    re.compile(rb"\xd0\xcf\x11\xe0"): "is an old Office document, such as an Excel workbook; save it as CSV in UTF-8",
    re.compile(rb"PAR1"): "is a Parquet file; give it a name that ends in .parquet",
    re.compile(rb"\xff\xfe|\xfe\xff"): "is not in UTF-8, but in UTF-16; save it as UTF-8",
}


def opened(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a file; an OSError says if it cannot be read, or is a pipe or a device, which may never answer or end."""
    if not stat.S_ISREG(os.stat(path).st_mode) and not os.path.isdir(path):
        raise OSError(errno.ESPIPE, "it is a pipe or a device, not a file", os.fspath(path))
    return open(path, "rb")


def without_mark(file: BinaryIO) -> BinaryIO:
    """Return a file that was just opened, at its beginning or behind its byte order mark."""
    if file.read(len(codecs.BOM_UTF8)) != codecs.BOM_UTF8:
        file.seek(0)
    return file


def lines_of(file: BinaryIO, name: str, longest: int = LONGEST, is_typed: bool = False) -> Iterator[bytes]:
    r"""Yield the lines from the file's position on, each with its "\n"; no other character ends a line.

    The position stays after the line that was yielded last. A byte order mark at the beginning of a file is not part of
    its first line; a file that cannot tell its position counts as at its beginning.

    Args:
        name: the file's name in error sentences.
        longest: bytes of a line.
        is_typed: whether a carriage return may be part of a text, rather than another system's end of a line.

    Raises:
        InputError: the file is not text, but compressed, say; or a line is longer, such as a file without line ends; no
            more than `longest` bytes are read of it.
    """
    at_start = not file.seekable() or file.tell() == 0
    while line := file.readline(longest + 1):
        if at_start and (what := next((what for head, what in NO_TEXTS.items() if head.match(line)), None)):
            raise InputError(f"{name} {what}.")
        if at_start and not is_typed and b"\r" in line.rstrip(b"\r\n") and not line.endswith(b"\n"):
            raise InputError(f"{name} has carriage returns, and no line feed; save it with line feeds as line ends.")
        if len(line) > longest:
            raise InputError(
                f"{name} has a line of more than {longest:,} bytes ({line[:30]!r}...); divide it, or give another file."
            )
        yield line.removeprefix(codecs.BOM_UTF8) if at_start else line
        at_start = False


def text_lines(file: BinaryIO, name: str, keep_ends: bool = False) -> Iterator[str]:
    r"""Yield the same lines as texts; `keep_ends` keeps their "\n" or "\r\n".

    Raises:
        InputError: as `lines_of`; or a line is not in UTF-8.
    """
    for line in lines_of(file, name):
        try:
            yield (line if keep_ends else line.removesuffix(b"\n").removesuffix(b"\r")).decode("utf-8")
        except UnicodeDecodeError as error:
            raise InputError(f"{name} is not in UTF-8 ({line[:40]!r}); save it as UTF-8.") from error
