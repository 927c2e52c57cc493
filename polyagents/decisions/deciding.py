"""A decision: the option that is chosen, with its probability, or none of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from polyagents.decisions.score_map import Scored, ScoreMap
from polyagents.errors import InputError
from polyagents.evaluation.intervals import Floats
from polyagents.files.python_arguments import python_value


@dataclass(frozen=True)
class Decision:
    """A choice among options.

    >>> decision = ranker.decide("do you have a dog ?", ["hello", "yes , i have two dogs"])
    >>> decision.choice, decision.calibrated
    ('yes , i have two dogs', False)

    Attributes:
        choice: the name of the option; a text without a name is its own. None for none of them.
        probability: of the choice; None without a calibration.
        probabilities: of every option, by name; with `none_probability` they sum to 1. None without a calibration.
        none_probability: 0 if "none of these" was not learnt; None without a calibration.
        margin: the score of the best option less the next one's; None if there is only one.
        calibrated: whether there is a calibration of this model.
        notes: sentences about what the probability means here, such as a shortlist.
    """

    choice: str | None
    probability: float | None
    probabilities: Mapping[str, float] | None
    none_probability: float | None
    margin: float | None
    calibrated: bool
    notes: tuple[str, ...] = ()


def decisions_of(
    names: Sequence[Sequence[str]],
    scores: Floats,
    reranked: Floats | None,
    calibrated: ScoreMap | None,
    none: bool | float | None,
    notes: tuple[str, ...] = (),
) -> list[Decision]:
    """Decide for B contexts; of options of the same probability, the one whose name comes first is chosen.

    Args:
        names: the names of each context's options; all have the same number.
        scores: [B, O] of the options.
        reranked: [B, O] of a re-ranker, -inf outside its shortlist; None without one.
        calibrated: None without a calibration.
        none: whether "none of these" may be chosen: None if it was learnt; a number if the best option is less
            probable.

    Raises:
        InputError: `none` needs a calibration, or one that has learnt it.
    """
    none = checked_none(none, calibrated)
    last = scores if reranked is None else reranked
    if calibrated is None:
        return [
            Decision(own[best(row, own)], None, None, None, margin_of(row), False, notes)
            for own, row in zip(names, last, strict=True)
        ]
    rows = np.arange(len(scores))
    options, nothing = calibrated.probabilities(Scored(scores, np.zeros(scores.shape, bool), rows, reranked))
    if none is False:
        options, nothing = options / np.maximum(1 - nothing, np.finfo(float).tiny)[:, None], np.zeros(len(scores))
    least = 0.0 if none is None or isinstance(none, bool) else none  # of the best option, unless none is chosen
    found = []
    for own, probabilities, p_none, row in zip(names, options, nothing.tolist(), last, strict=True):
        chosen = best(probabilities, own)
        probability = float(probabilities[chosen])
        choice, certain = (None, p_none) if probability < max(p_none, least) else (own[chosen], probability)
        by_name = dict(zip(own, probabilities.tolist(), strict=True))
        found.append(Decision(choice, certain, by_name, p_none, margin_of(row), True, notes))
    return found


def checked_none(none: Any, calibrated: ScoreMap | None, problem: str | None = None) -> bool | float | None:
    """Return `none` as Python's own value; refuse, with an InputError, an exit that no calibration can give.

    Args:
        problem: why a calibration that there is does not hold.
    """
    none = python_value(none)
    if none is None or none is False:
        return none
    if calibrated is None:
        why = problem or "This model is not calibrated: run polyagents calibrate first."
        raise InputError(f"none needs probabilities. {why}")
    if none is True and calibrated.none_bias is None:
        raise InputError(
            "The calibration has seen no example without a right option; calibrate with some, or give none=0.5 to "
            "choose nothing below that probability."
        )
    if not isinstance(none, (int, float)) or not 0 <= none <= 1:
        raise InputError(f"none is {none!r:.60}; give a probability from 0 to 1, True or False.")
    return none


def best(values: Floats, names: Sequence[str]) -> int:
    """Return the place of the largest value; of equal ones, whichever name comes first."""
    places = np.flatnonzero(values == values.max())
    return min(places.tolist(), key=lambda place: names[place])


def margin_of(scores: Floats) -> float | None:
    """Return the best score less the next; None if there is only one."""
    if len(scores) < 2:
        return None
    first, second = -np.partition(-scores, 1)[:2]
    return float(first - second) if np.isfinite(second) else None
