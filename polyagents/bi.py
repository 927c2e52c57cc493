"""The bi-encoder (paper 4.2): context and candidate are encoded apart, the score is the product of their vectors."""

import copy

import torch
from torch import Tensor, nn
from torch.nn import functional

from polyagents.attention import bi_scores
from polyagents.encoder import Encoder, in_order
from polyagents.options import ReductionOptions, TowerOptions
from polyagents.reduction import reduce
from polyagents.search import Query
from polyagents.text import Tokens

# Cosines lie between -1 and 1, too flat for a softmax: training multiplies them by 20, as sentence-transformers does.
COSINE_SCALE = 20.0


class BiEncoder(nn.Module):
    """Two encoders that start from the same weights (or one), and red().

    Attributes:
        logit_scale: what the training loss multiplies the scores by: 1 for dot products.
    """

    def __init__(self, encoder: Encoder, reduction: ReductionOptions, towers: TowerOptions):
        super().__init__()
        self.context_encoder = encoder
        self.candidate_encoder = encoder if towers.share_encoders else copy.deepcopy(encoder)
        self.reduction = reduction
        self.cosine = towers.similarity == "cosine"
        self.logit_scale = COSINE_SCALE if self.cosine else 1.0

    def encode_context(self, tokens: Tokens) -> Tensor:
        """[B, T] -> [B, D]."""
        return self.vectors(self.context_encoder, tokens)

    def encode_candidates(self, tokens: Tokens) -> Tensor:
        """[C, T] -> [C, D]: independent of any context, so they can be kept."""
        return self.vectors(self.candidate_encoder, tokens)

    def score(self, context: Tensor, candidates: Tensor) -> Tensor:
        """Context [B, D] and candidates [C, D] or [B, C, D] -> scores [B, C], fp32."""
        return bi_scores(context, candidates)

    def query(self, context: Tensor) -> Query:
        """What `encode_context` returned, as what a large set of candidates is searched for."""
        vectors = context.unsqueeze(1)
        return Query(vectors, torch.ones_like(vectors[..., 0], dtype=torch.bool))

    def forward(self, context: Tokens, candidates: Tokens, rows: Tensor | None = None) -> Tensor:
        """Scores of a training batch.

        Args:
            context: [B, T].
            candidates: [U, T], each text once.
            rows: [B, C], which of the U candidates each example has; None when all examples share all of them.

        Returns:
            [B, C].
        """
        vectors = self.encode_candidates(candidates)
        return self.score(self.encode_context(context), vectors if rows is None else vectors[rows])

    def vectors(self, encoder: Encoder, tokens: Tokens) -> Tensor:
        """Encode and reduce, chunk by chunk."""
        parts, rows = [], []
        for index, chunk in encoder.chunks(tokens):
            states = encoder(chunk)
            parts.append(reduce(states, chunk.mask, self.reduction.kind, self.reduction.m, encoder.causal))
            rows.append(index)
        return self.normalise(in_order(parts, rows))

    def normalise(self, vectors: Tensor) -> Tensor:
        """Length 1 where the similarity is a cosine."""
        return functional.normalize(vectors, dim=-1) if self.cosine else vectors
