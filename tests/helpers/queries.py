"""Encoded contexts for searches that need no model."""

from dataclasses import dataclass

from polyagents.models.attention import poly_scores
from polyagents.models.query import Query
from polyagents.models.reduction import ContextVectors


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
