"""Token ids as padded batches [B, T] with their masks, the input of every encoder."""

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, groupby
from typing import ClassVar, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from polyagents.properties import cached_property

AnyTokens = TypeVar("AnyTokens", bound="Tokens")


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Move a tensor; from the host to a GPU asynchronously, from pinned memory."""
    if device.type == "cuda" and tensor.device.type == "cpu":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


@dataclass(frozen=True)
class Tokens:
    """A batch of texts: ids [B, T], padded on the right, and mask [B, T], True where a token is real."""

    ids: Tensor
    mask: Tensor
    # Cached properties that the host asks for: computed before a batch is moved, as it would wait for a GPU afterwards.
    asked: ClassVar[tuple[str, ...]] = ("is_full",)

    @cached_property
    def is_full(self) -> bool:
        """Whether no token is padding; `to` carries the answer along, so a GPU need not be asked."""
        return bool(self.mask.all())

    def to(self: AnyTokens, device: torch.device, rows: Tensor | None = None) -> AnyTokens:
        """Copy texts to another device: all, or `rows` of them, with padding cut to the longest of these."""
        tensors: list[Tensor] = [getattr(self, field.name) for field in dataclasses.fields(self)]
        if rows is not None:
            longest = max(int(self.mask[rows].sum(1).max()), 1)
            tensors = [tensor[rows, :longest] for tensor in tensors]
        here, moved = type(self)(*tensors), type(self)(*(to_device(tensor, device) for tensor in tensors))
        for name in self.asked:
            moved.__dict__[name] = getattr(here, name)  # where a cached property keeps its value
        return moved


def true_places(mask: Tensor) -> Tensor:
    """Return where a mask is True, counted row by row."""
    return mask.flatten().nonzero().flatten()


def pad(texts: Sequence[Sequence[int]], pad_id: int) -> Tokens:
    """Pad token ids, or other numbers, of B texts to a batch [B, T] on the CPU."""
    lengths = torch.tensor([len(text) for text in texts])
    mask = torch.arange(max(int(lengths.max()), 1)) < lengths.unsqueeze(1)
    ids = torch.full(mask.shape, pad_id)
    ids[mask] = torch.from_numpy(np.fromiter(chain.from_iterable(texts), np.int64))  # half the time of a list
    return Tokens(ids, mask)


@dataclass(frozen=True)
class JointTokens(Tokens):
    """Rows of a context followed by candidates, which are read together.

    `places` [R, T] are 0 for a context, k for its k-th candidate, and -1 for padding.
    """

    places: Tensor
    asked: ClassVar[tuple[str, ...]] = ("is_full", "longest_list")

    @property
    def segments(self) -> Tensor:
        """[R, T], 0 for a context and 1 for its candidates."""
        return self.places.clamp(0, 1)

    @property
    def own_positions(self) -> Tensor:
        """[R, T], the position of each token within its own text; 0 for padding."""
        index = torch.arange(self.places.size(1), device=self.places.device).expand_as(self.places)
        begins = self.places != self.places.roll(1, 1)
        return (index - (index * begins).cummax(1).values) * self.mask

    @property
    def positions(self) -> Tensor:
        """[R, T], positions at which each candidate follows the context directly; 0 for padding."""
        return self.own_positions + (self.places > 0) * (self.places == 0).sum(1, keepdim=True)

    def apart(self) -> "TextsApart":
        """Return the distinct texts of all rows, for an encoder that reads each by itself; the rows are on the CPU."""
        kinds: tuple[dict[tuple[int, ...], int], ...] = {}, {}  # contexts, candidates: token ids -> their number
        spans = []  # the row of a text, where it begins and ends there, its kind and number
        for row, (ids, places) in enumerate(zip(self.ids.tolist(), self.places.tolist(), strict=True)):
            end = 0
            for place, tokens in groupby(places):
                begin, end = end, end + sum(1 for _ in tokens)
                if place >= 0:
                    known = kinds[place > 0]
                    spans.append((row, begin, end, place > 0, known.setdefault(tuple(ids[begin:end]), len(known))))
        texts = [*kinds[0], *kinds[1]]
        begins = [0, *accumulate(map(len, texts))]
        where = np.zeros(self.ids.shape, np.int64)
        for row, begin, end, is_candidate, number in spans:
            first = begins[number + is_candidate * len(kinds[0])]
            where[row, begin:end] = np.arange(first, first + end - begin)
        return TextsApart(list(kinds[0]), list(kinds[1]), torch.from_numpy(where))

    @cached_property
    def longest_list(self) -> int:
        """K, how many candidates the row with the most of them has."""
        return int(self.places.max())

    @property
    def there(self) -> Tensor:
        """[R, K], which of the K candidates of the longest list each row has."""
        return torch.arange(self.longest_list, device=self.places.device) < self.places.amax(1, keepdim=True)

    def own(self, causal: bool = False) -> Tensor:
        """Return the mask [R, T, T] that separates texts: True where both tokens belong to the same text."""
        alike = self.places.unsqueeze(2) == self.places.unsqueeze(1)
        return alike.tril() if causal else alike

    def together(self, causal: bool = False) -> Tensor:
        """Return the mask [R, T, T] of a uni-encoder: all tokens attend to the context and to their own text.

        Padding attends to itself, since a softmax over nothing is not a number; nothing attends to padding.
        """
        of, at = self.places.unsqueeze(2), self.places.unsqueeze(1)
        return self.own(causal) | ((at == 0) & (of > 0))  # a context precedes its candidates, so this is causal, too


class TextsApart(NamedTuple):
    """The distinct texts of rows.

    Attributes:
        contexts: their token ids; in a row, `candidates` follow.
        places: [R, T], where a token of the rows is among those of all texts, one after the other; 0 for padding.
    """

    contexts: list[tuple[int, ...]]
    candidates: list[tuple[int, ...]]
    places: Tensor


def pad_joint(rows: Iterable[tuple[Sequence[int], Sequence[Sequence[int]]]], pad_id: int) -> JointTokens:
    """Pad rows of a context and its candidates, token ids with their [S], to a batch [R, T] on the CPU (paper 4.3)."""
    ids, places = [], []
    for context, candidates in rows:
        ids.append(list(chain(context, *candidates)))
        lengths = [len(context), *map(len, candidates)]
        places.append([place for place, length in enumerate(lengths) for _ in range(length)])
    tokens = pad(ids, pad_id)
    return JointTokens(tokens.ids, tokens.mask, pad(places, -1).ids)
