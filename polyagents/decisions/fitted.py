"""A calibration of a model, or of a model and its re-ranker, from examples; and how good it is on others."""

from typing import NamedTuple

from polyagents.decisions.calibration import Calibration, Identity, MadeFor, digest_of, fitted_to
from polyagents.decisions.examples import DecisionExamples
from polyagents.decisions.figures import Figures, choices_of, figures_of
from polyagents.decisions.score_map import Scored
from polyagents.decisions.scoring import scores_of
from polyagents.decisions.thresholds import Threshold
from polyagents.ranking.ranking_model import RankingModel


def calibration_of(
    model: RankingModel,
    identity: Identity,
    examples: DecisionExamples,
    second: tuple[RankingModel, Identity] | None,
    rerank_top: int,
) -> Calibration:
    """Score the examples, fit and measure.

    Args:
        second: the re-ranker; None without one.

    Raises:
        InputError: there are too few examples.
    """
    scored = scores_of(model, examples, second and second[0], rerank_top)
    counts = [len(examples.shared.names)] if examples.shared is not None else [len(own) for own in examples.own or ()]
    made_for = MadeFor(
        str(identity),
        None if second is None else str(second[1]),
        None if second is None else rerank_top,
        None if examples.shared is None else digest_of(examples.shared.texts),
        min(counts),
        max(counts),
        examples.digest(),
    )
    scale = (model if second is None else second[0]).module.logit_scale
    return fitted_to(scored, made_for, scale)


class Measured(NamedTuple):
    """What a calibration is worth on examples that it was not fitted to.

    Attributes:
        threshold: the one that promised PRECISION, None if none did.
        precision: the share of right answers among those given above it; as is coverage, None without a threshold.
        coverage: the share of contexts that are answered.
    """

    figures: Figures
    threshold: Threshold | None
    precision: float | None
    coverage: float | None


PRECISION = 0.95


def measured(found: Calibration, scored: Scored) -> Measured:
    """Measure a calibration on scores of other examples."""
    options, none = found.map.probabilities(scored)
    figures, threshold = figures_of(options, none, scored), found.threshold_for(PRECISION)
    if threshold is None:
        return Measured(figures, None, None, None)
    choices = choices_of(options, none, scored)
    answered = choices.is_option & (choices.option_confidence >= threshold.threshold)
    precision = float(choices.option_right[answered].mean()) if answered.any() else None
    return Measured(figures, threshold, precision, float(answered.mean()))
