"""The candidates that one batch ranks: each is encoded once, a right one is always among them, at a known column."""

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from polyagents.errors import InputError
from polyagents.text.normalize import normalized


class TextLookup(Protocol):
    """Texts by their index: a list, or a store that looks them up on disk."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


class Candidate(NamedTuple):
    """A text with its token ids; candidates with the same ids are the same candidate."""

    text: str
    ids: tuple[int, ...]


class Label(NamedTuple):
    """The right answers of an example.

    Attributes:
        candidate: the label that is ranked.
        right: the texts of all labels of the example; any of them counts as right, as for ParlAI's teachers.
    """

    candidate: Candidate
    right: tuple[str, ...]


@dataclass(frozen=True)
class CandidateSet:
    """The candidates of a batch.

    Attributes:
        ids: token ids of the U candidates to encode, each once.
        rows: [B, C], the indices of the candidates that each example ranks; None when every example ranks all of them
            (C = U).
        real: [B, C], or [1, C] if all examples have the same: False for padding, and for members of a shared list
            that an example does not rank.
        right: [B, C], True for every candidate that reads as one of the example's labels.
        texts: the C texts when shared, otherwise each example's, without padding.
        labels: [B], the column of each example's label, -1 for an example without a label; None if no example has
            one.
    """

    ids: list[tuple[int, ...]]
    rows: Tensor | None
    real: Tensor
    right: Tensor
    texts: "TextLookup | Sequence[TextLookup]"
    labels: Tensor | None

    @property
    def mask(self) -> Tensor:
        """[B, C], the candidates in the loss: the label and its negatives, without other right answers."""
        if self.labels is None:
            return self.real
        labelled = torch.zeros_like(self.right)
        rows = (self.labels >= 0).nonzero().flatten()
        labelled[rows, self.labels[rows]] = True
        return (self.real & ~self.right) | labelled

    def of(self, example: int) -> "TextLookup":
        """Return the texts that one example ranks."""
        return self.texts if self.rows is None else self.texts[example]


def shared_set(given: Sequence[Candidate], labels: Sequence[Label | None] | None) -> CandidateSet:
    """Build one list for the whole batch.

    A repeated label is one candidate, so it is never its own negative. Nor is a text that reads like the label
    (text/normalize.py).

    Args:
        labels: one for each example, None for an example without one; None instead of the list if there are none.
    """
    column: dict[tuple[int, ...], int] = {}
    texts = []
    for text, ids in [*given, *(label.candidate for label in labels or () if label is not None)]:
        if ids not in column:
            column[ids] = len(column)
            texts.append(text)
    if labels is None:
        real = torch.ones(1, len(column)).bool()
        return CandidateSet(list(column), None, real, torch.zeros_like(real), texts, None)
    reads_as: dict[str, list[int]] = {}
    for place, text in enumerate(texts):
        reads_as.setdefault(normalized(text), []).append(place)
    real = torch.ones(len(labels), len(column)).bool()
    right = torch.zeros_like(real)
    positions = [-1 if label is None else column[label.candidate.ids] for label in labels]
    answers = []  # (example, column): written at once, since each write to a tensor costs more than finding what
    for example, label in enumerate(labels):
        if label is not None:
            places = (place for text in label.right for place in reads_as.get(normalized(text), ()))
            answers += [(example, place) for place in (*places, positions[example])]
    examples, columns = torch.tensor(answers, dtype=torch.long).reshape(-1, 2).T
    right[examples, columns] = True
    return CandidateSet(list(column), None, real, right, texts, torch.tensor(positions, dtype=torch.long))


def shared_set_with_own(
    given: Sequence[Candidate],
    own: Sequence[Sequence[Candidate]],
    others: Sequence[Candidate],
    labels: Sequence[Label],
) -> CandidateSet:
    """Build one list for the whole batch of which each example ranks a part.

    Args:
        given: ranked by every example.
        own: ranked by one example, a list for each.
        others: encoded, but ranked by other processes only.
        labels: one for each example, which it ranks.
    """
    shared = shared_set([*given, *others, *(candidate for listed in own for candidate in listed)], labels)
    meant = torch.zeros_like(shared.real)
    meant[:, columns_in(given, shared)] = True
    for example, listed in enumerate(own):
        meant[example, columns_in(listed, shared)] = True
    assert shared.labels is not None
    meant[torch.arange(len(labels)), shared.labels] = True
    return dataclasses.replace(shared, real=meant)


def columns_in(given: Iterable[Candidate], shared: CandidateSet) -> list[int]:
    """Return the column of each candidate in a shared set, which contains equal ones once."""
    column = {ids: place for place, ids in enumerate(shared.ids)}
    return [column[candidate.ids] for candidate in given]


def inline_set(given: Sequence[Sequence[Candidate]], labels: Sequence[Label | None] | None) -> CandidateSet:
    """Build a list for each example, padded to the longest; a candidate of several lists is encoded once.

    A label that its list lacks is added at the end, unless the list has another right answer. An InputError says if
    there is nothing to rank.

    Args:
        labels: as for `shared_set`.
    """
    unique: dict[tuple[int, ...], int] = {}
    texts: list[list[str]] = []
    rows, rights, positions = [], [], []
    for own, label in zip(given, labels or [None] * len(given), strict=True):
        candidates, right, position = with_label(own, label)
        rows.append([unique.setdefault(candidate.ids, len(unique)) for candidate in candidates])
        rights.append(right)
        positions.append(position)
        texts.append([candidate.text for candidate in candidates])
    if not unique:
        raise InputError("These examples have neither candidates nor labels; there is nothing to rank.")
    width = max(len(row) for row in rows)
    return CandidateSet(
        list(unique),
        torch.tensor([row + [0] * (width - len(row)) for row in rows]),
        torch.tensor([[True] * len(row) + [False] * (width - len(row)) for row in rows]),
        torch.tensor([right + [False] * (width - len(right)) for right in rights]),
        texts,
        None if labels is None else torch.tensor(positions, dtype=torch.long),
    )


def with_label(own: Sequence[Candidate], label: Label | None) -> tuple[list[Candidate], list[bool], int]:
    """Return candidates with a right one among them, whether each is right, and the label's column, -1 without one."""
    candidates = list(own)
    if label is None:
        return candidates, [False] * len(candidates), -1
    reads_as_right = {normalized(text) for text in label.right}
    right = [normalized(c.text) in reads_as_right or c.ids == label.candidate.ids for c in candidates]
    spelt_out = [c.text in label.right for c in candidates]
    alike = [place for place, c in enumerate(candidates) if c.ids == label.candidate.ids]
    if alike:  # of several with the same token ids, the one that ParlAI's teachers find by its text
        return candidates, right, max(alike, key=spelt_out.__getitem__)
    if any(spelt_out):
        return candidates, right, spelt_out.index(True)
    return [*candidates, label.candidate], [*right, True], len(candidates)


def label_ranks(scores: Tensor, right: Tensor, real: Tensor) -> Tensor:
    """Compute the rank [B] of each example's label, from 1.

    It loses every tie, so that equal scores win nothing by luck.

    Args:
        scores: [B, C].
        right: [B, C], the labels and what reads as they do; the best of them counts.
        real: [B, C], False for padding.
    """
    best = scores.masked_fill(~right, -torch.inf).amax(1, keepdim=True)
    return 1 + (~(scores < best) & real & ~right).sum(1)  # not-a-number wins nothing either
