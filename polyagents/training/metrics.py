"""The metrics of a batch, a value for each example: losses, and the ranks of labels."""

from collections.abc import Sequence

import torch
from torch import Tensor

from polyagents.ranking.candidate_set import CandidateSet, label_ranks
from polyagents.training.losses import ranking_loss


def evaluation_values(
    scores: Tensor, candidates: CandidateSet, logit_scale: float, recall_at: Sequence[int]
) -> dict[str, Tensor]:
    """Compute loss, rank, mrr and hits@k of the examples of an evaluation, and how many candidates each ranked.

    Args:
        scores: [B, C] on the CPU.
        candidates: those that were scored, with labels. The values of an example without a label are meaningless.
        logit_scale: the factor by which the loss multiplies the scores.

    Returns:
        [B] each, by name.
    """
    assert candidates.labels is not None
    loss = ranking_loss(scores * logit_scale, candidates.labels.clamp(min=0), candidates.mask)
    ranks = label_ranks(scores, candidates.right, candidates.real)
    hits = {f"hits@{k}": (ranks <= k).float() for k in recall_at}
    return {"loss": loss, "candidates": candidates.real.sum(1)} | rank_values(ranks) | hits


def training_values(scores: Tensor, labels: Tensor, mask: Tensor) -> dict[str, Tensor]:
    """Compute the ranks of the labels of a training batch among the candidates in the loss.

    Args:
        scores: [B, C].
        labels: the column of the right candidate, [B].
        mask: [B, C], the candidates in the loss.

    Returns:
        [B] each, by name.
    """
    is_label = torch.zeros_like(mask).scatter(1, labels.unsqueeze(1), True)
    ranks = label_ranks(scores, is_label, mask)
    return {"train_accuracy": (ranks == 1).float()} | rank_values(ranks)


def rank_values(ranks: Tensor) -> dict[str, Tensor]:
    """Return the rank of each label, and its reciprocal."""
    return {"rank": ranks, "mrr": ranks.float().reciprocal()}
