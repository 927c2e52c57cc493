"""Token ids as padded batches [B, T] with their masks, the input of every encoder."""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import ClassVar, TypeVar

import numpy as np
import torch
from torch import Tensor

from polyagents.models.devices import to_device

AnyTokens = TypeVar("AnyTokens", bound="Tokens")


@dataclass(frozen=True)
class Tokens:
    """A padded batch of texts.

    Attributes:
        ids: [B, T], padded on the right.
        mask: [B, T], True where a token is real.
    """

    ids: Tensor
    mask: Tensor
    # Cached properties that the host asks for: computed before a batch is moved, as it would wait for a GPU afterwards.
    asked: ClassVar[tuple[str, ...]] = ("is_full",)

    @functools.cached_property
    def is_full(self) -> bool:
        """Whether no token is padding; `to` carries the answer along, so a GPU need not be asked."""
        return bool(self.mask.all())

    def to(self: AnyTokens, device: torch.device) -> AnyTokens:
        """Copy the batch to another device."""
        moved = self._each(lambda tensor: to_device(tensor, device))
        for name in self.asked:
            moved.__dict__[name] = getattr(self, name)  # where a cached property keeps its value
        return moved

    def rows(self: AnyTokens, index: Tensor) -> AnyTokens:
        """Select texts, and cut the padding to the longest of them."""
        longest = max(int(self.mask[index].sum(1).max()), 1)
        return self._each(lambda tensor: tensor[index, :longest])

    def _each(self: AnyTokens, change: Callable[[Tensor], Tensor]) -> AnyTokens:
        return type(self)(*(change(getattr(self, field.name)) for field in dataclasses.fields(self)))


def real(texts: Sequence[Sequence[int]]) -> Tensor:
    """Return the mask [B, T] of B texts, where T is the length of the longest."""
    lengths = torch.tensor([len(text) for text in texts])
    return torch.arange(max(int(lengths.max()), 1)) < lengths.unsqueeze(1)


def filled(rows: Sequence[Sequence[int]], mask: Tensor, padding: int) -> Tensor:
    """Pad numbers of B texts to one tensor.

    Args:
        rows: the numbers of each text.
        mask: [B, T], True where a text has a number.

    Returns:
        [B, T].
    """
    out = torch.full(mask.shape, padding)
    out[mask] = torch.from_numpy(np.fromiter(chain.from_iterable(rows), np.int64))  # half the time of a list
    return out


def pad(texts: Sequence[Sequence[int]], pad_id: int) -> Tokens:
    """Pad token ids of B texts to a batch on the CPU.

    Args:
        texts: token ids of each text.

    Returns:
        A batch [B, T].
    """
    mask = real(texts)
    return Tokens(filled(texts, mask, pad_id), mask)


@dataclass(frozen=True)
class JointTokens(Tokens):
    """Rows of a context followed by candidates, which are read together.

    Attributes:
        places: [R, T], 0 for a context, k for its k-th candidate, -1 for padding.
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

    @functools.cached_property
    def longest_list(self) -> int:
        """K, how many candidates the row with the most of them has."""
        return int(self.places.max())

    @property
    def there(self) -> Tensor:
        """[R, K], which of the K candidates of the longest list each row has."""
        return torch.arange(self.longest_list, device=self.places.device) < self.places.amax(1, keepdim=True)

    def own(self, causal: bool = False) -> Tensor:
        """Return the mask [R, T, T] that separates texts: True where both tokens belong to the same text.

        Args:
            causal: whether a token may attend to earlier ones only.
        """
        alike = self.places.unsqueeze(2) == self.places.unsqueeze(1)
        return alike.tril() if causal else alike

    def together(self, causal: bool = False) -> Tensor:
        """Return the mask [R, T, T] of a uni-encoder: all tokens attend to the context and to their own text.

        Padding attends to itself, since a softmax over nothing is NaN; nothing attends to padding.

        Args:
            causal: whether a token may attend to earlier ones only.
        """
        of, at = self.places.unsqueeze(2), self.places.unsqueeze(1)
        return self.own(causal) | ((at == 0) & (of > 0))  # a context precedes its candidates, so this is causal, too


def pad_joint(rows: Iterable[tuple[Sequence[int], Sequence[Sequence[int]]]], pad_id: int) -> JointTokens:
    """Pad rows of a context and its candidates to a batch on the CPU (paper 4.3).

    Args:
        rows: token ids of a context and of each of its candidates, every text with its [S] already.

    Returns:
        A batch [R, T].
    """
    ids, places = [], []
    for context, candidates in rows:
        ids.append(list(chain(context, *candidates)))
        lengths = [len(context), *map(len, candidates)]
        places.append([place for place, length in enumerate(lengths) for _ in range(length)])
    mask = real(ids)
    return JointTokens(filled(ids, mask, pad_id), mask, filled(places, mask, -1))


def pad_pairs(pairs: Iterable[tuple[Sequence[int], Sequence[int]]], pad_id: int) -> JointTokens:
    """Pad pairs of a context and a candidate to a batch that has one candidate in each row.

    Args:
        pairs: token ids of both.

    Returns:
        A batch [R, T].
    """
    return pad_joint(((context, [candidate]) for context, candidate in pairs), pad_id)
