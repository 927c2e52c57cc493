"""Encoded contexts, as what candidates are scored and searched with."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from polyagents.models.attention import bi_scores, poly_scores


@dataclass(frozen=True)
class Query:
    """What is searched for: the encoded contexts.

    Attributes:
        vectors: [B, M, D] fp32; M is 1 for a bi-encoder.
        mask: [B, M], False for context vectors that a short text does not have.
        sharpness: multiplies the dot products inside the softmax.
    """

    vectors: Tensor
    mask: Tensor
    sharpness: float = 1.0

    def __len__(self) -> int:
        return self.vectors.size(0)

    def scores(self, candidates: Tensor) -> Tensor:
        """Candidates [C, D] -> [B, C] fp32."""
        if self.vectors.size(1) == 1:
            return bi_scores(self.vectors.squeeze(1), candidates)
        return poly_scores(self.vectors, self.mask, candidates, self.sharpness)

    def one(self, example: int) -> "Query":
        """The query of one context."""
        return Query(self.vectors[example : example + 1], self.mask[example : example + 1], self.sharpness)


def stack_queries(queries: Sequence[Query]) -> Query:
    """Several, as one; what has fewer context vectors is filled up."""
    m = max(query.vectors.size(1) for query in queries)
    missing = [m - query.vectors.size(1) for query in queries]
    vectors = [functional.pad(query.vectors, (0, 0, 0, n)) for query, n in zip(queries, missing, strict=True)]
    masks = [functional.pad(query.mask, (0, n)) for query, n in zip(queries, missing, strict=True)]
    return Query(torch.cat(vectors), torch.cat(masks), queries[0].sharpness)
