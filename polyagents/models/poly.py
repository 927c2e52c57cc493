"""The poly-encoder (paper 4.4): a bi-encoder whose context keeps m vectors, to which each candidate attends."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from polyagents.models.attention import poly_scores
from polyagents.models.bi import BiEncoder
from polyagents.models.encoder import Encoder, in_chunks, in_order
from polyagents.models.options import PolyOptions, ReductionOptions, TowerOptions
from polyagents.models.query import Query
from polyagents.models.reduction import ContextVectors, context_vectors
from polyagents.models.tokens import Tokens


class PolyEncoder(BiEncoder):
    """Candidates as in the bi-encoder; the context has m vectors, and one more attention decides between them."""

    def __init__(self, encoder: Encoder, reduction: ReductionOptions, towers: TowerOptions, poly: PolyOptions):
        super().__init__(encoder, reduction, towers)
        self.poly = poly
        self.codes = None
        if poly.context_vectors == "codes":
            self.codes = nn.Parameter(torch.empty(reduction.m, encoder.width))
            if poly.codes_init == "uniform":
                nn.init.uniform_(self.codes)
            else:
                nn.init.normal_(self.codes, std=0.02)
        self.sharpness = self.logit_scale * (encoder.width**-0.5 if poly.attention == "sqrt" else 1.0)

    def encode_context(self, tokens: Tokens) -> ContextVectors:  # type: ignore[override]
        """[B, T] -> vectors [B, M, D] and mask [B, M]."""
        return in_chunks(self.context_encoder, self.context_part, self.join_context, tokens)

    def context_part(self, chunk: Tokens) -> ContextVectors:  # type: ignore[override]
        """One chunk of contexts, [b, T] -> vectors [b, M, D] and mask [b, M]."""
        states = self.context_encoder(chunk)
        vectors, mask = context_vectors(states, chunk.mask, self.poly.context_vectors, self.reduction.m, self.codes)
        return ContextVectors(self.normalise(vectors), mask)

    @staticmethod
    def join_context(parts: list[ContextVectors], rows: list[Tensor]) -> ContextVectors:  # type: ignore[override]
        """What `context_part` made of the chunks -> the batch, in its order."""
        m = max(part.vectors.size(1) for part in parts)  # chunks of short texts may have fewer than m
        vectors = [functional.pad(part.vectors, (0, 0, 0, m - part.vectors.size(1))) for part in parts]
        mask = [functional.pad(part.mask, (0, m - part.mask.size(1))) for part in parts]
        return ContextVectors(in_order(vectors, rows), in_order(mask, rows))

    @staticmethod
    def rows_of(context: ContextVectors, rows: list[int]) -> ContextVectors:  # type: ignore[override]
        """Some contexts of an encoded batch, any of them repeatedly."""
        return ContextVectors(context.vectors[rows], context.mask[rows])

    def score(self, context: ContextVectors, candidates: Tensor) -> Tensor:  # type: ignore[override]
        """Context vectors [B, M, D] and candidates [C, D] or [B, C, D] -> scores [B, C], fp32."""
        return poly_scores(context.vectors, context.mask, candidates, self.sharpness)

    def query(self, context: ContextVectors) -> Query:  # type: ignore[override]
        """What `encode_context` returned, as what a large set of candidates is searched for."""
        return Query(context.vectors, context.mask, self.sharpness)
