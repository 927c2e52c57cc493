"""Token ids as padded batches [B, T] with their masks: what every encoder takes."""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeVar

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

    @functools.cached_property
    def is_full(self) -> bool:
        """Whether no token is padding; `to` carries the answer along, so a GPU need not be asked."""
        return bool(self.mask.all())

    @property
    def segments(self) -> Tensor | None:
        """[B, T], 0 for a context and 1 for a candidate behind it; None for single texts, which are all 0."""
        return None

    def to(self: AnyTokens, device: torch.device) -> AnyTokens:
        """The same batch on another device."""
        moved = self._each(lambda tensor: to_device(tensor, device))
        for name, known in self._known().items():
            moved.__dict__[name] = known  # where a cached property keeps its value
        return moved

    def _known(self) -> dict[str, Any]:
        """What the host asks of a batch, by the name of its cached property; asked before the batch is moved."""
        return {"is_full": self.is_full}

    def rows(self: AnyTokens, index: Tensor) -> AnyTokens:
        """Some of the texts, cut to the longest of them."""
        longest = max(int(self.mask[index].sum(1).max()), 1)
        return self._each(lambda tensor: tensor[index, :longest])

    def _each(self: AnyTokens, change: Callable[[Tensor], Tensor]) -> AnyTokens:
        return type(self)(*(change(getattr(self, field.name)) for field in dataclasses.fields(self)))


def real(texts: Sequence[Sequence[int]]) -> Tensor:
    """The mask [B, T] of B texts, as long as the longest of them."""
    lengths = torch.tensor([len(text) for text in texts])
    return torch.arange(max(int(lengths.max()), 1)) < lengths.unsqueeze(1)


def filled(rows: Sequence[Sequence[int]], mask: Tensor, padding: int) -> Tensor:
    """Numbers of B texts as one tensor [B, T]."""
    out = torch.full(mask.shape, padding)
    out[mask] = torch.tensor(list(chain.from_iterable(rows)), dtype=torch.long)
    return out


def pad(texts: Sequence[Sequence[int]], pad_id: int) -> Tokens:
    """Token ids of B texts -> `Tokens` [B, T] on the CPU."""
    mask = real(texts)
    return Tokens(filled(texts, mask, pad_id), mask)


@dataclass(frozen=True)
class JointTokens(Tokens):
    """Contexts with candidates behind them, which are read together.

    Attributes:
        places: [R, T], 0 for a context, k for its k-th candidate, -1 for padding.
    """

    places: Tensor

    @property
    def segments(self) -> Tensor:
        """[R, T], 0 for a context and 1 for its candidates."""
        return self.places.clamp(0, 1)

    @property
    def own_positions(self) -> Tensor:
        """[R, T], those that each text has alone; 0 for padding."""
        index = torch.arange(self.places.size(1), device=self.places.device).expand_as(self.places)
        begins = self.places != self.places.roll(1, 1)
        return (index - (index * begins).cummax(1).values) * self.mask

    @property
    def positions(self) -> Tensor:
        """[R, T]; each candidate's go on where the context ends. 0 for padding."""
        return self.own_positions + (self.places > 0) * (self.places == 0).sum(1, keepdim=True)

    @functools.cached_property
    def longest_list(self) -> int:
        """K, how many candidates the row with the most of them has."""
        return int(self.places.max())

    def _known(self) -> dict[str, Any]:
        return super()._known() | {"longest_list": self.longest_list}

    @property
    def there(self) -> Tensor:
        """[R, K], which of the K candidates of the longest list each row has."""
        return torch.arange(self.longest_list, device=self.places.device) < self.places.amax(1, keepdim=True)

    def own(self, causal: bool = False) -> Tensor:
        """[R, T, T], True where the token of the column is of the text of that of the row: every text is read alone.

        Args:
            causal: nobody looks ahead.
        """
        alike = self.places.unsqueeze(2) == self.places.unsqueeze(1)
        return alike.tril() if causal else alike

    def together(self, causal: bool = False) -> Tensor:
        """[R, T, T], True where the token of the row may look at that of the column: all at the context, and own ones.

        Padding looks at itself, since a softmax over nothing is no number; nobody looks at it.
        """
        of, at = self.places.unsqueeze(2), self.places.unsqueeze(1)
        context = (at == 0) & (of > 0)
        return self.own(causal) | (context.tril() if causal else context)


def pad_joint(rows: Iterable[tuple[Sequence[int], Sequence[Sequence[int]]]], pad_id: int) -> JointTokens:
    """(context, candidates) ids, each text already between its [S], -> `JointTokens` [R, T] on the CPU (paper 4.3)."""
    ids, places = [], []
    for context, candidates in rows:
        ids.append(list(chain(context, *candidates)))
        lengths = [len(context), *map(len, candidates)]
        places.append([place for place, length in enumerate(lengths) for _ in range(length)])
    mask = real(ids)
    return JointTokens(filled(ids, mask, pad_id), mask, filled(places, mask, -1))


def pad_pairs(pairs: Iterable[tuple[Sequence[int], Sequence[int]]], pad_id: int) -> JointTokens:
    """(context, candidate) ids -> `JointTokens` with one candidate in each row."""
    return pad_joint(((context, [candidate]) for context, candidate in pairs), pad_id)
