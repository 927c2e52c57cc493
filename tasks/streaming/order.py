"""The order of the training examples: shuffled anew in every epoch, and known for any place of an endless stream.

The n-th example follows from the seed and n alone, so a stream resumes anywhere. An epoch reads the shards in random
order and each shard in random order; the examples are in shards by a hash, so that a shard is a random sample itself.
Of `random.Random` only `random()` is used: the one method whose sequence Python promises to keep.
"""

import bisect
import functools
import itertools
from collections.abc import Sequence
from random import Random
from typing import Any, NamedTuple, Protocol

from polyagents.console import number_of
from polyagents.files.json_files import parse_json

from .data_manifest import damaged


class Spot(NamedTuple):
    """The position of an example: its shard and its index there."""

    shard: int
    row: int


class Order:
    """Shuffles shards of known sizes."""

    def __init__(self, sizes: Sequence[int], seed: int):
        self.sizes = list(sizes)
        self.total = sum(sizes)
        self.seed = seed
        self._ends = list(itertools.accumulate(self.sizes))
        self._shards = functools.lru_cache(maxsize=2)(self._shuffled_shards)
        self._rows = functools.lru_cache(maxsize=2)(self._shuffled_rows)

    def spot(self, place: int) -> Spot:
        """Return the position of an example of the endless stream, which has every example once in each epoch."""
        epoch, place = divmod(place, self.total)
        shards, ends = self._shards(epoch)
        which = bisect.bisect_right(ends, place)
        shard = shards[which]
        return Spot(shard, self._rows(epoch, shard)[place - (ends[which] - self.sizes[shard])])

    def as_written(self, place: int) -> Spot:
        """Return the position of an example in the order of the files."""
        shard = bisect.bisect_right(self._ends, place)
        return Spot(shard, place - (self._ends[shard] - self.sizes[shard]))

    def _shuffled_shards(self, epoch: int) -> tuple[list[int], list[int]]:
        shards = shuffled(len(self.sizes), f"{self.seed} {epoch}")
        return shards, list(itertools.accumulate(self.sizes[shard] for shard in shards))

    def _shuffled_rows(self, epoch: int, shard: int) -> list[int]:
        return shuffled(self.sizes[shard], f"{self.seed} {epoch} {shard}")


def shuffled(count: int, seed: str) -> list[int]:
    """Return 0 to count - 1 in random order."""
    rng = Random(seed)
    return sorted(range(count), key=lambda _: rng.random())


def some_others(count: int, wanted: int, but: int, seed: str) -> list[int]:
    """Return different numbers below `count`, without one of them; all others if there are not enough."""
    if count - 1 <= wanted:
        return [number for number in range(count) if number != but]
    rng, found = Random(seed), dict[int, None]()
    while len(found) < wanted:
        number = int(rng.random() * count)
        if number != but:
            found[number] = None
    return list(found)


class ShardedExamples(Protocol):
    """The examples of a split, in shards."""

    @property
    def sizes(self) -> list[int]:
        """The number of examples of each shard."""
        ...

    def example(self, spot: Spot) -> dict[str, Any]:
        """Return the fields of an example, as the teacher knows them."""
        ...


class Shards:
    """The examples of a split, with one file in memory.

    Attributes:
        files: path and number of examples of each.
    """

    def __init__(self, files: Sequence[tuple[str, int]]):
        self.files = list(files)
        self._loaded = functools.lru_cache(maxsize=1)(self._load)

    @property
    def sizes(self) -> list[int]:
        """The number of examples of each file."""
        return [count for _, count in self.files]

    def example(self, spot: Spot) -> dict[str, Any]:
        """Return the fields of an example, `text` and `label` among them.

        Raises:
            InputError: the file is missing, or not as long as the manifest says.
        """
        line = self._loaded(spot.shard)[spot.row]
        try:
            found: Any = parse_json(line)
            if isinstance(found, dict) and isinstance(found.get("text"), str) and isinstance(found.get("label"), str):
                return found
        except ValueError:
            pass
        path, _ = self.files[spot.shard]
        raise damaged(path, f"has a line {spot.row + 1:,} that is not an example")

    def _load(self, shard: int) -> list[bytes]:
        path, count = self.files[shard]
        try:
            with open(path, "rb") as file:
                lines = file.readlines()
        except OSError as error:
            raise damaged(path, f"cannot be read ({error.strerror})") from error
        if len(lines) != count:
            raise damaged(path, f"has {number_of(len(lines), 'example')} instead of {count:,}")
        return lines
