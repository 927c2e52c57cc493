"""What one batch ranks: every candidate once, the label always among them, and where each label stands."""

import dataclasses
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from parlai.core.metrics import normalize_answer
from torch import Tensor

from polyagents.errors import InputError

normalised = functools.lru_cache(maxsize=200_000)(normalize_answer)


class Candidate(NamedTuple):
    """A text and its token ids, which decide what is the same candidate."""

    text: str
    ids: tuple[int, ...]


@dataclass(frozen=True)
class CandidateSet:
    """The candidates of a batch.

    Attributes:
        ids: token ids of the U candidates to encode, each once.
        rows: [B, C], which of them each example ranks; None when every example ranks all of them (C = U).
        mask: [B, C], False for what is not the example's negative: padding, what reads as its label does, and of a list
            that all share what is not meant for it.
        texts: the C texts when shared, else a list per example, padding left out.
        labels: [B], the column of each example's label; None where there are no labels.
    """

    ids: list[tuple[int, ...]]
    rows: Tensor | None
    mask: Tensor
    texts: Any
    labels: Tensor | None

    @functools.cached_property
    def column(self) -> dict[tuple[int, ...], int]:
        """Where each of the U candidates stands."""
        return {ids: i for i, ids in enumerate(self.ids)}

    def of(self, example: int) -> Sequence[str]:
        """The texts that one example ranks."""
        texts: Sequence[str] = self.texts if self.rows is None else self.texts[example]
        return texts

    def real(self, width: int) -> Tensor:
        """[B, C], True for every candidate that is not padding, copies of the label included."""
        sizes = torch.tensor([len(self.of(example)) for example in range(len(self.mask))])
        return torch.arange(width) < sizes.unsqueeze(1)


def shared_set(given: Sequence[Candidate], labels: Sequence[Candidate] | None) -> CandidateSet:
    """One list for the whole batch. Repeated labels are one candidate, so never each other's negatives.

    Nor are labels that ParlAI's teachers would count as equal: they ignore case, punctuation and articles.
    """
    column: dict[tuple[int, ...], int] = {}
    texts = []
    for text, ids in [*given, *(labels or ())]:
        if ids not in column:
            column[ids] = len(column)
            texts.append(text)
    if labels is None:
        return CandidateSet(list(column), None, torch.ones(1, len(column)).bool(), texts, None)
    positions = [column[label.ids] for label in labels]
    reading: dict[str, list[int]] = {}
    for i, text in enumerate(texts):
        reading.setdefault(normalised(text), []).append(i)
    mask = torch.ones(len(labels), len(column)).bool()
    for example, position in enumerate(positions):
        mask[example, reading[normalised(texts[position])]] = False
        mask[example, position] = True
    return CandidateSet(list(column), None, mask, texts, torch.tensor(positions))


def shared_set_with_own(
    given: Sequence[Candidate], own: Sequence[Sequence[Candidate]], others: Sequence[Candidate], labels: list[Candidate]
) -> CandidateSet:
    """`given` for the whole batch, and a list of its own for each example; `others` are ranked by other processes."""
    shared = shared_set([*given, *others, *(candidate for listed in own for candidate in listed)], labels)
    meant = torch.zeros_like(shared.mask)
    meant[:, columns_of(given, shared)] = True
    for example, listed in enumerate(own):
        meant[example, columns_of(listed, shared)] = True
    assert shared.labels is not None
    meant[torch.arange(len(labels)), shared.labels] = True
    return dataclasses.replace(shared, mask=shared.mask & meant)


def columns_of(given: Sequence[Candidate], shared: CandidateSet) -> list[int]:
    """Where each candidate stands in a shared set, which has equal ones once."""
    return [shared.column[candidate.ids] for candidate in given]


def inline_set(given: Sequence[Sequence[Candidate]], labels: Sequence[Candidate] | None) -> CandidateSet:
    """A list per example, padded to the longest; what several examples have is encoded once.

    A label that its list lacks is added at the end.
    """
    unique: dict[tuple[int, ...], int] = {}
    texts: list[list[str]] = []
    rows, masks, positions = [], [], []
    for example, own in enumerate(given):
        candidates = list(own)
        mask = [True] * len(candidates)
        if labels is not None:
            ids = [candidate.ids for candidate in candidates]
            label = labels[example]
            if label.ids not in ids:
                candidates, ids, mask = [*candidates, label], [*ids, label.ids], [*mask, True]
            position = ids.index(label.ids)
            positions.append(position)
            wanted = normalised(label.text)
            mask = [i == position or normalised(candidate.text) != wanted for i, candidate in enumerate(candidates)]
        rows.append([unique.setdefault(candidate.ids, len(unique)) for candidate in candidates])
        masks.append(mask)
        texts.append([candidate.text for candidate in candidates])
    if not unique:
        raise InputError("These examples have neither candidates nor labels; there is nothing to rank.")
    width = max(len(row) for row in rows)
    return CandidateSet(
        list(unique),
        torch.tensor([row + [0] * (width - len(row)) for row in rows]),
        torch.tensor([mask + [False] * (width - len(mask)) for mask in masks]),
        texts,
        None if labels is None else torch.tensor(positions),
    )


def equal_to_label(candidates: CandidateSet, labels: Sequence[str], width: int) -> Tensor:
    """[B, C], True where a candidate reads as the label does: the test that ParlAI's teachers apply to replies."""
    assert candidates.labels is not None
    equal = torch.zeros(len(labels), width).bool()
    for example, label in enumerate(labels):
        wanted = normalised(label)
        texts = candidates.of(example)
        equal[example, : len(texts)] = torch.tensor([normalised(text) == wanted for text in texts])
    equal[torch.arange(len(labels)), candidates.labels] = True
    return equal


def label_ranks(scores: Tensor, equal: Tensor, real: Tensor) -> Tensor:
    """The rank of each example's label, from 1. It loses every tie, so that equal scores win nothing by luck.

    Args:
        scores: [B, C].
        equal: [B, C], the label and what reads as it does; the best of them counts.
        real: [B, C], False for padding.

    Returns:
        [B].
    """
    best = scores.masked_fill(~equal, -torch.inf).amax(1, keepdim=True)
    return 1 + (~(scores < best) & real & ~equal).sum(1)  # not-a-number wins nothing either
