"""Selects the k best of given scores in a fixed order: among equal scores the lower index comes first."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class TopCandidates:
    """The best candidates of each context, highest score first, among equal scores the lower index.

    Attributes:
        indices: [B, K].
        scores: [B, K] fp32.
    """

    indices: np.ndarray
    scores: np.ndarray

    @classmethod
    def of(cls, scores: np.ndarray, k: int) -> "TopCandidates":
        """Select the k best, or all if there are fewer, of scores [B, C]."""
        indices = np.stack([top_k(row, k) for row in scores])
        return cls(indices, np.take_along_axis(scores, indices, 1))


def top_k(scores: np.ndarray, k: int, tie_order: np.ndarray | None = None) -> np.ndarray:
    """Return the indices [k] of the k highest scores [C], highest first; of equal scores the lower index comes first.

    Args:
        k: at most C are returned.
        tie_order: [C] integers; of the same score, the lower number comes first, whatever the index.
    """
    scores = np.where(np.isnan(scores), -np.inf, scores)  # a diverged model's scores come last
    k = min(k, len(scores))
    if k < len(scores):
        threshold = np.partition(scores, -k)[-k]
        index = np.flatnonzero(scores >= threshold)  # all that tie with the k-th are still in
    else:
        index = np.arange(len(scores))
    order = np.zeros(len(index), int) if tie_order is None else tie_order[index]
    return index[np.lexsort((index, order, -scores[index]))][:k]
