"""A calibration of a model, or of a model and its re-ranker, from examples."""

from polyagents.decisions.calibration import Calibration, Identity, MadeFor, digest_of
from polyagents.decisions.examples import DecisionExamples
from polyagents.decisions.scoring import scores_of
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
    return Calibration.of(scored, made_for, scale)
