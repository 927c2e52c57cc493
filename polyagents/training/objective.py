"""A training step's scores, its objective, and its gradients.

ParlAI's agents and the trainer of Ranker.train share these lines::

    scored = training_scores(model, examples.contexts, candidates, chunk_tokens)
    loss = objective.of(scored, examples, candidates)
    loss.backward(counts, scaler, accumulated)
    optimising.step(optimizer, scaler, parameters, limit)

Both sides are encoded and detached from their graphs (gradient_cache.py), whole or in chunks; equal texts once; a list
that several processes share in equal parts (distributed.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from polyagents.models.formulas import in_order, ranking_loss, stacked
from polyagents.models.joint import states_apart, without_padding
from polyagents.models.tokens import to_device
from polyagents.ranking.candidate_set import CandidateSet, label_ranks
from polyagents.ranking.joint_model import JointModel, flat_scores, in_table
from polyagents.ranking.ranking_model import RankingModel
from polyagents.ranking.two_tower_model import TwoTowerModel
from polyagents.training import distributed
from polyagents.training.candidate_sources import EncodedExamples
from polyagents.training.distillation import Distillation
from polyagents.training.gradient_cache import GradientCache
from polyagents.training.late_values import LateValues


class TrainingScores(NamedTuple):
    """Scores [B, C] of a training batch, and the gradient caches that the backward pass continues with."""

    scores: Tensor
    sides: list[GradientCache]


def training_scores(
    model: RankingModel, contexts: Sequence[Sequence[int]], candidates: CandidateSet, chunk_tokens: int | None
) -> TrainingScores:
    """Score a training batch.

    Args:
        contexts: token ids of B contexts; none if only other processes have examples.
        chunk_tokens: tokens of a chunk whose graph is computed again in the backward pass; None keeps all graphs.
    """
    if isinstance(model, JointModel):
        return joint_scores(model, contexts, candidates, chunk_tokens)
    assert isinstance(model, TwoTowerModel)
    module, distinct = model.module, list(dict.fromkeys(map(tuple, contexts)))
    # A process without an example encodes one text all the same: the others wait for its share.
    texts = model.tokens(distinct or [(model.tokenizer.start_id,)])
    context = GradientCache(module.context_encoder, module.context_vectors, stacked, texts, chunk_tokens)
    lengths = [len(ids) for ids in candidates.ids]
    # Inline lists differ between processes. A shared list is the same in all of them, so each encodes a part of it, and
    # `GatheredRows` brings the vectors of the others, through which gradients flow back to where they were encoded.
    # Every process must have something to encode: one without a share encodes the first text, for nobody.
    dealt = distributed.shares(lengths) if candidates.rows is None and distributed.is_distributed() else None
    mine = range(len(lengths)) if dealt is None else dealt[distributed.process_number()] or [0]
    own = model.tokens([candidates.ids[row] for row in mine])
    side = GradientCache(module.candidate_encoder, module.candidate_vectors, in_order, own, chunk_tokens)
    vectors, encoded = side.encoded, context.encoded
    if candidates.rows is not None:
        vectors = vectors[to_device(candidates.rows, model.device)]
    elif dealt is not None:
        vectors = distributed.GatheredRows.apply(vectors, dealt)
    # Equal contexts were encoded once: each example takes its row, so that gradients of all of them add up in it.
    if len(distinct) != len(contexts) or not distinct:
        place = {ids: row for row, ids in enumerate(distinct)}
        encoded = encoded.rows(to_device(torch.tensor([place[tuple(ids)] for ids in contexts]).long(), model.device))
    return TrainingScores(module.score(encoded, vectors), [side, context])


def joint_scores(
    model: JointModel, contexts: Sequence[Sequence[int]], candidates: CandidateSet, chunk_tokens: int | None
) -> TrainingScores:
    """Score a training batch by a joint architecture; candidates outside the loss are not scored."""
    rows = model.rows(contexts, candidates, candidates.mask)
    if not rows:  # only other processes have examples
        return TrainingScores(torch.zeros(candidates.mask.shape, device=model.device), [])
    tokens = model.joint_tokens(rows)
    module = model.module
    sides = [GradientCache(module.encoder, module.chunk_scores, in_order, tokens, chunk_tokens)]
    scores = sides[0].encoded
    if module.compares:
        texts, states = tokens.apart(), []
        for encoder, ids in zip(module.encoders_apart, (texts.contexts, texts.candidates), strict=True):
            some = model.tokens(ids)
            side = GradientCache(encoder, partial(states_apart, encoder), stacked, some, chunk_tokens)
            states.append(without_padding(side.encoded.vectors, some))
            sides.append(side)
        scores = scores + module.similarities(tokens, torch.cat(states), texts, again=chunk_tokens is not None)
    return TrainingScores(in_table(flat_scores(scores, tokens), candidates.mask), sides)


class BatchLoss(NamedTuple):
    """The loss of a training batch.

    Attributes:
        losses: [B] fp32, to be minimised.
        sides: the gradient caches that the backward pass continues with.
        values: for reports, B each: mean_loss (the ranking loss only), train_accuracy, rank, mrr, and added losses.
    """

    losses: Tensor
    sides: list[GradientCache]
    values: LateValues

    def backward(self, counts: Sequence[int], scaler: torch.amp.GradScaler, accumulated: int) -> None:
        """Add the gradients of the mean over all processes' examples to the weights' gradients.

        Args:
            counts: how many examples each process has.
            scaler: scales the loss in fp16, so that small gradients are not lost.
            accumulated: over how many batches gradients are averaged.
        """
        mean = self.losses.sum() * len(counts) / sum(counts)  # once the gradients of all processes are averaged
        if mean.requires_grad or len(self.losses):  # the loss of a process without examples depends on no weight
            scaler.scale(mean / accumulated).backward()
        for side in self.sides:
            side.backward()


@dataclass(frozen=True)
class Objective:
    """The ranking loss, and a teacher's, if there is one."""

    model: RankingModel
    distillation: Distillation | None = None

    def of(self, scored: TrainingScores, examples: EncodedExamples, candidates: CandidateSet) -> BatchLoss:
        """Compute the loss of each example of a batch, whose candidates have labels, from its scores."""
        assert candidates.labels is not None
        device = self.model.device
        labels, mask = to_device(candidates.labels, device), to_device(candidates.mask, device)
        logits = scored.scores * self.model.module.logit_scale
        losses = ranking_loss(logits, labels, mask)
        # The rank of the label among the candidates in the loss.
        is_label = torch.zeros_like(mask).scatter(1, labels.unsqueeze(1), True)
        ranks = label_ranks(scored.scores.detach(), is_label, mask)
        values = {"mean_loss": losses.detach(), "train_accuracy": (ranks == 1).float()}
        values |= {"rank": ranks, "mrr": ranks.float().reciprocal()}
        if self.distillation is not None and len(examples):
            taught = self.distillation.losses(examples.texts, candidates, logits)
            values["distillation_loss"] = taught.detach()
            losses = losses + taught
        return BatchLoss(losses, scored.sides, LateValues(values))


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
