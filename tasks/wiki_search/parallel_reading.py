"""Parts from a source: pages are read in one process, and made into examples in several, in bounded memory."""

import contextlib
import multiprocessing
import os
import sys
import threading
from collections import Counter, deque
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field, replace
from multiprocessing.connection import wait
from typing import Any

from polyagents.console import Bar
from polyagents.errors import InputError

from ..streaming.source import Damaged, Place, Source
from .example import examples_of
from .page import Page
from .pages import pages_of
from .parts import PART_BYTES, Header, Part, write_part

BATCH_CHARACTERS = 500_000  # bytes of text for a worker at a time: a second or two of work
BATCH_PAGES = 1_000
AHEAD = 2  # batches that wait for each worker

Made = tuple[list[bytes], Counter[str]]
"""What `examples_of` makes of the pages of a batch."""


@dataclass
class Batch:
    """Some pages.

    Attributes:
        pages: in the order of the source.
        next: the position after them.
        read: bytes of the source that had been read by then.
        sha256: the checksum of these bytes.
    """

    pages: list[Page]
    next: Place
    read: int
    sha256: str


@dataclass
class PageReader:
    """Yields batches of a source, from a position on; `damage` is why they ended early."""

    source: Source
    start: Place
    damage: Damaged | None = None

    def batches(self) -> Iterator[Batch]:
        """Yield every page, once."""
        batch = Batch([], self.start, 0, "")
        size = 0
        try:
            for page, batch.next in pages_of(self.source, self.start):
                batch.pages.append(page)
                size += len(page.text)
                if batch.read != self.source.hashed:  # now: the next bytes may be the damaged ones
                    batch.read, batch.sha256 = self.source.hashed, self.source.sha256
                if size >= BATCH_CHARACTERS or len(batch.pages) >= BATCH_PAGES:
                    yield batch
                    batch, size = replace(batch, pages=[]), 0
        except Damaged as error:
            self.damage = error
        if batch.pages:
            yield batch


@dataclass
class Writer:
    """Collects examples until they are a part.

    Attributes:
        folder: the folder of the parts.
        options: the options in their headers.
        number: the number of the next part.
    """

    folder: str
    options: dict[str, Any]
    number: int
    lines: list[bytes] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    size: int = 0

    def add(self, made: Made, batch: Batch) -> Iterator[Part]:
        """Add one batch, and yield the part that it completes."""
        lines, counts = made
        self.lines += lines
        self.counts += counts
        self.size += sum(map(len, lines))
        if self.size >= PART_BYTES:
            yield self.write(batch.next, batch.read, batch.sha256, is_last=False)

    def write(self, next: Place, read: int, sha256: str, is_last: bool) -> Part:
        """Write the collected examples as a part."""
        header = Header(self.options, next, read, sha256, dict(self.counts), is_last)
        part = write_part(self.folder, self.number, header, self.lines)
        self.number, self.lines, self.counts, self.size = self.number + 1, [], Counter(), 0
        return part


def read_on(source: Source, parts: list[Part], folder: str, options: dict[str, Any], workers: int) -> Iterator[Part]:
    """Yield the parts that are still missing.

    Args:
        options: the options in their headers; `seed` is one of them.

    Raises:
        Damaged: the source cannot be read to its end; what could be read is a part.
    """
    last = parts[-1].header if parts else None
    if last is not None and last.is_last:
        return
    reader = PageReader(source, last.next if last else Place())
    writer = Writer(folder, options, len(parts))
    batch = Batch([], reader.start, last.read if last else 0, last.sha256 if last else "")
    bytes_read = Bar(total=source.size, initial=batch.read, unit="B", unit_scale=True, desc="Reading articles", delay=2)
    with contextlib.closing(in_order(reader.batches(), options["seed"], workers)) as every, bytes_read as bar:
        for batch, made in every:
            yield from writer.add(made, batch)
            bar.update(batch.read - bar.n)
            bar.set_postfix_str(f"{batch.pages[-1].title[:30]}", refresh=False)
    if reader.damage is None or writer.lines:
        is_last = reader.damage is None
        read, sha256 = (source.size, source.sha256) if is_last else (batch.read, batch.sha256)
        yield writer.write(batch.next, read, sha256, is_last)
    if reader.damage is not None:
        raise reader.damage


def in_order(batches: Iterator[Batch], seed: int, workers: int) -> Generator[tuple[Batch, Made], None, None]:
    """Yield batches and their examples in the order of the source; with one worker, this process makes them.

    Raises:
        InputError: a worker was killed.
    """
    if workers == 1:
        yield from ((batch, examples_of(batch.pages, seed)) for batch in batches)
        return
    # A forked process shares the libraries that are in memory, and starts at once; elsewhere forking is not safe.
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    waiting: deque[tuple[Batch, Future[Made]]] = deque()
    with ProcessPoolExecutor(workers, mp_context=context, initializer=end_with_parent) as pool:
        try:
            for batch in batches:
                waiting.append((batch, pool.submit(examples_of, batch.pages, seed)))
                if len(waiting) > workers * AHEAD:
                    first, made = waiting.popleft()
                    yield first, made.result()
            for first, made in waiting:
                yield first, made.result()
        except BrokenProcessPool as error:
            raise InputError(
                "A worker process was killed, as happens when memory is full; the same command resumes after the last "
                "finished part, with fewer --workers if necessary."
            ) from error


def end_with_parent() -> None:
    """End a worker when the build is killed; the queue at which it waits would never say so."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
