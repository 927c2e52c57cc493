"""The map from scores to probabilities, and the scores that it is fitted to and applied to.

    p(option | one of them is right) = softmax(score / temperature)
    p(none of them)                  = sigmoid(bias - evidence_weight · evidence - margin_weight · margin)

Evidence is the log of the sum of exp(score / temperature), margin the difference of the two best of these. A re-ranker
distributes the probability of its shortlist anew, by a temperature of its own; evidence and margin are then those of
its scores. So an option outside the shortlist keeps the probability that the first stage gives it.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from polyagents.errors import InputError
from polyagents.evaluation.intervals import Floats


@dataclass(frozen=True)
class Scored:
    """Scores of E examples."""

    scores: Floats  # [E, O] fp64; -inf where an example has fewer than O options
    right: NDArray[np.bool_]  # [E, O]; a row without any True has no right option
    groups: NDArray[np.int64]  # [E], numbered from 0; examples of one dialogue are not independent
    reranked: Floats | None = None  # [E, O], the scores of a re-ranker, -inf outside its shortlist; None without one

    def __len__(self) -> int:
        return len(self.scores)

    def rows(self, chosen: NDArray[np.int64] | NDArray[np.bool_]) -> "Scored":
        """Return some examples."""
        reranked = None if self.reranked is None else self.reranked[chosen]
        return Scored(self.scores[chosen], self.right[chosen], self.groups[chosen], reranked)

    @property
    def in_scope(self) -> NDArray[np.bool_]:
        """[E], whether an example has a right option."""
        return np.asarray(self.right.any(1))


@dataclass(frozen=True)
class ScoreMap:
    """The numbers of the map."""

    temperature: float
    rerank_temperature: float | None = None  # of the re-ranker's scores; None without one
    none_bias: float | None = None  # None if "none of these" was not learnt: it has probability 0 then
    evidence_weight: float = 1.0
    margin_weight: float = 0.0

    def probabilities(self, scored: Scored) -> tuple[Floats, Floats]:
        """Return the probability [E, O] of every option, and [E] of none of them; together they are 1."""
        options = softmax(scored.scores / self.temperature)
        if scored.reranked is not None and self.rerank_temperature:
            listed = np.isfinite(scored.reranked)
            mass = np.where(listed, options, 0).sum(1, keepdims=True)
            options = np.where(listed, mass * softmax(scored.reranked / self.rerank_temperature), options)
        if self.none_bias is None:
            return options, np.zeros(len(scored))
        evidence, margin = self.features(scored).T
        none = expit(self.none_bias - self.evidence_weight * evidence - self.margin_weight * margin)
        return options * (1 - none)[:, None], none

    def probabilities_of(self, scores: Floats, reranked: Floats | None = None) -> tuple[Floats, float]:
        """Return the probability of every option of one context by scores, [O] -> [O], and of none of them.

        A re-ranker's are -inf outside its shortlist; if other scores are not finite, that is an InputError.
        """
        listed = [] if reranked is None else reranked[reranked != -np.inf]
        if not np.isfinite([*scores, *listed]).all():
            raise InputError("The model gives infinite or NaN scores, from which nothing can be decided.")
        last = None if reranked is None else reranked[None]
        one = Scored(scores[None], np.zeros((1, len(scores)), bool), np.zeros(1, np.int64), last)
        options, none = self.probabilities(one)
        return options[0], float(none[0])

    def features(self, scored: Scored) -> Floats:
        """Return evidence and margin, [E, 2]; with one option the margin is 0."""
        if scored.reranked is not None and self.rerank_temperature:
            logits = scored.reranked / self.rerank_temperature
        else:
            logits = scored.scores / self.temperature
        best = -np.sort(-logits, axis=1)[:, :2]
        margin = best[:, 0] - best[:, -1]
        return np.stack([log_sum_exp(logits), np.where(np.isfinite(margin), margin, 0)], axis=1)


def log_sum_exp(logits: Floats) -> Floats:
    """Return the logarithm [E] of the sum of exp(logits [E, O]); of each row, one is finite."""
    largest = logits.max(1)
    found: Floats = largest + np.log(np.exp(logits - largest[:, None]).sum(1))
    return found


def softmax(logits: Floats) -> Floats:
    """Return probabilities [E, O]; -inf has none."""
    found: Floats = np.exp(logits - log_sum_exp(logits)[:, None])
    return found
