"""A trained cross-encoder as teacher of a bi- or poly-encoder in training: its accuracy, at their speed.

For every example the teacher scores the label and the negatives that the student finds hardest, and the student's
scores are drawn towards its: their differences (margin-MSE, Hofstaetter et al. 2020, arXiv 2010.02666) or their
softmax (KL).
"""

from collections.abc import Sequence
from typing import Any

import torch
from parlai.core.opt import Opt
from torch import Tensor

from polyagents.errors import InputError
from polyagents.ranking.candidate_set import inline_set


def load_teacher(opt: Opt) -> Any:
    """The agent of the trained cross-encoder that the options of a student name, on the student's device.

    Raises:
        InputError: no such file, or another architecture.
    """
    from polyagents.ranker import Ranker  # which imports the agents, which import this module

    model_file = opt["teacher_model_file"]
    agent = Ranker.load(model_file, no_cuda=opt["no_cuda"], gpu=opt.get("gpu", -1)).agent
    if agent.architecture != "CrossEncoder":
        raise InputError(
            f"--teacher-model-file {model_file} is a {agent.architecture}; give a trained cross-encoder, which sees "
            f"context and candidate together."
        )
    return agent


@torch.no_grad()
def teacher_scores(agent: Any, contexts: Sequence[str], candidates: Sequence[Sequence[str]]) -> Tensor:
    """What the teacher makes of K candidates for each of B contexts, [B, K] fp32."""
    agent.model.eval()
    given = [agent.as_candidates(texts) for texts in candidates]
    scores: Tensor = agent.candidate_scores([agent.context_ids(text) for text in contexts], inline_set(given, None))
    return scores


def hardest(scores: Tensor, labels: Tensor, mask: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The label and the negatives that score highest.

    Args:
        scores: of the student, [B, C].
        labels: the label's column, [B].
        mask: [B, C], False for what does not count.
        count: how many negatives at most.

    Returns:
        Columns [B, K], the label's first, and which of them count [B, K].
    """
    negatives = mask.scatter(1, labels.unsqueeze(1), False)
    columns = scores.masked_fill(~negatives, -torch.inf).topk(min(count, scores.size(1) - 1)).indices
    counted = negatives.gather(1, columns)
    always = torch.ones_like(labels.unsqueeze(1), dtype=torch.bool)
    return torch.cat([labels.unsqueeze(1), columns], 1), torch.cat([always, counted], 1)


def distillation_loss(scores: Tensor, teacher: Tensor, mask: Tensor, kind: str) -> Tensor:
    """How far the student is from the teacher.

    Args:
        scores: of the student, [B, K]; column 0 is the label.
        teacher: its scores, [B, K].
        mask: [B, K], False for what does not count; column 0 is True.
        kind: "kl", the divergence of the student's softmax from the teacher's; "margin_mse", the mean squared
            difference of how far each negative lies below the label.

    Returns:
        [B] fp32, 0 for an example without negatives.
    """
    if kind == "margin_mse":
        difference = (scores[:, :1] - scores) - (teacher[:, :1] - teacher)
        counted = mask.clone()
        counted[:, 0] = False
        return difference.square().masked_fill(~counted, 0.0).sum(1) / counted.sum(1).clamp(min=1)
    lowest = torch.finfo(torch.float32).min
    student = scores.float().masked_fill(~mask, lowest).log_softmax(1)
    wanted = teacher.float().masked_fill(~mask, lowest).log_softmax(1)
    return (wanted.exp() * (wanted - student)).masked_fill(~mask, 0.0).sum(1)
