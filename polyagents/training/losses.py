"""The training loss of the paper, cross entropy over an example's candidates (section 4.2)."""

import torch
from torch import Tensor
from torch.nn import functional


def ranking_loss(scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
    """Compute -log softmax(scores)[label] over the candidates that count: [B] fp32, in nats.

    Args:
        scores: [B, C].
        labels: the column of the right candidate, [B].
        mask: [B, C], False for padding and for other copies of the label, which must not be its negatives.
    """
    logits = scores.float().masked_fill(~mask, torch.finfo(torch.float32).min)
    return functional.cross_entropy(logits, labels, reduction="none")
