"""The examples of a batch from ParlAI's observations."""

from collections.abc import Mapping, Sequence
from typing import Any

from polyagents.ranking.candidate_set import Candidate, Label
from polyagents.training.examples import Examples


def examples_of(observations: Sequence[Mapping[str, Any]]) -> Examples:
    """Return the examples of observations that have a context."""
    given = [candidates_of(one) for one in observations]
    return Examples(
        [one["text_vec"].tolist() for one in observations],
        [one["full_text"] for one in observations],
        [label_of(one) for one in observations],
        [own or [] for own in given] if any(own is not None for own in given) else None,
    )


def label_of(observation: Mapping[str, Any]) -> Label | None:
    """Return the label that ParlAI drew from an observation's labels, and all of them; None if it has none."""
    for field in ("labels", "eval_labels"):
        if observation.get(f"{field}_choice"):
            text, ids = observation[f"{field}_choice"], observation[f"{field}_vec"].tolist()
            return Label(Candidate(text, tuple(ids)), tuple(observation[field]))
    return None


def candidates_of(observation: Mapping[str, Any]) -> list[Candidate] | None:
    """Return the candidates of an observation; None if it has none, or they are not used."""
    vectors = observation.get("label_candidates_vecs")
    if vectors is None:
        return None
    pairs = zip(observation["label_candidates"], vectors, strict=True)
    return [Candidate(text, tuple(ids.tolist())) for text, ids in pairs]
