"""The ranked candidates of one example, and which of them are right."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyagents.errors import InputError
from polyagents.index.top_k import top_k
from polyagents.ranking.candidate_set import CandidateSet, Label
from polyagents.text.normalize import normalized


@dataclass(frozen=True)
class Judged:
    """The candidates of one example with their scores.

    Right candidates that read alike (text/normalize.py) are one answer: the best score of them is kept, at the place of
    the first one.
    """

    columns: NDArray[np.int64]  # [C], the place of each candidate in the list that was ranked, from 0
    scores: NDArray[np.float32]  # [C] fp32, finite
    right: NDArray[np.bool_]  # [C], True for every right answer; at least one is

    def __len__(self) -> int:
        return len(self.columns)

    def right_ranks(self) -> NDArray[np.int64]:
        """Return the rank of each right answer, from 1, best first: [R].

        A right answer ranks below every wrong candidate of the same score, as in `label_ranks`, so that a model whose
        scores have collapsed to one value wins nothing by luck.
        """
        wrong = np.sort(self.scores[~self.right])
        right = np.sort(self.scores[self.right])[::-1]
        above = len(wrong) - np.searchsorted(wrong, right, side="left")
        return above + np.arange(1, len(right) + 1)

    def best(self, count: int) -> NDArray[np.int64]:
        """Return indices of the `count` best, best first; of equal scores, wrong ones first, then earlier ones."""
        return top_k(self.scores, count, self.right.astype(np.int64))


def judge(scores: np.ndarray, candidates: CandidateSet, labels: Sequence[Label | None]) -> list[Judged | None]:
    """Rank the candidates of a batch: scores [B, C] fp32 -> one for each example, None for those that have no label."""
    real, right = candidates.real.expand(len(labels), -1).numpy(), candidates.right.numpy()
    return [
        None if label is None else judge_one(row, there, answers, candidates.of(example), label)
        for example, (label, row, there, answers) in enumerate(zip(labels, scores, real, right, strict=True))
    ]


def judge_one(scores: np.ndarray, real: np.ndarray, right: np.ndarray, texts: Any, label: Label) -> Judged:
    """Rank the candidates of one example: scores [C] fp32, real [C] (False: padding), right [C], a text for each."""
    if not np.isfinite(scores[real]).all():
        raise InputError(
            "The model gives infinite or NaN scores, so there is no ranking to evaluate; its training has diverged, or "
            "--precision fp16 is too narrow for it."
        )
    readings = {normalized(text) for text in label.right}
    alike: dict[str, list[int]] = {}
    for column in np.flatnonzero(right).tolist():
        reading = normalized(texts[column])
        # A candidate that reads differently is right if its token ids equal the drawn label's.
        alike.setdefault(reading if reading in readings else normalized(label.candidate.text), []).append(column)
    wrong = np.flatnonzero(real & ~right)
    columns = np.concatenate([wrong, [places[0] for places in alike.values()]]).astype(np.int64)
    values = np.concatenate([scores[wrong], np.array([scores[p].max() for p in alike.values()], np.float32)])
    is_right = np.arange(len(columns)) >= len(wrong)
    order = np.argsort(columns)
    return Judged(columns[order], values[order], is_right[order])
