"""Which candidates score highest: all scores in blocks, then the top k in a fixed order."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

# Dot products held at once, B x M x C: 64 MB in fp32. Chosen here, to stay near the cache and far from the memory.
BLOCK_PRODUCTS = 16_000_000


def score_all(architecture: Any, context: Any, candidates: Tensor) -> Tensor:
    """Scores of every context with every candidate of a large set.

    Args:
        architecture: a bi- or poly-encoder.
        context: what its `encode_context` returned, for B examples.
        candidates: [C, D].

    Returns:
        [B, C] fp32.
    """
    first = context if isinstance(context, Tensor) else context.vectors
    rows = first[..., 0].numel()  # B, or B x M
    block = max(BLOCK_PRODUCTS // max(rows, 1), 1)
    return torch.cat([architecture.score(context, part) for part in candidates.split(block)], dim=1)


def top_k(scores: np.ndarray, k: int, last: np.ndarray | None = None) -> np.ndarray:
    """Indices of the k highest scores, highest first; among equals the lower index.

    Args:
        scores: [C].
        k: at most C are returned.
        last: [C] bool, candidates that come after all others of the same score (a label must not win a tie by luck).
    """
    scores = np.where(np.isnan(scores), -np.inf, scores)  # a diverged model's scores come last
    k = min(k, len(scores))
    if k < len(scores):
        threshold = np.partition(scores, -k)[-k]
        index = np.flatnonzero(scores >= threshold)  # all that tie with the k-th are still in
    else:
        index = np.arange(len(scores))
    tie_break = np.zeros(len(index), bool) if last is None else last[index]
    return index[np.lexsort((index, tie_break, -scores[index]))][:k]
