"""Two towers: context and candidate are encoded apart, and a score is made of their vectors.

What bi- and poly-encoder share, and what a further architecture of this kind builds on: it says what a context's
vectors are, how a score is made of them, and which bound a search may rely on.
"""

import abc
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from polyagents.models.encoder import Encoder, in_chunks, in_order
from polyagents.models.model_options import RankingOptions, TowerOptions
from polyagents.models.query import Query
from polyagents.models.reduction import COSINE_SCALE, ContextVectors, reduce, stacked
from polyagents.models.tokens import Tokens


class TwoTowers(nn.Module, abc.ABC):
    """Two encoders that start from the same weights (or one), and red() for candidates.

    Attributes:
        options_type: the class of its options; its fields are the flags of its agent.
        logit_scale: what the training loss multiplies the scores by: 1 for dot products.
    """

    options_type: ClassVar[type[RankingOptions]] = TowerOptions

    def __init__(self, encoder: Encoder, options: TowerOptions):
        super().__init__()
        self.context_encoder = encoder
        self.candidate_encoder = encoder if options.share_encoders else encoder.twin()
        self.kind, self.m = options.reduction_type, options.poly_n_codes
        self.cosine = options.similarity == "cosine"
        self.logit_scale = COSINE_SCALE if self.cosine else 1.0

    @abc.abstractmethod
    def context_vectors(self, chunk: Tokens) -> ContextVectors:
        """Encode a chunk of contexts: [b, T] -> vectors [b, M, D] and mask [b, M]."""

    @abc.abstractmethod
    def score(self, context: ContextVectors, candidates: Tensor) -> Tensor:
        """Score candidates [C, D], or [B, C, D], for context vectors [B, M, D]: [B, C] fp32."""

    def upper_bound(self, largest: Tensor) -> Tensor | None:
        """Say that no bound is known (models/query.py); a search then scores every candidate."""
        return None

    def candidate_vectors(self, chunk: Tokens) -> Tensor:
        """Encode a chunk of candidates: [c, T] -> [c, D]."""
        return self.reduced(self.candidate_encoder, chunk)

    def candidate_weights(self) -> dict[str, Tensor]:
        """All weights that decide a candidate's vector, by name: those that only contexts meet are left out."""
        return {name: weight for name, weight in self.state_dict().items() if not name.startswith("context_encoder.")}

    def encode_context(self, tokens: Tokens) -> ContextVectors:
        """Encode contexts [B, T], chunk by chunk: vectors [B, M, D] and mask [B, M]."""
        return in_chunks(self.context_encoder, self.context_vectors, contexts_in_order, tokens)

    def encode_candidates(self, tokens: Tokens) -> Tensor:
        """Encode candidates [C, T], chunk by chunk: [C, D], independent of any context, so they can be kept."""
        return in_chunks(self.candidate_encoder, self.candidate_vectors, in_order, tokens)

    def forward(self, context: Tokens, candidates: Tokens) -> Tensor:
        """Score texts [B, T] and [C, T], all with all: [B, C]."""
        return self.score(self.encode_context(context), self.encode_candidates(candidates))

    def query(self, context: ContextVectors) -> Query:
        """Encoded contexts, as what a large set of candidates is searched for."""
        return Query(self, context)

    def reduced(self, encoder: Encoder, chunk: Tokens) -> Tensor:
        """Encode and reduce a chunk: [b, T] -> [b, D], of length 1 where the similarity is a cosine."""
        return self.normalise(reduce(encoder(chunk), chunk.mask, self.kind, self.m, encoder.causal))

    def normalise(self, vectors: Tensor) -> Tensor:
        """Give vectors length 1 where the similarity is a cosine."""
        return functional.normalize(vectors, dim=-1) if self.cosine else vectors


def contexts_in_order(parts: list[ContextVectors], rows: list[Tensor]) -> ContextVectors:
    """The context vectors of chunks, in the order of the batch; chunks of short texts may have fewer than M."""
    return stacked(parts).rows(torch.cat(rows).argsort())
