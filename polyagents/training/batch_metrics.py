"""The metrics of a batch of an evaluation, a value for each example."""

from collections.abc import Sequence

from torch import Tensor

from polyagents.ranking.candidate_set import CandidateSet, label_ranks
from polyagents.training.losses import ranking_loss


def evaluation_values(
    scores: Tensor, candidates: CandidateSet, logit_scale: float, recall_at: Sequence[int]
) -> dict[str, Tensor]:
    """Compute loss, rank, mrr and hits@k of the examples of an evaluation, and how many candidates each ranked.

    Args:
        scores: [B, C] on the CPU.
        candidates: with labels. The values of an example without a label are meaningless.
        logit_scale: the factor by which the loss multiplies the scores.

    Returns:
        [B] each, by name.
    """
    assert candidates.labels is not None
    loss = ranking_loss(scores * logit_scale, candidates.labels.clamp(min=0), candidates.mask)
    ranks = label_ranks(scores, candidates.right, candidates.real)
    hits = {f"hits@{k}": (ranks <= k).float() for k in recall_at}
    values = {"loss": loss, "candidates": candidates.real.sum(1), "rank": ranks, "mrr": ranks.float().reciprocal()}
    return values | hits
