"""The training loss of the paper, cross entropy over an example's candidates (section 4.2), and a penalty of ours."""

import torch
from torch import Tensor
from torch.nn import functional

from polyagents.models.reduction import ContextVectors, masked_mean


def ranking_loss(scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
    """Compute -log softmax(scores)[label] over the candidates that count.

    Args:
        scores: [B, C].
        labels: the column of the right candidate, [B].
        mask: [B, C], False for padding and for other copies of the label, which must not be its negatives.

    Returns:
        [B] fp32, in nats.
    """
    logits = scores.float().masked_fill(~mask, torch.finfo(torch.float32).min)
    return functional.cross_entropy(logits, labels, reduction="none")


def context_similarity(context: ContextVectors) -> Tensor:
    """Compute how alike the M vectors of each context are: the mean of cos(y_i, y_j) over all pairs of real ones.

    MINER's disagreement regularisation (Li et al., ACL Findings 2022) is this mean. It is the squared length of the
    mean of the normalised vectors, which needs no [B, M, M]. A vector's cosine with itself is counted, and has no
    gradient: the result is 1/M where all are orthogonal, 1 where all are equal.

    Args:
        context: vectors [B, M, D] and their mask [B, M].

    Returns:
        [B] fp32, between 0 and 1; 0 for a context without any real vector.
    """
    units = functional.normalize(context.vectors.float(), dim=-1)
    return masked_mean(units, context.mask).square().sum(-1)
