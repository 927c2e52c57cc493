"""The formats in which vectors are stored and scanned: bf16, fp32 in two halves, or int8."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

STORED_AS = ("bf16", "fp32", "int8")


class Coarse(NamedTuple):
    """Vectors once more, rounded to 8 bits, which a scan reads if the machine multiplies those fastest.

    Attributes:
        vectors: [n, D] int8.
        scales: [n] fp32; a vector is about the int8 one times its scale.
        lost: [n] fp32, how far each vector is from the rounded one.
    """

    vectors: Tensor
    scales: Tensor
    lost: Tensor

    @classmethod
    def of(cls, stored: "StoredVectors") -> "Coarse | None":
        """Round stored vectors; None for those that have 8 bits anyway."""
        if stored.scales is not None:
            return None
        exact = unpacked(stored)
        rounded = packed(exact, "int8")
        assert rounded.scales is not None
        lost = torch.linalg.vector_norm(exact - unpacked(rounded), dim=1)
        return cls(rounded.vectors, rounded.scales, lost)


class VectorBlock(NamedTuple):
    """A block of stored vectors, as they are scanned.

    Attributes:
        start: the index of the first of them.
        vectors: [n, D] in bf16 or int8.
        norms: [n] fp32, lengths of the vectors.
        scales: [n] fp32; the true vector is the int8 one times its scale.
        rest: [n, D] int16, the lower bits of fp32 vectors whose upper bits are in `vectors`.
        alive: [n], False where a candidate was deleted; None if none was.
        coarse: the same vectors in 8 bits; None if there is no such copy.
    """

    start: int
    vectors: Tensor
    norms: Tensor
    scales: Tensor | None = None
    rest: Tensor | None = None
    alive: Tensor | None = None
    coarse: Coarse | None = None

    @property
    def columns(self) -> tuple[Tensor | None, ...]:
        """The data of each candidate without the coarse copy, in the order of the fields."""
        return self.vectors, self.norms, self.scales, self.rest, self.alive

    def exact(self, rows: Tensor | slice) -> Tensor:
        """Return some of the vectors, [r, D] in fp32."""
        parts = (None if part is None else part[rows] for part in (self.vectors, self.scales, self.rest))
        return unpacked(StoredVectors(*parts))  # type: ignore[arg-type]

    def to(self, device: torch.device) -> "VectorBlock":
        """Copy the block to another device, without its coarse copy, which CPUs scan."""
        return VectorBlock(self.start, *(None if part is None else part.to(device) for part in self.columns))  # type: ignore[arg-type]

    def split(self, rows: int) -> Iterator["VectorBlock"]:
        """Split the block into parts of at most `rows` candidates."""
        for first in range(0, len(self.vectors), rows):
            part = slice(first, first + rows)
            own = (None if column is None else column[part] for column in self.columns)
            coarse = None if self.coarse is None else Coarse(*(column[part] for column in self.coarse))
            yield VectorBlock(self.start + first, *own, coarse)  # type: ignore[arg-type, call-arg]


class StoredVectors(NamedTuple):
    """Vectors in the format in which they are stored; for the fields see `VectorBlock`."""

    vectors: Tensor
    scales: Tensor | None = None
    rest: Tensor | None = None


def packed(vectors: Tensor, stored_as: str) -> StoredVectors:
    """Convert vectors [n, D] fp32 to the format in which they are stored: bf16, fp32 or int8.

    fp32 is kept in two halves: the upper 16 bits, rounded, are the number in bf16, and the lower ones are what rounding
    lost. A scan reads the first half only, as fast as a store in bf16; the exact scores read both.
    """
    if stored_as == "int8":
        scales = vectors.abs().amax(1) / 127
        # The scale of a vector of zeros is 0: it is divided by 1, and stays zeros.
        divisor = torch.where(scales > 0, scales, 1.0)
        return StoredVectors((vectors / divisor.unsqueeze(1)).round().to(torch.int8), scales)
    if stored_as == "bf16":
        return StoredVectors(vectors.to(torch.bfloat16))
    # As integers: adding half of the dropped bits rounds to the nearest bf16, for negative numbers as well, since their
    # sign is a bit of its own. The lower half is a signed difference, so that (upper << 16) + rest is every bit again.
    bits = vectors.contiguous().view(torch.int32)
    upper = (bits + 0x8000) >> 16
    return StoredVectors(upper.to(torch.int16).view(torch.bfloat16), None, (bits - (upper << 16)).to(torch.int16))


def unpacked(stored: StoredVectors) -> Tensor:
    """Convert stored vectors to [n, D] fp32."""
    if stored.scales is not None:
        return stored.vectors.float() * stored.scales.unsqueeze(1)
    if stored.rest is None:
        return stored.vectors.float()
    return ((stored.vectors.view(torch.int16).int() << 16) + stored.rest.int()).view(torch.float32)
