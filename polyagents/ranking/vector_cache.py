"""Vectors of candidates that come back again and again during an evaluation."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


class VectorCache:
    """Vectors of candidates already met, for as long as the weights stay as they are.

    In an evaluation the same replies come back as distractors again and again (each about 20 times on ConvAI2).

    Several threads may ask at once. There is no lock: what two of them meet first is encoded twice, and a thread keeps
    the dictionary that it began with when another one forgets it.
    """

    # Bytes, after which all is forgotten: 150,000 vectors of width 384, several times the distinct replies of ParlAI's
    # tasks. The candidates that requests bring to a server would fill the memory.
    LIMIT = 300_000_000

    def __init__(self, encode: Callable[[Sequence[Sequence[int]]], Tensor]):
        self.encode = encode
        self.known: dict[tuple[int, ...], Tensor] = {}
        self.size = 0

    def vectors(self, candidates: Sequence[tuple[int, ...]], device: torch.device) -> Tensor:
        """Token ids of U candidates -> [U, D], on a device."""
        known = self.known
        new = [ids for ids in dict.fromkeys(candidates) if ids not in known]
        if new and self.size > self.LIMIT:
            self.clear()
            known, new = self.known, list(dict.fromkeys(candidates))
        if new:
            encoded = self.encode(new)
            known.update(zip(new, encoded, strict=True))
            self.size += encoded.nbytes + sum(map(bytes_of_ids, new))
        # The model may have been moved since.
        return torch.stack([known[ids] for ids in candidates]).to(device)

    def clear(self) -> None:
        """Forget all: the weights have changed."""
        self.known, self.size = {}, 0


def bytes_of_ids(ids: tuple[int, ...]) -> int:
    """About how much memory token ids take: an object and a pointer each."""
    return 100 + 36 * len(ids)
