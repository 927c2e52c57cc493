"""ParlAI's replies from ranked texts, and their metrics."""

import random
from collections.abc import Sequence

import numpy as np
from parlai.core.metrics import AverageMetric
from parlai.core.opt import Opt
from parlai.core.torch_agent import Output
from torch import Tensor

from polyagents.index.top_k import top_k
from polyagents.parlai_agents.fixed_candidates import FixedCandidates
from polyagents.ranking.candidate_set import CandidateSet
from polyagents.training.objective import evaluation_values

TEACHER_RECALL_AT = (1, 5, 10, 100)  # the hits@k that ParlAI's teachers count themselves

Metrics = dict[str, "list[AverageMetric | None]"]
"""A value for each example; None if an example has nothing to measure."""


def evaluation_metrics(
    scores: Tensor, candidates: CandidateSet, logit_scale: float, recall_at: Sequence[int]
) -> Metrics:
    """Compute loss, rank, mrr, number of candidates, and the hits@k that ParlAI's teachers do not report already."""
    assert candidates.labels is not None
    labelled = (candidates.labels >= 0).tolist()
    further = [k for k in recall_at if k not in TEACHER_RECALL_AT]
    values = evaluation_values(scores, candidates, logit_scale, further)
    return {
        name: [AverageMetric(value) if wanted else None for value, wanted in zip(row.tolist(), labelled, strict=True)]
        for name, row in values.items()
    }


def tie_order(candidates: CandidateSet, example: int, count: int) -> np.ndarray | None:
    """Return the order of the first `count` candidates of an example if scores are equal; None without labels.

    First what is wrong, then the label that is ranked, then what reads as it does. So the list says what `label_ranks`
    says: ParlAI's teachers find the label in it by its text, which other texts of the same token ids do not have.
    """
    if candidates.labels is None:
        return None
    order = 2 * candidates.right[example, :count].numpy().astype(int)
    if (label := int(candidates.labels[example])) >= 0:
        order[label] = 1
    return order


class Replies:
    """Makes replies of ranked texts, by ParlAI's flags."""

    def __init__(self, opt: Opt, rank_top_k: int):
        self.opt = opt
        self.ranked_texts = int(rank_top_k if rank_top_k > 0 else opt["cap_num_predictions"])

    def of_scores(self, scores: np.ndarray, candidates: CandidateSet) -> Output:
        """Return the best texts of every example by scores [B, C], highest first; a label comes after its ties."""
        # ParlAI's teachers count their hits in this list.
        k = self.ranked_texts if candidates.labels is None else max(self.ranked_texts, *TEACHER_RECALL_AT)
        ranked, values = [], []
        for example, row in enumerate(scores):
            texts = candidates.of(example)
            row = row[: len(texts)]
            index = top_k(row, max(k, 1), tie_order(candidates, example, len(texts)))
            ranked.append([texts[i] for i in index])
            values.append([float(row[i]) for i in index])
        return self._output(ranked, values)

    def of_fixed(self, fixed: FixedCandidates, contexts: Sequence[Sequence[int]], said: set[str]) -> Output:
        """Return the best fixed candidates that were not said, unless nothing else remains."""
        k, index = max(self.ranked_texts, 1), fixed.index
        ranked, values = [], []
        for hits in index.search(index.query(fixed.model, contexts), k + len(said)):
            pairs = list(zip(hits.texts, map(float, hits.scores), strict=True))
            best = ([pair for pair in pairs if pair[0] not in said] or pairs)[:k]
            ranked.append([text for text, _ in best])
            values.append([score for _, score in best])
        return self._output(ranked, values)

    def _output(self, ranked: list[list[str]], values: list[list[float]]) -> Output:
        if self.opt.get("inference", "max") == "topk":
            chosen = [random.choice(texts[: self.opt["topk"]]) for texts in ranked]
        else:
            chosen = [texts[0] for texts in ranked]
        if not self.opt.get("return_cand_scores"):
            return Output(chosen, ranked)
        # The second field is for people: `interactive --return-cand-scores true --display-add-fields top_replies`.
        lines = [
            [f"{score:9.4f}  {text}" for text, score in zip(texts, row, strict=True)]
            for texts, row in zip(ranked, values, strict=True)
        ]
        return Output(chosen, ranked, sorted_scores=values, top_replies=lines)
