"""The bytes and lines of a source, decompressed, and the position of each: a build resumes at any position.

bz2, gz and zst are read as they are, of one stream or of many (Wikimedia's multistream dumps have one for 100 pages).
"""

import bz2
import hashlib
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

from polyagents.errors import InputError
from polyagents.files.lines import LONGEST, opened

CHUNK = 1 << 18  # bytes that are read at once


class Damaged(InputError):
    """The error for a source that ends in the middle, or has changed; its message says where, without a full stop."""


class EndsEarly(Damaged):
    """The error for a source of which only the end is missing."""


class Place(NamedTuple):
    """A position at which reading can start.

    Attributes:
        file: which of the source's files.
        stream: byte of the file at which a compressed stream begins.
        skip: decompressed bytes to skip from there.
    """

    file: int = 0
    stream: int = 0
    skip: int = 0

    def later(self, count: int) -> "Place":
        """Return the position this many decompressed bytes later."""
        return self._replace(skip=self.skip + count)


class Piece(NamedTuple):
    """Some decompressed bytes.

    Attributes:
        data: the bytes.
        place: the position of the first of them.
        offset: byte of the file up to which it has been read for them.
    """

    data: bytes
    place: Place
    offset: int


class Decompressor(Protocol):
    """The common interface of bz2, zlib and `Zstandard`."""

    @property
    def eof(self) -> bool:
        """Whether the stream has ended."""
        ...

    @property
    def unused_data(self) -> bytes:
        """The bytes that came after the end of the stream."""
        ...

    def decompress(self, data: bytes, /) -> bytes:
        """Return the next bytes."""
        ...


class Plain:
    """A file that is not compressed, as one stream without end."""

    eof = False
    unused_data = b""

    def decompress(self, data: bytes) -> bytes:
        """Return the same bytes."""
        return data


class Source:
    """Files that are read one after the other.

    Attributes:
        starts: byte of the whole source at which each file begins.
        size: bytes of all files, as they are on the disk.
        hashed: bytes of the source that the checksum covers so far.

    Raises:
        InputError: a file cannot be read.
    """

    def __init__(self, paths: Sequence[str]):
        self.paths = list(paths)
        self.starts, self.size = [], 0
        for path in self.paths:
            self.starts.append(self.size)
            try:
                with opened(path) as file:
                    self.size += os.fstat(file.fileno()).st_size
            except OSError as error:
                raise cannot_read(path, error) from error
        self.hashed = 0
        self._sha = hashlib.sha256()

    @property
    def sha256(self) -> str:
        """Return the checksum of the files' bytes, one file after the other, as far as they have been read."""
        return self._sha.hexdigest()

    def pieces(self, start: Place) -> Iterator[Piece]:
        """Yield the content of one file from a position on.

        Raises:
            Damaged: it ends in the middle of a stream, or a stream is damaged.
            InputError: it cannot be read.
        """
        path = self.paths[start.file]
        try:
            with open(path, "rb") as file:
                make = decompressor_of(file.read(4))
                file.seek(start.stream)
                yield from self._pieces(iter(lambda: file.read(CHUNK), b""), make, start)
        except OSError as error:
            raise cannot_read(path, error) from error

    def _pieces(self, blocks: Iterator[bytes], make: Callable[[], Decompressor], start: Place) -> Iterator[Piece]:
        place, skip, offset = start._replace(skip=0), start.skip, start.stream
        decompressor, began = make(), False
        for raw in blocks:
            self._hash(self.starts[start.file] + offset, raw)
            offset += len(raw)
            while raw:
                data = self._decompressed(decompressor, raw, start.file, offset)
                began = True
                if len(data) > skip:
                    yield Piece(data[skip:], place.later(skip), offset)
                place, skip = place.later(len(data)), max(skip - len(data), 0)
                raw = decompressor.unused_data
                if decompressor.eof:
                    place, skip = Place(start.file, offset - len(raw)), 0
                    decompressor, began = make(), False
        if began and not isinstance(decompressor, Plain):
            raise self.ends_early(start.file)

    def _decompressed(self, decompressor: Decompressor, raw: bytes, file: int, offset: int) -> bytes:
        try:
            return decompressor.decompress(raw)
        except (OSError, zlib.error) as error:
            raise self.damaged(Place(file), offset, str(error)) from error

    def damaged(self, place: Place, offset: int, why: str) -> Damaged:
        """Make the error for damaged content.

        Args:
            place: its position. Of a compressed file only the file is known: each block of 900,000 bytes has a
                checksum at its end.
            offset: byte of the file up to which it had been read.
        """
        path = self.paths[place.file]
        with open(path, "rb") as file:
            is_plain = decompressor_of(file.read(4)) is Plain
        where = f"at byte {place.stream + place.skip:,}" if is_plain else f"before byte {offset:,}"
        return Damaged(f"{path} is damaged {where} of {os.path.getsize(path):,} ({why})")

    def ends_early(self, file: int) -> EndsEarly:
        """Make the error for a missing end."""
        return EndsEarly(f"{self.paths[file]} ends in the middle, at byte {os.path.getsize(self.paths[file]):,}")

    def hash_up_to(self, end: int) -> Iterator[int]:
        """Continue the checksum without decompressing; yield how many bytes were read, now and then."""
        for path, start in zip(self.paths, self.starts, strict=True):
            try:
                with open(path, "rb") as file:
                    file.seek(max(self.hashed - start, 0))
                    while self.hashed < end and (raw := file.read(min(1 << 20, end - self.hashed))):
                        self._hash(self.hashed, raw)
                        yield len(raw)
            except OSError as error:
                raise cannot_read(path, error) from error

    def _hash(self, at: int, raw: bytes) -> None:
        fresh = raw[max(self.hashed - at, 0) :]
        self._sha.update(fresh)
        self.hashed += len(fresh)


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


def source_lines(source: Source, start: Place) -> Iterator[SourceLine]:
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


def decompressor_of(head: bytes) -> Callable[[], Decompressor]:
    """Return the decompressor for the first bytes of a file, whatever its name says."""
    if head.startswith(b"BZh"):
        return bz2.BZ2Decompressor
    if head.startswith(b"\x1f\x8b"):
        return lambda: zlib.decompressobj(wbits=31)  # 31: gzip's header and checksum
    if head.startswith(b"\x28\xb5\x2f\xfd"):
        from .zstandard import Zstandard  # a library that other files do not need

        return Zstandard
    return Plain


def cannot_read(path: str, error: OSError) -> InputError:
    """Make the error for a file that cannot be read."""
    return InputError(f"{path} cannot be read ({error.strerror or error}).")
