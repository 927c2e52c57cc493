"""Scores of a training batch, with a way back to the encoders for their gradient.

Both sides are encoded and detached from their graphs (gradient_cache.py), whole or in chunks; equal texts once; a list
that several processes share in equal parts (distributed.py).
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from polyagents.models.encoder import in_order
from polyagents.models.formulas import stacked
from polyagents.models.tokens import to_device
from polyagents.ranking.candidate_set import CandidateSet
from polyagents.ranking.joint_model import JointModel, flat_scores, in_table
from polyagents.ranking.ranking_model import RankingModel
from polyagents.ranking.two_tower_model import TwoTowerModel
from polyagents.training import distributed
from polyagents.training.gradient_cache import GradientCache


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
    # `gathered_rows` brings the vectors of the others, through which gradients flow back to where they were encoded.
    # Every process must have something to encode: one without a share encodes the first text, for nobody.
    mine: Sequence[int] = range(len(lengths))
    if candidates.rows is None and distributed.is_distributed():
        mine = distributed.shares(lengths)[distributed.rank()] or [0]
    own = model.tokens([candidates.ids[row] for row in mine])
    side = GradientCache(module.candidate_encoder, module.candidate_vectors, in_order, own, chunk_tokens)
    if candidates.rows is not None:
        vectors = side.encoded[to_device(candidates.rows, model.device)]
    else:
        vectors = distributed.gathered_rows(side.encoded, lengths)
    encoded = context.encoded
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
    scored = GradientCache(model.module.encoder, model.module.chunk_scores, in_order, tokens, chunk_tokens)
    return TrainingScores(in_table(flat_scores(scored.encoded, tokens), candidates.mask), [scored])
