"""The bi-encoder (paper 4.2): context and candidate are encoded apart, the score is the product of their vectors."""

from typing import ClassVar

from torch import Tensor

from polyagents.models.attention import bi_scores
from polyagents.models.reduction import ContextVectors
from polyagents.models.tokens import Tokens
from polyagents.models.two_towers import TwoTowers


class BiEncoder(TwoTowers):
    """A context has one vector, which red() makes as it does those of candidates."""

    short_name: ClassVar[str] = "bi"
    label: ClassVar[str] = "bi-encoder"

    def context_vectors(self, chunk: Tokens) -> ContextVectors:
        """Encode a chunk of contexts: [b, T] -> vectors [b, 1, D] and mask [b, 1]."""
        vectors = self.reduced(self.context_encoder, chunk).unsqueeze(1)
        return ContextVectors(vectors, vectors.new_ones(vectors.shape[:2]).bool())

    def score(self, context: ContextVectors, candidates: Tensor) -> Tensor:
        """Score candidates [C, D], or [B, C, D], for context vectors [B, 1, D]: [B, C] fp32."""
        return bi_scores(context.vectors[:, 0], candidates)

    def upper_bound(self, largest: Tensor) -> Tensor:
        """The one dot product is the score."""
        return largest
