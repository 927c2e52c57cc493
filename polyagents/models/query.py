"""Encoded contexts, as what candidates are scored and searched with."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from polyagents.models.reduction import ContextVectors, stacked

# Dot products [B, M, C] held at once. In fp32, 16 million are 64 MB.
PRODUCTS = 16_000_000


class Scorer(Protocol):
    """What decides the scores: an architecture that encodes contexts and candidates apart."""

    def score(self, context: ContextVectors, candidates: Tensor) -> Tensor:
        """Score candidates [C, D], or [B, C, D], for B contexts: [B, C] fp32."""
        ...

    def upper_bound(self, largest: Tensor) -> Tensor | None:
        """Bound scores from above, given the largest dot product of a candidate with a context's vectors.

        A search scans for that product alone, and scores what its bound does not rule out. The bound must not fall
        where the product rises.

        Args:
            largest: [n, B], of n candidates.

        Returns:
            [n, B], or None where no such bound is known: then every candidate is scored.
        """
        ...


@dataclass(frozen=True)
class Query:
    """What is searched for.

    Attributes:
        scorer: the architecture that encoded the contexts.
        context: the context vectors [B, M, D] and their mask [B, M].
    """

    scorer: Scorer
    context: ContextVectors

    def __len__(self) -> int:
        return self.context.vectors.size(0)

    @property
    def products(self) -> int:
        """How many dot products one candidate takes, B x M."""
        return self.context.mask.numel()

    @property
    def device(self) -> torch.device:
        """Where the context vectors are."""
        return self.context.vectors.device

    @torch.no_grad()
    def scores(self, candidates: Tensor) -> Tensor:
        """Score candidates [C, D] for every context, in blocks that fit the memory: [B, C] fp32, without gradient."""
        rows = max(PRODUCTS // max(self.products, 1), 1)
        if len(candidates) <= rows:
            return self.scorer.score(self.context, candidates)
        return torch.cat([self.scorer.score(self.context, part) for part in candidates.split(rows)], dim=1)

    def one(self, example: int) -> "Query":
        """The query of one context."""
        return Query(self.scorer, self.context.rows(slice(example, example + 1)))


def stack_queries(queries: Sequence[Query]) -> Query:
    """Several queries of one architecture, as one."""
    return Query(queries[0].scorer, stacked([query.context for query in queries]))
