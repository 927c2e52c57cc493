"""Exact searches on a device, beside one reading of the matrix: the fastest that any search of all candidates can be.

Vectors and contexts are drawn: the time does not depend on what they say, as long as few candidates are near the best.
"""

from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from torch import Tensor

from polyagents.benchmarks.gpu import rows
from polyagents.benchmarks.measure import side_by_side
from polyagents.index.exact import score_all, search
from polyagents.index.in_memory import InMemoryCandidates
from polyagents.index.top_k import TopCandidates
from polyagents.models.formulas import ContextVectors, poly_scores
from polyagents.models.two_towers import Query, TwoTowers

# Candidates, width, context vectors, contexts at once.
SHAPES = ((100_000, 768, 64, 64), (100_000, 768, 64, 1), (1_000_000, 384, 64, 1), (1_000_000, 768, 64, 64))
SMALL = ((2_000, 64, 16, 4), (2_000, 64, 16, 1))
TOP = 10


@dataclass(frozen=True)
class PolyScorer:
    """The formula of a poly-encoder, without a model."""

    def score(self, context: ContextVectors, candidates: Tensor) -> Tensor:
        """TwoTowers: a weighted mean of dot products.

        Args:
            context: vectors [B, M, D] and their mask.
            candidates: [C, D], or [B, C, D].
        """
        return poly_scores(context.vectors, context.mask, candidates)

    def upper_bound(self, largest: Tensor) -> Tensor:
        """TwoTowers: the largest of them."""
        return largest


def measured(case: rows.Row, device: torch.device) -> rows.Row:
    """Measure a search, and compare what it finds with all scores.

    Args:
        device: where the contexts are.
    """
    generator = torch.Generator().manual_seed(0)
    count, width, m, contexts = case["candidates"], case["width"], case["m"], case["contexts"]
    stored = InMemoryCandidates([], torch.randn(count, width, generator=generator))
    vectors = torch.randn(contexts, m, width, generator=generator).to(device)
    scorer = cast(TwoTowers, PolyScorer())  # a search asks for these two methods only
    asked = Query(scorer, ContextVectors(vectors, torch.ones(contexts, m, device=device).bool()))
    matrix = stored.all.vectors.to(device)
    times = side_by_side({"search": lambda: search(asked, stored, TOP), "read": lambda: matrix.amax()})
    first = asked.one(0)
    expected = TopCandidates.of(score_all(first, stored).cpu().numpy(), TOP)
    is_equal = np.allclose(search(first, stored, TOP).scores, expected.scores, rtol=1e-4)
    return {
        "search ms": times["search"],
        "reading ms": times["read"],
        "of reading": times["search"] / times["read"],
        "equal to all scores": bool(is_equal),
    }


def main() -> None:
    """Measure what is missing."""
    opt = rows.parser("gpu.search", "Exact search on a device.").parse_args()
    names = ("candidates", "width", "m", "contexts")
    cases = [dict(zip(names, shape, strict=True)) for shape in (SHAPES if opt.device == "cuda" else SMALL)]
    rows.measure_missing(opt.rows, cases, lambda case: measured(case, torch.device(opt.device)))


if __name__ == "__main__":
    main()
