"""Ranks of labels from texts alone: for a pipeline that re-ranks, and in a pool larger than the task's own lists."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from polyagents.benchmarks.study.measuring import Example
from polyagents.index.in_memory import Candidates
from polyagents.ranker import Match, Ranker
from polyagents.ranking.candidate_set import label_ranks
from polyagents.ranking.two_tower_model import TwoTowerModel
from polyagents.text.normalize import normalized


@dataclass(frozen=True)
class Pipeline:
    """One ranker, or a first one whose best candidates are re-ranked by a second one.

    Attributes:
        first: ranks all candidates.
        then: ranks the best of them; None if the first one's order stays.
        top: how many these are.
    """

    first: Ranker
    then: Ranker | None = None
    top: int = 1

    def reply(self, context: str, candidates: Candidates) -> list[Match]:
        """Return the best candidate for a context."""
        matches = self.first.rank(context, candidates, top_k=self.top)
        return matches if self.then is None else self.then.rerank(context, matches, top_k=1)

    def searches(self) -> bool:
        """Whether its first ranker encodes candidates separately, so that a large pool is affordable."""
        return isinstance(self.first.model, TwoTowerModel)

    def rank_of_label(self, example: Example, candidates: Sequence[str], scores: np.ndarray) -> int:
        """Return the rank of an example's label, from 1; it loses ties, and any right candidate counts.

        Args:
            candidates: C texts, a right one among them.
            scores: [C], of the first ranker.
        """
        right = is_right(example, candidates)
        rank = rank_of(scores, right)
        if self.then is None or rank > self.top:
            return rank
        best = np.lexsort((right, -scores))[: self.top]  # of equal scores, the right candidates come last
        return rank_of(self.then.score(example.context, [candidates[i] for i in best]), right[best])


def is_right(example: Example, candidates: Sequence[str]) -> np.ndarray:
    """Return which candidates read like one of the example's labels, [C].

    Args:
        candidates: C texts.
    """
    labels = {normalized(label) for label in example.labels}
    return np.array([normalized(candidate) in labels for candidate in candidates])


def rank_of(scores: np.ndarray, right: np.ndarray) -> int:
    """Return the rank of the best right candidate.

    Args:
        scores: [C].
        right: [C], which candidates are right.
    """
    given = torch.from_numpy(scores)[None]
    return int(label_ranks(given, torch.from_numpy(right)[None], torch.ones_like(given, dtype=torch.bool)))


def ranks_in_own_lists(pipeline: Pipeline, examples: Sequence[Example]) -> list[int]:
    """Return the rank of each example's label among its own candidates."""
    ranks = []
    for example in examples:
        candidates = list(example.candidates)
        if not is_right(example, candidates).any():
            candidates.append(example.labels[0])
        ranks.append(pipeline.rank_of_label(example, candidates, pipeline.first.score(example.context, candidates)))
    return ranks


def ranks_in_pool(pipeline: Pipeline, examples: Sequence[Example], pool: Sequence[str]) -> list[int]:
    """Return the rank of each example's label among all of a pool, which contains it."""
    scores = pipeline.first.score([example.context for example in examples], pool)
    return [pipeline.rank_of_label(example, pool, row) for example, row in zip(examples, scores, strict=True)]
