"""The splits from the parts: train, valid, test and the pool, by the articles' keys alone.

The keys are hashes. In their order, the first articles are valid, the next ones test, the next ones the pool, and the
rest is train, in shards: whatever the order of the source was, each of these is a random sample in a random order, and
no article is in two of them.
"""

import functools
import heapq
import json
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from polyagents.console import Bar
from polyagents.files.hashing import utf8

from ..streaming import data_manifest
from ..streaming.runs import watched, write_lines, write_shards
from .parts import Part

POOL = "pool.txt"
FORMAT = 1  # of the data and of the rules by which they are made
SHARD = 8_192  # examples of a shard of the training set, which a teacher has in memory: about 30 MB
SMALLEST = 10  # articles, enough for a train, a valid and a test split
QUIET = 100_000  # articles that are split in some seconds


@dataclass(frozen=True)
class Sizes:
    """How many articles are held out; the others are for training."""

    valid: int
    test: int
    pool: int

    def within(self, articles: int) -> "Sizes":
        """Reduce the paper's numbers if articles are few: a tenth each for valid and test, 3 tenths for the pool.

        Numbers that the user gave stay as they are.
        """
        tenth = articles // 10
        pairs = ((self.valid, PAPER.valid, tenth), (self.test, PAPER.test, tenth), (self.pool, PAPER.pool, 3 * tenth))
        return Sizes(*(min(wanted, most) if wanted == paper else wanted for wanted, paper, most in pairs))

    @property
    def all(self) -> int:
        """The number of articles that are not trained on."""
        return self.valid + self.test + self.pool


PAPER = Sizes(9_921, 9_925, 10_000)  # section 3 and Table 1


@dataclass(frozen=True)
class WikiSplit:
    """What was written.

    Attributes:
        sizes: how many articles are held out.
        shards: file name and number of examples of each shard of the training set.
        repeated: articles that the source has more than once; one of each was taken.
    """

    sizes: Sizes
    shards: list[tuple[str, int]]
    repeated: int


def split(parts: Sequence[Part], articles: int, sizes: Sizes, folder: str) -> WikiSplit:
    """Write all splits into a folder.

    Raises:
        InputError: the disk is full, or not writable.
    """
    for name in os.listdir(folder):
        if name.endswith((".jsonl", ".tmp")):
            os.remove(os.path.join(folder, name))
    merged = distinct(parts)
    with Bar(total=articles, unit=" articles", desc="Splitting", disable=articles < QUIET) as bar:
        lines = watched(merged, bar)
        write = functools.partial(write_lines, folder, lines)
        valid = write("valid.jsonl", sizes.valid)
        test = write("test.jsonl", sizes.test)
        pool = write(POOL, sizes.pool, candidate)
        train = articles - valid - test - pool
        # Shards of equal size, since negatives come from the same one.
        shards = write_shards(folder, lines, math.ceil(train / max(math.ceil(train / SHARD), 1)))
    return WikiSplit(Sizes(valid, test, pool), shards, merged.repeated)


def count_articles(parts: Sequence[Part], lines: int) -> int:
    """Count the articles of all parts, which have so many lines; one that is there twice is one."""
    with Bar(total=lines, unit=" articles", desc="Counting", disable=lines < QUIET) as bar:
        return sum(1 for _ in watched(distinct(parts), bar))


def distinct(parts: Sequence[Part]) -> "Distinct":
    """Return the examples of all parts, in the order of their keys."""
    return Distinct(heapq.merge(*(part.lines() for part in parts)))


class Distinct(Iterator[bytes]):
    """The examples of lines in the order of their keys, without the keys and without repetitions."""

    def __init__(self, lines: Iterable[bytes]):
        self.lines = iter(lines)
        self.repeated = 0
        self.last = b""

    def __next__(self) -> bytes:
        for line in self.lines:
            key, _, example = line.partition(b"\t")
            if key != self.last:
                self.last = key
                return example
            self.repeated += 1
        raise StopIteration


def candidate(line: bytes) -> bytes:
    """Return the label of an example as a line of a candidates file: its only white space is single spaces."""
    return utf8(json.loads(line)["label"]) + b"\n"


def read_manifest(folder: str) -> dict[str, Any]:
    """Read the manifest of finished data.

    Raises:
        InputError: there is none, or it is damaged.
    """
    missing = (
        "There are no data for Wikipedia search in {folder} (manifest.json: {reason}); make them with polyagents "
        "build_wiki_search --source DUMP --outdir {folder}, or give --wiki-search-path."
    )
    return data_manifest.read_manifest(folder, FORMAT, "seed", missing)
