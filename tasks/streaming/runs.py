"""Sorting more lines than memory holds: sorted runs on the disk, merged, and written to files."""

import contextlib
import heapq
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence

from polyagents.console import Bar
from polyagents.files.atomic import atomic_write

RUN_BYTES = 64_000_000  # bytes of lines that are sorted in memory
OPEN = 200  # files that are merged at once; a process may have 256 open on some systems


class Runs:
    """Collects lines and writes them as sorted runs.

    Attributes:
        prefix: the beginning of their file names, with the folder.
        names: the names of the files that are written.
    """

    def __init__(self, prefix: str):
        self.prefix = prefix
        self.names: list[str] = []
        self._lines: list[bytes] = []
        self._size = 0

    def add(self, line: bytes) -> None:
        """Add one line, with its line end.

        Raises:
            InputError: the disk is full, or not writable.
        """
        self._lines.append(line)
        self._size += len(line)
        if self._size >= RUN_BYTES:
            self.write()

    def write(self) -> None:
        """Write the collected lines; the last run may be short."""
        if self._lines:
            self._lines.sort()
            path = f"{self.prefix}-{len(self.names):06d}.run"
            with atomic_write(path) as temporary, open(temporary, "wb") as file:
                file.writelines(self._lines)
            self.names.append(os.path.basename(path))
            self._lines, self._size = [], 0


def merged(paths: Sequence[str], spare: str) -> Iterator[bytes]:
    """Yield the lines of sorted files, in order.

    Args:
        spare: the beginning of the names of temporary files, which are needed if there are many.
    """
    with contextlib.ExitStack() as stack:
        files, begun = list(paths), itertools.count()
        while len(files) > OPEN:
            first, files = files[:OPEN], files[OPEN:]
            files.append(stack.enter_context(together(first, f"{spare}-{next(begun):06d}.run")))
        opened = [stack.enter_context(open(path, "rb")) for path in files]
        yield from heapq.merge(*opened)


@contextlib.contextmanager
def together(paths: Sequence[str], path: str) -> Iterator[str]:
    """Merge several sorted files into a temporary one."""
    with contextlib.ExitStack() as stack, atomic_write(path) as temporary, open(temporary, "wb") as file:
        file.writelines(heapq.merge(*(stack.enter_context(open(one, "rb")) for one in paths)))
    try:
        yield path
    finally:
        os.remove(path)


def watched(lines: Iterable[bytes], bar: Bar) -> Iterator[bytes]:
    """Yield the same lines, with progress."""
    for line in lines:
        yield line
        bar.update()


def write_lines(
    folder: str, lines: Iterator[bytes], name: str, count: int, change: Callable[[bytes], bytes] = bytes
) -> int:
    """Write the next lines into a file.

    Returns:
        The number of lines that were written.
    """
    written = 0
    with atomic_write(os.path.join(folder, name)) as temporary, open(temporary, "wb") as file:
        for line in itertools.islice(lines, count):
            file.write(change(line))
            written += 1
    return written


def write_shards(folder: str, lines: Iterator[bytes], size: int) -> list[tuple[str, int]]:
    """Write training examples into files of `size` lines; return the name and the number of lines of each."""
    shards: list[tuple[str, int]] = []
    for first in lines:
        name = f"train-{len(shards):05d}.jsonl"
        shards.append((name, write_lines(folder, itertools.chain([first], lines), name, size)))
    return shards
