"""What one batch ranks: every candidate once, a right one always among them, and where it stands."""

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from polyagents.errors import InputError
from polyagents.text.normalize import normalized


class TextLookup(Protocol):
    """Texts by their index: a list, or a store that looks them up."""

    def __len__(self) -> int:
        """How many there are."""
        ...

    def __getitem__(self, index: int, /) -> Any:
        """The text of an index."""
        ...


class Candidate(NamedTuple):
    """A text and its token ids, which decide what is the same candidate."""

    text: str
    ids: tuple[int, ...]


class Label(NamedTuple):
    """What answers an example.

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
        rows: [B, C], which of them each example ranks; None when every example ranks all of them (C = U).
        real: [B, C], or [1, C] where all examples have the same: False for padding, and of a shared list for what is
            not meant for the example.
        right: [B, C], True for every candidate that reads as one of the example's labels.
        texts: the C texts when shared, else those of each example, padding left out.
        labels: [B], the column of each example's label, -1 for an example that has none; None where none has.
    """

    ids: list[tuple[int, ...]]
    rows: Tensor | None
    real: Tensor
    right: Tensor
    texts: "TextLookup | Sequence[TextLookup]"
    labels: Tensor | None

    @property
    def mask(self) -> Tensor:
        """[B, C], what a loss counts: the label and its negatives, among which is nothing that is right as well."""
        if self.labels is None:
            return self.real
        labelled = torch.zeros_like(self.right)
        rows = (self.labels >= 0).nonzero().flatten()
        labelled[rows, self.labels[rows]] = True
        return (self.real & ~self.right) | labelled

    def of(self, example: int) -> "TextLookup":
        """The texts that one example ranks."""
        texts = self.texts if self.rows is None else self.texts[example]
        return texts


def shared_set(given: Sequence[Candidate], labels: Sequence[Label | None] | None) -> CandidateSet:
    """One list for the whole batch. Repeated labels are one candidate, so never each other's negatives.

    Nor are texts that ParlAI's teachers would count as equal: they ignore case, punctuation and articles.
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
    for example, label in enumerate(labels):
        if label is not None:
            places = [place for text in label.right for place in reads_as.get(normalized(text), ())]
            right[example, [*places, positions[example]]] = True
    return CandidateSet(list(column), None, real, right, texts, torch.tensor(positions, dtype=torch.long))


def shared_set_with_own(
    given: Sequence[Candidate],
    own: Sequence[Sequence[Candidate]],
    others: Sequence[Candidate],
    labels: Sequence[Label],
) -> CandidateSet:
    """`given` for the whole batch, and a list of its own for each example; `others` are ranked by other processes."""
    shared = shared_set([*given, *others, *(candidate for listed in own for candidate in listed)], labels)
    meant = torch.zeros_like(shared.real)
    meant[:, columns_of(given, shared)] = True
    for example, listed in enumerate(own):
        meant[example, columns_of(listed, shared)] = True
    assert shared.labels is not None
    meant[torch.arange(len(labels)), shared.labels] = True
    return dataclasses.replace(shared, real=meant)


def columns_of(given: Iterable[Candidate], shared: CandidateSet) -> list[int]:
    """Where each candidate stands in a shared set, which has equal ones once."""
    column = {ids: place for place, ids in enumerate(shared.ids)}
    return [column[candidate.ids] for candidate in given]


def inline_set(given: Sequence[Sequence[Candidate]], labels: Sequence[Label | None] | None) -> CandidateSet:
    """A list per example, padded to the longest; what several examples have is encoded once.

    A label that its list lacks is added at the end, unless the list has another that is right.

    Raises:
        InputError: there is nothing to rank.
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
    """An example's candidates with a right one among them: which are right, and where the one that is ranked stands."""
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
    """The rank of each example's label, from 1. It loses every tie, so that equal scores win nothing by luck.

    Args:
        scores: [B, C].
        right: [B, C], the labels and what reads as they do; the best of them counts.
        real: [B, C], False for padding.

    Returns:
        [B].
    """
    best = scores.masked_fill(~right, -torch.inf).amax(1, keepdim=True)
    return 1 + (~(scores < best) & real & ~right).sum(1)  # not-a-number wins nothing either
