"""How vectors are stored and scanned: bf16, fp32 in two halves, or int8."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

STORED_AS = ("bf16", "fp32", "int8")
BYTES = {"bf16": 2, "fp32": 4, "int8": 1}


class Block(NamedTuple):
    """Some stored vectors, as they are scanned.

    Attributes:
        start: index of the first of them.
        vectors: [n, D] in bf16 or int8.
        norms: [n] fp32, lengths of the vectors.
        scales: [n] fp32; an int8 vector stands for itself times its scale.
        rest: [n, D] int16, what makes bf16 vectors fp32 again.
        alive: [n], False where a candidate was deleted; None where none was.
    """

    start: int
    vectors: Tensor
    norms: Tensor
    scales: Tensor | None = None
    rest: Tensor | None = None
    alive: Tensor | None = None

    def exact(self, rows: Tensor | slice) -> Tensor:
        """Some of the vectors, [r, D] in fp32."""
        parts = (None if part is None else part[rows] for part in (self.vectors, self.scales, self.rest))
        return unpacked(StoredVectors(*parts))  # type: ignore[arg-type]

    def to(self, device: torch.device) -> "Block":
        """The same block on another device."""
        return Block(self.start, *(None if part is None else part.to(device) for part in self[1:]))  # type: ignore[arg-type]

    def split(self, rows: int) -> Iterator["Block"]:
        """The block in parts of at most so many candidates."""
        for first in range(0, len(self.vectors), rows):
            parts = (None if part is None else part[first : first + rows] for part in self[1:])
            yield Block(self.start + first, *parts)  # type: ignore[arg-type]


class StoredVectors(NamedTuple):
    """Vectors as they are stored; the fields are those of `Block`."""

    vectors: Tensor
    scales: Tensor | None = None
    rest: Tensor | None = None


def packed(vectors: Tensor, stored_as: str) -> StoredVectors:
    """Vectors [n, D] fp32 -> what is stored.

    fp32 is kept in two halves: the upper 16 bits, rounded, are the number in bf16, and the lower ones what was rounded
    away. A scan reads the first half only, as fast as a store in bf16; a decision reads both.
    """
    if stored_as == "int8":
        scales = vectors.abs().amax(1) / 127
        divisor = torch.where(scales > 0, scales, 1.0)
        return StoredVectors((vectors / divisor.unsqueeze(1)).round().to(torch.int8), scales)
    if stored_as == "bf16":
        return StoredVectors(vectors.to(torch.bfloat16))
    bits = vectors.contiguous().view(torch.int32)
    upper = (bits + 0x8000) >> 16
    return StoredVectors(upper.to(torch.int16).view(torch.bfloat16), None, (bits - (upper << 16)).to(torch.int16))


def unpacked(stored: StoredVectors) -> Tensor:
    """What is stored -> vectors [n, D] fp32."""
    if stored.scales is not None:
        return stored.vectors.float() * stored.scales.unsqueeze(1)
    if stored.rest is None:
        return stored.vectors.float()
    return ((stored.vectors.view(torch.int16).int() << 16) + stored.rest.int()).view(torch.float32)
