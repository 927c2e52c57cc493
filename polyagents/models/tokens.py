"""Token ids as padded batches [B, T] with their masks: what every encoder takes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Tokens:
    """A padded batch of texts.

    Attributes:
        ids: [B, T], padded on the right.
        mask: [B, T], True where a token is real.
        segments: [B, T], 0 for the context and 1 for the candidate of a pair; None for single texts, which are all 0.
    """

    ids: Tensor
    mask: Tensor
    segments: Tensor | None = None

    def to(self, device: torch.device) -> "Tokens":
        """The same batch on another device."""
        segments = None if self.segments is None else self.segments.to(device, non_blocking=True)
        return Tokens(self.ids.to(device, non_blocking=True), self.mask.to(device, non_blocking=True), segments)

    def rows(self, index: Tensor) -> "Tokens":
        """Some of the texts, cut to the longest of them."""
        longest = max(int(self.mask[index].sum(1).max()), 1)
        segments = None if self.segments is None else self.segments[index, :longest]
        return Tokens(self.ids[index, :longest], self.mask[index, :longest], segments)


def pad(texts: Sequence[Sequence[int]], pad_id: int, segments: Sequence[Sequence[int]] | None = None) -> Tokens:
    """Token ids of B texts -> `Tokens` [B, T] on the CPU."""
    lengths = torch.tensor([len(text) for text in texts])
    mask = torch.arange(max(int(lengths.max()), 1)) < lengths.unsqueeze(1)

    def fill(rows: Sequence[Sequence[int]], value: int) -> Tensor:
        out = torch.full(mask.shape, value)
        out[mask] = torch.tensor([token for row in rows for token in row], dtype=torch.long)
        return out

    return Tokens(fill(texts, pad_id), mask, None if segments is None else fill(segments, 0))


def pad_pairs(pairs: Iterable[tuple[Sequence[int], Sequence[int]]], pad_id: int) -> Tokens:
    """(context, candidate) ids, each already between its [S], -> `Tokens` with segments 0 and 1 (paper 4.3)."""
    pairs = list(pairs)
    texts = [[*context, *candidate] for context, candidate in pairs]
    segments = [[0] * len(context) + [1] * len(candidate) for context, candidate in pairs]
    return pad(texts, pad_id, segments)
