"""Encoded contexts for searches that need no model."""

from dataclasses import dataclass

import torch

from polyagents.models.formulas import ContextVectors, poly_scores
from polyagents.models.two_towers import Query


@dataclass(frozen=True)
class PolyScorer:
    """A poly-encoder's formula."""

    sharpness: float = 1.0

    def score(self, context, candidates):
        return poly_scores(context.vectors, context.mask, candidates, self.sharpness)

    def upper_bound(self, largest):
        return largest


def poly_query(vectors, mask, sharpness=1.0):
    """Context vectors [B, M, D] and their mask [B, M], as a poly-encoder's query."""
    return Query(PolyScorer(sharpness), ContextVectors(vectors, mask))


def drawn_query(width, m=4, examples=6, spread=1.0):
    """Contexts of m vectors that lie about a centre each; half of the last one's are padding."""
    generator = torch.Generator().manual_seed(1)
    vectors = torch.randn(examples, 1, width, generator=generator)
    vectors = vectors + spread * torch.randn(examples, m, width, generator=generator)
    mask = torch.ones(examples, m).bool()
    mask[-1, m // 2 + 1 :] = False
    return poly_query(vectors, mask)
