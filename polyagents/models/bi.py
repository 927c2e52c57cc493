"""The bi-encoder (paper 4.2): context and candidate are encoded apart, the score is the product of their vectors."""

import copy

import torch
from torch import Tensor, nn
from torch.nn import functional

from polyagents.models.attention import bi_scores
from polyagents.models.encoder import Encoder, in_chunks, in_order
from polyagents.models.options import ReductionOptions, TowerOptions
from polyagents.models.query import Query
from polyagents.models.reduction import reduce
from polyagents.models.tokens import Tokens

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

    def forward(self, context: Tokens, candidates: Tokens) -> Tensor:
        """Texts [B, T] and [C, T] -> scores [B, C] of all with all."""
        return self.score(self.encode_context(context), self.encode_candidates(candidates))

    def encode_context(self, tokens: Tokens) -> Tensor:
        """[B, T] -> [B, D]."""
        return in_chunks(self.context_encoder, self.context_part, in_order, tokens)

    def encode_candidates(self, tokens: Tokens) -> Tensor:
        """[C, T] -> [C, D]: independent of any context, so they can be kept."""
        return in_chunks(self.candidate_encoder, self.candidate_part, in_order, tokens)

    def context_part(self, chunk: Tokens) -> Tensor:
        """One chunk of contexts, [b, T] -> [b, D]."""
        return self.reduced(self.context_encoder, chunk)

    def candidate_part(self, chunk: Tokens) -> Tensor:
        """One chunk of candidates, [c, T] -> [c, D]."""
        return self.reduced(self.candidate_encoder, chunk)

    @staticmethod
    def join_context(parts: list[Tensor], rows: list[Tensor]) -> Tensor:
        """What `context_part` made of the chunks -> the batch, in its order."""
        return in_order(parts, rows)

    @staticmethod
    def rows_of(context: Tensor, rows: list[int]) -> Tensor:
        """Some contexts of an encoded batch, any of them repeatedly."""
        return context[rows]

    def score(self, context: Tensor, candidates: Tensor) -> Tensor:
        """Context [B, D] and candidates [C, D] or [B, C, D] -> scores [B, C], fp32."""
        return bi_scores(context, candidates)

    def query(self, context: Tensor) -> Query:
        """What `encode_context` returned, as what a large set of candidates is searched for."""
        vectors = context.unsqueeze(1)
        return Query(vectors, torch.ones_like(vectors[..., 0], dtype=torch.bool))

    def reduced(self, encoder: Encoder, chunk: Tokens) -> Tensor:
        """Encode and reduce: [b, T] -> [b, D]."""
        states = encoder(chunk)
        vectors = reduce(states, chunk.mask, self.reduction.kind, self.reduction.m, encoder.causal)
        return self.normalise(vectors)

    def normalise(self, vectors: Tensor) -> Tensor:
        """Length 1 where the similarity is a cosine."""
        return functional.normalize(vectors, dim=-1) if self.cosine else vectors
