"""Vectors of candidates that come back again and again during an evaluation."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


class VectorCache:
    """Vectors of candidates already met, for as long as the weights stay as they are.

    In an evaluation the same replies come back as distractors again and again (each about 20 times on ConvAI2).
    """

    LIMIT = 200_000  # vectors; 300 MB at width 384. Chosen here: ten times the distinct replies of the ParlAI tasks

    def __init__(self, encode: Callable[[Sequence[Sequence[int]]], Tensor]):
        self.encode = encode
        self.known: dict[tuple[int, ...], Tensor] = {}

    def vectors(self, candidates: Sequence[tuple[int, ...]], device: torch.device) -> Tensor:
        """Token ids of U candidates -> [U, D], on a device."""
        new = [ids for ids in dict.fromkeys(candidates) if ids not in self.known]
        if new and len(self.known) + len(new) > self.LIMIT:
            self.known.clear()
            new = list(dict.fromkeys(candidates))
        if new:
            self.known.update(zip(new, self.encode(new), strict=True))
        # The model may have been moved since.
        return torch.stack([self.known[ids] for ids in candidates]).to(device)

    def clear(self) -> None:
        """Forget all: the weights have changed."""
        self.known.clear()
