"""What is measured of a batch, a value for each example: losses, and the ranks of labels."""

from collections.abc import Sequence

import torch
from torch import Tensor

from polyagents.ranking.candidate_set import CandidateSet, label_ranks
from polyagents.training.losses import ranking_loss


def evaluation_values(
    scores: Tensor, candidates: CandidateSet, logit_scale: float, recall_at: Sequence[int]
) -> dict[str, Tensor]:
    """Loss, rank, mrr and hits@k of the examples of an evaluation, [B] each.

    Args:
        scores: [B, C] on the CPU.
        candidates: what they are of, with labels. The values of an example that has none mean nothing.
        logit_scale: what the loss multiplies them by.
        recall_at: the k of hits@k.
    """
    assert candidates.labels is not None
    loss = ranking_loss(scores * logit_scale, candidates.labels.clamp(min=0), candidates.mask)
    ranks = label_ranks(scores, candidates.right, candidates.real)
    return {"loss": loss} | rank_values(ranks) | {f"hits@{k}": (ranks <= k).float() for k in recall_at}


def training_values(scores: Tensor, labels: Tensor, mask: Tensor) -> dict[str, Tensor]:
    """How the labels of a training batch rank among what its loss counts, [B] each.

    Args:
        scores: [B, C].
        labels: the column of the right candidate, [B].
        mask: [B, C], what the loss counts.
    """
    is_label = torch.zeros_like(mask).scatter(1, labels.unsqueeze(1), True)
    ranks = label_ranks(scores, is_label, mask)
    return {"train_accuracy": (ranks == 1).float()} | rank_values(ranks)


def rank_values(ranks: Tensor) -> dict[str, Tensor]:
    """The rank of each label, and its reciprocal."""
    return {"rank": ranks, "mrr": ranks.float().reciprocal()}
