"""Dropout that begins with the second pass over the examples: in the first, no example can be known by heart."""

from polyagents.models.backbone import dropouts_of
from polyagents.ranking.ranking_model import RankingModel
from polyagents.training_loop.schedule import ENDING


class LateDropout:
    """The dropout of a run: the model's own in all passes but the first.

    `--dropout` decides for all passes. So does a rate that does not fall to the end of the run, as the paper's.
    In short runs, whose first pass is most of them or all, this costs less time and ranks better (docs/results.md).
    """

    def __init__(self, model: RankingModel, scheduler: str):
        self.own = dropouts_of(model.module) if is_late(scheduler, model.settings.encoder.dropout) else []

    def follow(self, epochs: float) -> None:
        """Drop in the next batch what belongs to the passes that are completed."""
        for module, name, value in self.own:
            setattr(module, name, value if epochs >= 1 else 0.0)


def is_late(scheduler: str, dropout: float | None) -> bool:
    """Return whether a run drops nothing in its first pass; a dropout of None is the backbone's own."""
    return scheduler in ENDING and dropout is None
