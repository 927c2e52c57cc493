"""The choice of held-out threads: whole ones, those with the smallest keys, until there are enough pairs."""

import heapq
from dataclasses import dataclass


class HeldOut:
    """Collects the threads with the smallest keys, in memory that depends on `wanted` alone.

    The keys are hashes, so the held-out threads are a random sample, which does not depend on the order of the pairs.
    """

    def __init__(self, wanted: int):
        self.wanted = wanted
        self.total = 0  # pairs that were seen
        self._kept = 0
        self._sizes: dict[bytes, int] = {}
        self._largest: list[tuple[int, bytes]] = []  # a heap

    def add(self, thread: bytes) -> None:
        """Count one more pair of a thread."""
        self.total += 1
        if thread in self._sizes:
            self._sizes[thread] += 1
        elif self._is_enough() and -self._largest[0][0] < int(thread, 16):
            return
        else:
            self._sizes[thread] = 1
            heapq.heappush(self._largest, (-int(thread, 16), thread))
        self._kept += 1
        while len(self._sizes) > 2 and self._kept - self._sizes[self._largest[0][1]] >= self.wanted:
            self._kept -= self._sizes.pop(heapq.heappop(self._largest)[1])

    def _is_enough(self) -> bool:
        return self._kept >= self.wanted and len(self._sizes) >= 2  # one for valid, one for test

    def cut(self) -> "Cut":
        """Return the threads of valid and test: half of the wanted pairs each, at most a tenth of all pairs."""
        wanted = 2 * min(self.wanted // 2, self.total // 10)
        held: tuple[set[bytes], set[bytes]] = set(), set()
        counts = [0, 0]
        for thread in sorted(self._sizes):
            if sum(counts) >= wanted and all(held):
                break
            smaller = counts.index(min(counts))
            held[smaller].add(thread)
            counts[smaller] += self._sizes[thread]
        if not wanted or sum(counts) > self.total // 2:  # one book, say
            return Cut(frozenset(), frozenset())
        return Cut(*map(frozenset, held))


@dataclass(frozen=True)
class Cut:
    """Keys of the threads that are held out."""

    valid: frozenset[bytes]
    test: frozenset[bytes]

    def split_of(self, thread: bytes) -> str:
        """Return the split of a thread's pairs."""
        if thread in self.valid:
            return "valid"
        return "test" if thread in self.test else "train"
