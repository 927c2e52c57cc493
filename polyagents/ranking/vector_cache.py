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

    def __init__(self, encode: Callable[[Sequence[Sequence[int]]], Tensor]):
        self.encode = encode
        self.known: dict[tuple[int, ...], Tensor] = {}
        self.size = 0
        self.device: torch.device | None = None

    def vectors(self, candidates: Sequence[tuple[int, ...]], device: torch.device) -> Tensor:
        """Return the vectors of candidates, and encode those that are new.

        Args:
            candidates: token ids of U candidates.
            device: the model's, and that of the result.

        Returns:
            [U, D].
        """
        if device != self.device:  # the model was moved
            self.clear()
            self.device = device
        known = self.known
        new = [ids for ids in dict.fromkeys(candidates) if ids not in known]
        if new and self.size > self.LIMIT:
            self.clear()
            known, new = self.known, list(dict.fromkeys(candidates))
        if new:
            encoded = self.encode(new)
            known.update(zip(new, encoded, strict=True))
            self.size += encoded.nbytes + sum(map(bytes_of_ids, new))
        return torch.stack([known[ids] for ids in candidates])

    def clear(self) -> None:
        """Discard all vectors: the weights have changed."""
        self.known, self.size = {}, 0


def bytes_of_ids(ids: tuple[int, ...]) -> int:
    """Estimate the memory of token ids: an object and a pointer each."""
    return 100 + 36 * len(ids)
