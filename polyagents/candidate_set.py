"""What one batch ranks: every candidate once, the label always among them, and where each label stands."""

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
        mask: [B, C], False for padding and for further copies of the label, which are not its negatives.
        texts: the C texts when shared, else a list per example, padding left out.
        labels: [B], the column of each example's label; None where there are no labels.
    """

    ids: list[tuple[int, ...]]
    rows: Tensor | None
    mask: Tensor
    texts: Any
    labels: Tensor | None

    def of(self, example: int) -> Sequence[str]:
        """The texts that one example ranks."""
        texts: Sequence[str] = self.texts if self.rows is None else self.texts[example]
        return texts

    def real(self, width: int) -> Tensor:
        """[B, C], True for every candidate that is not padding, copies of the label included."""
        sizes = torch.tensor([len(self.of(example)) for example in range(len(self.mask))])
        return torch.arange(width) < sizes.unsqueeze(1)


def shared_set(given: Sequence[Candidate], labels: Sequence[Candidate] | None) -> CandidateSet:
    """One list for the whole batch. Repeated labels are one candidate, so never each other's negatives."""
    column: dict[tuple[int, ...], int] = {}
    texts = []
    for text, ids in [*given, *(labels or ())]:
        if ids not in column:
            column[ids] = len(column)
            texts.append(text)
    examples = 1 if labels is None else len(labels)
    positions = None if labels is None else torch.tensor([column[label.ids] for label in labels])
    return CandidateSet(list(column), None, torch.ones(examples, len(column)).bool(), texts, positions)


def columns_of(given: Sequence[Candidate], shared: CandidateSet) -> list[int]:
    """Where each candidate stands in a shared set, which has equal ones once."""
    column = {ids: i for i, ids in enumerate(shared.ids)}
    return [column[candidate.ids] for candidate in given]


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
            mask = [i == position or ids[i] != label.ids for i in range(len(ids))]
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
