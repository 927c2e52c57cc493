"""A cache of the vectors of candidates that occur repeatedly in an evaluation."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


class VectorCache:
    """The vectors of candidates that were encoded before, valid until the weights change.

    In an evaluation the same replies occur as distractors many times (each about 20 times on ConvAI2).

    Several threads may use it. There is no lock: a candidate that is new to two of them is encoded twice, and a thread
    keeps the dictionary that it began with when another one clears it.
    """

    # Bytes after which the cache is cleared: 150,000 vectors of width 384, several times the distinct replies of
    # ParlAI's tasks. Without a limit, the candidates of requests to a server would fill the memory.
    LIMIT = 300_000_000

    def __init__(self, encode: Callable[[Sequence[Sequence[int]]], Tensor], version: Callable[[], object]):
        """Start without vectors.

        Args:
            encode: encodes token ids of candidates to vectors.
            version: returns another value as soon as `encode` would return other vectors.
        """
        self.encode, self.version = encode, version
        self.known: dict[tuple[int, ...], Tensor] = {}
        self.size = 0
        self.encoded_by: object = None

    def vectors(self, candidates: Sequence[tuple[int, ...]]) -> Tensor:
        """Return the vectors of candidates, and encode those that are new.

        Args:
            candidates: token ids of U candidates.

        Returns:
            [U, D].
        """
        if (version := self.version()) != self.encoded_by:
            self.clear()
            self.encoded_by = version
        known = self.known
        new = [ids for ids in dict.fromkeys(candidates) if ids not in known]
        if new and self.size > self.LIMIT:
            self.clear()
            known, new = self.known, list(dict.fromkeys(candidates))
        if new:
            encoded = self.encode(new)
            known.update(zip(new, encoded, strict=True))
            self.size += encoded.nbytes + sum(100 + 36 * len(ids) for ids in new)  # an object and a pointer for each id
        return torch.stack([known[ids] for ids in candidates])

    def clear(self) -> None:
        """Discard all vectors."""
        self.known, self.size = {}, 0
