"""The field's ranking metrics, computed from the ranks of the right answers: one value for each example.

Relevance is binary: an answer is right or wrong. Where an example has one right answer, R@k and hits@k are the same
number, and MAP is MRR.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def metrics(right_ranks: Sequence[NDArray[np.int64]], cutoffs: Sequence[int]) -> dict[str, Floats]:
    """Compute every metric of E examples.

    Args:
        right_ranks: the ranks of the right answers of each example among its candidates, from 1, in rising order; at
            least one.
        cutoffs: the k of R@k, hits@k and nDCG@k.

    Returns:
        Values [E] between 0 and 1, by the name of the metric.
    """
    ranks = padded(right_ranks)
    at_k: dict[str, Callable[[Floats, int], Floats]] = {"R": recall, "hits": hits, "nDCG": ndcg}
    found = {f"{name}@{k}": metric(ranks, k) for name, metric in at_k.items() for k in cutoffs}
    return found | {"MRR": reciprocal_rank(ranks), "MAP": average_precision(ranks)}


def padded(right_ranks: Sequence[NDArray[np.int64]]) -> Floats:
    """Pad ranks of at most R right answers with infinity to [E, R]."""
    ranks = np.full((len(right_ranks), max(map(len, right_ranks))), np.inf)
    for example, own in enumerate(right_ranks):
        ranks[example, : len(own)] = own
    return ranks


def recall(ranks: Floats, k: int) -> Floats:
    """Compute R@k: the share of the right answers that are among the first k.

    Args:
        ranks: [E, R].
        k: at least 1.

    Returns:
        [E].
    """
    found: Floats = (ranks <= k).sum(1) / right_answers(ranks)
    return found


def hits(ranks: Floats, k: int) -> Floats:
    """Compute hits@k: whether any right answer is among the first k (hits@1 is the precision P@1).

    Args:
        ranks: [E, R].
        k: at least 1.

    Returns:
        [E], 0 or 1.
    """
    return (ranks[:, 0] <= k).astype(np.float64)


def reciprocal_rank(ranks: Floats) -> Floats:
    """Compute 1 / rank of the best right answer, whose mean is MRR: ranks [E, R] -> [E]."""
    return 1 / ranks[:, 0]


def average_precision(ranks: Floats) -> Floats:
    """Average the precision at each right answer, the mean of which is MAP: ranks [E, R] -> [E]."""
    precision = np.arange(1, ranks.shape[1] + 1) / ranks
    mean: Floats = precision.sum(1) / right_answers(ranks)
    return mean


def ndcg(ranks: Floats, k: int) -> Floats:
    """Compute nDCG@k: the discounted gain of the first k, divided by the best order's.

    A right answer gains 1, divided by log2(1 + rank) (Järvelin and Kekäläinen 2002, as trec_eval has it).

    Args:
        ranks: [E, R].
        k: at least 1.

    Returns:
        [E].
    """
    places = np.arange(1.0, ranks.shape[1] + 1)
    best = np.where(np.isfinite(ranks), places, np.inf)
    return gain(ranks, k) / gain(best, k)


def gain(ranks: Floats, k: int) -> Floats:
    """Compute the discounted gain of right answers among the first k.

    Args:
        ranks: [E, R].
        k: at least 1.

    Returns:
        [E].
    """
    total: Floats = np.where(ranks <= k, 1 / np.log2(1 + ranks), 0.0).sum(1)
    return total


def right_answers(ranks: Floats) -> NDArray[np.int64]:
    """Count the right answers of each example: ranks [E, R] -> [E]."""
    counts: NDArray[np.int64] = np.isfinite(ranks).sum(1)
    return counts
