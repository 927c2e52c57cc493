"""The bi-encoder (paper 4.2): context and candidate are encoded separately, the score is their dot product."""

from typing import ClassVar

from torch import Tensor

from polyagents.models.formulas import ContextVectors, bi_scores, reduce
from polyagents.models.tokens import Tokens
from polyagents.models.two_towers import TwoTowers


class BiEncoder(TwoTowers):
    """A bi-encoder: a context has one vector, reduced as a candidate's is."""

    short_name: ClassVar[str] = "bi"
    label: ClassVar[str] = "bi-encoder"

    def context_vectors(self, chunk: Tokens) -> ContextVectors:
        """Encode a chunk of contexts: [b, T] -> vectors [b, 1, D] and mask [b, 1]."""
        encoder, first = self.context_encoder, self.left_out[0]
        reduced = reduce(encoder(chunk)[:, first:], chunk.mask[:, first:], self.kind, self.m, encoder.causal)
        vectors = self.normalise(reduced).unsqueeze(1)
        return ContextVectors(vectors, vectors.new_ones(vectors.shape[:2]).bool())

    def score(self, context: ContextVectors, candidates: Tensor) -> Tensor:
        """Score as `TwoTowers.score` says, by one dot product."""
        return bi_scores(context.vectors[:, 0], candidates)

    def upper_bound(self, largest: Tensor) -> Tensor:
        """Return the dot product itself, which is the score."""
        return largest
