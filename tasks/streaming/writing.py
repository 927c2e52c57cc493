"""Writing a stream of lines to files, each atomically."""

import itertools
import os
from collections.abc import Callable, Iterable, Iterator

from tqdm import tqdm

from polyagents.files.atomic import atomic_write


def watched(lines: Iterable[bytes], bar: tqdm) -> Iterator[bytes]:
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
