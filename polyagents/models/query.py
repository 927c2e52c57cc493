"""Encoded contexts as a query, for which candidates are scored and searched."""

from dataclasses import dataclass

import torch
from torch import Tensor

from polyagents.models.reduction import ContextVectors
from polyagents.models.two_towers import TwoTowers
from polyagents.surroundings import undisturbed

# Dot products [B, M, C] held at once. In fp32, 16 million are 64 MB.
PRODUCTS = 16_000_000


@dataclass(frozen=True)
class Query:
    """Encoded contexts, vectors [B, M, D] and mask [B, M], with the architecture that scores candidates for them."""

    scorer: TwoTowers
    context: ContextVectors

    def __len__(self) -> int:
        return self.context.vectors.size(0)

    @property
    def products(self) -> int:
        """The number of dot products that one candidate takes, B times M."""
        return self.context.mask.numel()

    @property
    def device(self) -> torch.device:
        """The device of the context vectors."""
        return self.context.vectors.device

    @undisturbed()
    def scores(self, candidates: Tensor) -> Tensor:
        """Score candidates [C, D] for every context, in blocks that fit the memory: [B, C] fp32, without gradient."""
        # An architecture holds all dot products [B, M, C] at once, so a large set of candidates goes through in parts;
        # a candidate's scores do not depend on the others.
        rows = max(PRODUCTS // max(self.context.mask.numel(), 1), 1)
        if len(candidates) <= rows:
            return self.scorer.score(self.context, candidates)
        return torch.cat([self.scorer.score(self.context, part) for part in candidates.split(rows)], dim=1)

    def one(self, example: int) -> "Query":
        """Return the query of one context."""
        return Query(self.scorer, self.context.rows(slice(example, example + 1)))
