"""The field's ranking metrics, computed from the ranks of the right answers: one value for each example.

Relevance is binary: an answer is right or wrong. Where an example has one right answer, R@k and hits@k are the same
number, and MAP is MRR.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def metrics(right_ranks: Sequence[NDArray[np.int64]], cutoffs: Sequence[int]) -> dict[str, Floats]:
    """Compute every metric of E examples: values [E] between 0 and 1, by the name of the metric.

    Args:
        right_ranks: the ranks of each example's right answers, at least one, among its candidates: from 1, rising.
        cutoffs: the k of R@k, hits@k and nDCG@k, at least 1.
    """
    ranks = padded(right_ranks)
    at_k: dict[str, Callable[[Floats, int], Floats]] = {"R": recall, "hits": hits, "nDCG": ndcg}
    found = {f"{name}@{k}": metric(ranks, k) for name, metric in at_k.items() for k in cutoffs}
    return found | {"MRR": 1 / ranks[:, 0], "MAP": average_precision(ranks)}


def padded(right_ranks: Sequence[NDArray[np.int64]]) -> Floats:
    """Pad ranks of at most R right answers with infinity to [E, R]."""
    ranks = np.full((len(right_ranks), max(map(len, right_ranks))), np.inf)
    for example, own in enumerate(right_ranks):
        ranks[example, : len(own)] = own
    return ranks


def recall(ranks: Floats, k: int) -> Floats:
    """Compute R@k, the share of the right answers that are among the first k: ranks [E, R] -> [E]."""
    found: Floats = (ranks <= k).sum(1) / np.isfinite(ranks).sum(1)
    return found


def hits(ranks: Floats, k: int) -> Floats:
    """Compute hits@k, 1 if any right answer is among the first k, else 0 (hits@1 is P@1): [E, R] -> [E]."""
    return (ranks[:, 0] <= k).astype(np.float64)


def average_precision(ranks: Floats) -> Floats:
    """Average the precision at each right answer, the mean of which is MAP: ranks [E, R] -> [E]."""
    precision = np.arange(1, ranks.shape[1] + 1) / ranks
    mean: Floats = precision.sum(1) / np.isfinite(ranks).sum(1)
    return mean


def ndcg(ranks: Floats, k: int) -> Floats:
    """Compute nDCG@k, the discounted gain of the first k divided by the best order's: ranks [E, R] -> [E].

    A right answer gains 1, divided by log2(1 + rank) (Järvelin and Kekäläinen 2002, as trec_eval has it).
    """
    places = np.arange(1.0, ranks.shape[1] + 1)
    best = np.where(np.isfinite(ranks), places, np.inf)
    return gain(ranks, k) / gain(best, k)


def gain(ranks: Floats, k: int) -> Floats:
    """Compute the discounted gain of right answers among the first k: ranks [E, R] -> [E]."""
    total: Floats = np.where(ranks <= k, 1 / np.log2(1 + ranks), 0.0).sum(1)
    return total
