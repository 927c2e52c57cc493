"""Distillation: a trained model as the teacher of another one in training.

A cross- or uni-encoder gives a bi- or poly-encoder its accuracy, at their speed; a bi- or poly-encoder gives a joint
model, whose examples are expensive, a start.

For every example the teacher scores the label and the negatives that the student finds hardest, and the student learns
the teacher's scores: their differences (margin-MSE, Hofstaetter et al. 2020, arXiv 2010.02666) or their softmax (KL).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from polyagents.ranking.candidate_set import CandidateSet, inline_set
from polyagents.ranking.ranking_model import RankingModel

LOSSES = ("kl", "margin_mse")


@dataclass(frozen=True)
class Distillation:
    """A teacher, one of LOSSES by which a student learns from it, and how many negatives of an example it scores."""

    teacher: RankingModel
    loss: str
    negatives: int

    def losses(self, contexts: Sequence[str], candidates: CandidateSet, logits: Tensor) -> Tensor:
        """Compute how far each example's scores are from the teacher's: [B] fp32.

        Args:
            contexts: B texts, each with a label among its candidates.
            logits: the student's scores as its own loss uses them, [B, C].
        """
        assert candidates.labels is not None
        labels, mask = candidates.labels.to(logits.device), candidates.mask.to(logits.device)
        columns, counted = hardest(logits.detach(), labels, mask, self.negatives)
        chosen = []
        for example, row in enumerate(columns.tolist()):
            texts = candidates.of(example)
            chosen.append([texts[column] if column < len(texts) else "" for column in row])  # padding is not counted
        taught = teacher_scores(self.teacher, contexts, chosen).to(logits.device)
        return distillation_loss(logits.gather(1, columns), taught, counted, self.loss)


def teacher_scores(teacher: RankingModel, contexts: Sequence[str], candidates: Sequence[Sequence[str]]) -> Tensor:
    """Score K candidates for each of B contexts as the teacher's own loss used them: [B, K] fp32."""
    given = [teacher.candidates(texts) for texts in candidates]
    scores = teacher.scores(teacher.context_ids(contexts), inline_set(given, None))
    return scores * teacher.module.logit_scale


def hardest(scores: Tensor, labels: Tensor, mask: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Select the label and the negatives that score highest.

    Args:
        scores: the student's, [B, C].
        labels: the label's column, [B].
        mask: [B, C], False for what does not count.
        count: how many negatives, at most.

    Returns:
        Columns [B, K], the label's first, and which of them count [B, K].
    """
    negatives = mask.scatter(1, labels.unsqueeze(1), False)
    columns = scores.masked_fill(~negatives, -torch.inf).topk(min(count, scores.size(1) - 1)).indices
    counted = negatives.gather(1, columns)
    always = torch.ones_like(labels.unsqueeze(1), dtype=torch.bool)
    return torch.cat([labels.unsqueeze(1), columns], 1), torch.cat([always, counted], 1)


def distillation_loss(scores: Tensor, teacher: Tensor, mask: Tensor, kind: str) -> Tensor:
    """Compute how far the student's scores are from the teacher's: [B] fp32, 0 for an example without negatives.

    Args:
        scores: the student's, [B, K]; column 0 is the label.
        teacher: the teacher's, [B, K].
        mask: [B, K], False for what does not count; column 0 is True.
        kind: "kl", the divergence of the student's softmax from the teacher's; "margin_mse", the mean squared
            difference of how far each negative is below the label.
    """
    if kind == "margin_mse":
        difference = (scores[:, :1] - scores) - (teacher[:, :1] - teacher)
        counted = mask.clone()
        counted[:, 0] = False
        return difference.square().masked_fill(~counted, 0.0).sum(1) / counted.sum(1).clamp(min=1)
    lowest = torch.finfo(torch.float32).min
    student = scores.float().masked_fill(~mask, lowest).log_softmax(1)
    wanted = teacher.float().masked_fill(~mask, lowest).log_softmax(1)
    return (wanted.exp() * (wanted - student)).sum(1)  # masked candidates have the probability 0
