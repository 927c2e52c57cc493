"""A calibration: the map of one model, what it was fitted to, and how good its probabilities are, in a file of JSON.

It lies next to the model, as `M.calibration.json`, or as `calibration.json` in a model folder. It may be deleted.
"""

import dataclasses
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from polyagents.console import range_of
from polyagents.decisions.examples import DecisionExamples
from polyagents.decisions.figures import (
    Bin,
    Figures,
    Level,
    Threshold,
    choices_of,
    figures_of,
    levels_of,
    reliability,
    threshold_for,
)
from polyagents.decisions.fitting import check_enough_examples, cross_fitted, fit
from polyagents.decisions.score_map import Scored, ScoreMap
from polyagents.decisions.scoring import scores_of
from polyagents.errors import InputError, first_line
from polyagents.evaluation.intervals import Estimate
from polyagents.files.atomic import write_text
from polyagents.files.hashing import fingerprint
from polyagents.files.json_files import fields_of_json, read_json
from polyagents.files.python_arguments import python_value
from polyagents.model_files.model_folder import CALIBRATION
from polyagents.models.adapters import without_frozen_weights
from polyagents.models.versions import Versions
from polyagents.ranking.ranking_model import RankingModel

FORMAT = 1
PRECISION = 0.95  # that `measured` asks of a threshold


@dataclass(frozen=True)
class MadeFor:
    """What a calibration was fitted to."""

    model: str  # `identity` of the model
    reranker: str | None  # the same of the model that orders a shortlist; None without one
    rerank_top: int | None  # how many options that shortlist has
    options: str | None  # a digest of the options; None if each example had its own
    least_options: int  # the smallest number of options of an example
    most_options: int  # the largest
    examples: str  # a digest of the examples


@dataclass(frozen=True)
class Calibration:
    """The map from scores to probabilities of one model, and how good they are.

    >>> examples = [{"context": f"{n} plus 1", "label": "more" if n % 3 else "less"} for n in range(100)]
    >>> calibration = ranker.calibrate(examples)
    >>> calibration.map.temperature > 0, calibration.knows_none
    (True, False)

    Attributes:
        before: the figures of softmax(score × the scale of the training loss).
        after: the figures of the map. Each half of the examples is measured with a map of the other half.
        levels: thresholds and what they bring, measured alike.
    """

    map: ScoreMap
    made_for: MadeFor
    before: Figures
    after: Figures
    bins: list[Bin]
    levels: list[Level]

    def threshold_for(self, precision: float = 0.95) -> Threshold | None:
        """Return the threshold that answers most contexts with a precision that is sure by 95 %; None if none is.

        >>> examples = [{"context": f"{n} plus 1", "label": "more" if n % 3 else "less"} for n in range(100)]
        >>> found = ranker.calibrate(examples).threshold_for(precision=0.3)
        >>> found.bound >= 0.3 and 0 < found.coverage <= 1
        True

        Args:
            precision: the wanted share of right answers among those given, above 0 and below 1.
        """
        wanted = python_value(precision)
        if not isinstance(wanted, (int, float)) or not 0 < wanted < 1:
            raise InputError(f"precision is {wanted!r:.60}; give a share above 0 and below 1, such as 0.95.")
        return threshold_for(self.levels, self.after.examples, wanted)

    @property
    def knows_none(self) -> bool:
        """Whether "none of these" was learnt.

        >>> examples = [{"context": f"{n} plus 1", "label": "more" if n % 3 else "less"} for n in range(100)]
        >>> ranker.calibrate(examples + [{"context": f"is it {n} ?", "label": None} for n in range(20)]).knows_none
        True
        """
        return self.map.none_bias is not None


def fitted_to(scored: Scored, made_for: MadeFor, logit_scale: float) -> Calibration:
    """Fit a map to examples and measure it; an InputError says if there are too few examples.

    Args:
        logit_scale: by which the training loss multiplies scores: the last stage's.
    """
    check_enough_examples(scored)
    before = ScoreMap(1 / logit_scale, None if scored.reranked is None else 1 / logit_scale)
    options, none = cross_fitted(scored)
    choices = choices_of(options, none, scored)
    return Calibration(
        fit(scored),
        made_for,
        figures_of(*before.probabilities(scored), scored),
        figures_of(options, none, scored),
        reliability(choices.confidence, choices.right),
        levels_of(choices.option_confidence, choices.option_right, choices.is_option),
    )


# ---- the file --------------------------------------------------------------------------------------------------------


def write_calibration(calibration: Calibration, path: str) -> None:
    """Write the file."""
    fields = {field.name: plain(getattr(calibration, field.name)) for field in dataclasses.fields(calibration)}
    write_text(path, json.dumps({"format": FORMAT, **fields}, indent=2) + "\n")


def read_calibration(path: str) -> Calibration:
    """Read the file; an InputError says if it is damaged, or of a later version."""
    try:
        found = read_json(path)
        if not isinstance(found, Mapping) or found.get("format") != FORMAT:
            raise ValueError("it is not a calibration of this version")
        return Calibration(
            valid(fields_of_json(found["map"], ScoreMap)),
            fields_of_json(found["made_for"], MadeFor),
            figures(found["before"]),
            figures(found["after"]),
            [fields_of_json(one, Bin) for one in found["bins"]],
            [fields_of_json(one, Level) for one in found["levels"]],
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        why = getattr(error, "strerror", None) or first_line(error)
        raise InputError(f"{path} cannot be read ({why}); run polyagents calibrate again, or delete it.") from error


def moved_to(calibration: Calibration, model: RankingModel) -> Calibration:
    """Return the calibration for a copy of its model, whose weights may be kept in another way."""
    return replace(calibration, made_for=replace(calibration.made_for, model=identity(model)))


def plain(value: Any) -> Any:
    """Return dataclasses and named tuples as dicts, for JSON."""
    if dataclasses.is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if hasattr(value, "_asdict"):
        return {name: plain(one) for name, one in value._asdict().items()}
    if isinstance(value, list):
        return [plain(one) for one in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value


def figures(found: Any) -> Figures:
    """Read figures, whose ends of an interval may be null."""
    ece = found["ece"]
    ends = [float("nan") if ece[name] is None else float(ece[name]) for name in Estimate._fields]
    return fields_of_json({**found, "ece": Estimate(*ends)}, Figures)


def valid(score_map: ScoreMap) -> ScoreMap:
    """Refuse, with a ValueError, numbers that no fit gives."""
    given = [one for one in dataclasses.astuple(score_map) if one is not None]
    temperatures = [one for one in (score_map.temperature, score_map.rerank_temperature) if one is not None]
    if not all(abs(one) < 1e300 for one in given) or min(temperatures) <= 0:
        raise ValueError("its numbers are not possible")
    return score_map


# ---- which model, which options, which file --------------------------------------------------------------------------


def identity(model: RankingModel) -> str:
    """Return a digest of everything that decides scores: all weights, the tokenizer, and how texts are read."""
    settings = model.settings
    decides: list[Any] = [
        model.architecture,
        dataclasses.asdict(settings.ranking),
        settings.text_truncate,
        settings.label_truncate,
    ]
    decides += [settings.plain_texts, model.context_encoder.output_scaling]
    backend = model.context_encoder.backend
    decides += [backend.quantized] if backend is not None and backend.quantized else []
    weights = model.module.state_dict()
    # Then a digest, which is among the weights, stands for the frozen ones, as in an index's fingerprint.
    if model.context_encoder.backbone_digest is not None:
        weights = without_frozen_weights(weights)
    return model.fingerprint_of(weights, json.dumps(decides, sort_keys=True, default=str))


def path_of(model_file: str) -> str:
    """Return the path of the calibration of a model file or folder."""
    return os.path.join(model_file, CALIBRATION) if os.path.isdir(model_file) else f"{model_file}.calibration.json"


class Identity:
    """The `identity` of a model, which is computed again if its weights have changed."""

    def __init__(self, model: RankingModel):
        self.model, self.versions, self.known = model, Versions(model.module), ""

    def __str__(self) -> str:
        if not self.known or self.versions.have_changed():
            self.versions.look()
            self.known = identity(self.model)
        return self.known


def misfit(found: Calibration, model: Identity, second: Identity | None, rerank_top: int) -> str | None:
    """Say why a calibration does not hold for a model, or a model and its re-ranker; None if it does."""
    made_for = found.made_for
    if made_for.model != str(model):
        return "The model has changed since it was calibrated: run polyagents calibrate again."
    if made_for.reranker is not None and second is None:
        return "The model was calibrated with a re-ranker: give it, too, or run polyagents calibrate without it."
    if made_for.reranker is None and second is not None:
        return "The model was calibrated without a re-ranker: leave it out, or run polyagents calibrate with it."
    if second is not None and (made_for.reranker, made_for.rerank_top) != (str(second), rerank_top):
        return "The re-ranker, or the size of its shortlist, has changed: give the earlier ones, or calibrate again."
    return None


def other_count(found: Calibration, options: int) -> str | None:
    """Say that a calibration was fitted for another number of options; None if it was not."""
    least, most = found.made_for.least_options, found.made_for.most_options
    if least <= options <= most:
        return None
    fitted = range_of(least, most, "option")
    return f"The calibration was fitted for {fitted}, and not for {options:,}: probabilities may be off."


def digest_of_options(examples: DecisionExamples) -> str | None:
    """Return a digest of the options of all examples, in any order; None if each has its own."""
    return None if examples.shared is None else fingerprint(sorted(examples.shared.texts))[:16]


def other_options(found: Calibration, examples: DecisionExamples) -> str | None:
    """Say that a calibration was fitted to other options than those of examples; None if it was not."""
    if found.made_for.options == digest_of_options(examples):
        return None
    return "The calibration was fitted to other options (--options-file): probabilities may be off."


# ---- made of examples, and measured on others -----------------------------------------------------------------------


def calibration_of(
    model: RankingModel,
    identity: Identity,
    examples: DecisionExamples,
    second: tuple[RankingModel, Identity] | None,
    rerank_top: int,
) -> Calibration:
    """Score the examples, by a re-ranker as well if there is one, fit and measure; too few are an InputError."""
    scored = scores_of(model, examples, second and second[0], rerank_top)
    counts = [len(examples.shared.names)] if examples.shared is not None else [len(own) for own in examples.own or ()]
    made_for = MadeFor(
        str(identity),
        None if second is None else str(second[1]),
        None if second is None else rerank_top,
        digest_of_options(examples),
        min(counts),
        max(counts),
        examples.digest(),
    )
    scale = (model if second is None else second[0]).module.logit_scale
    return fitted_to(scored, made_for, scale)


class MeasuredCalibration(NamedTuple):
    """What a calibration is worth on examples that it was not fitted to."""

    figures: Figures
    threshold: Threshold | None  # the one that promised PRECISION, None if none did
    precision: float | None  # share of right answers among those given above it; None if there is none
    coverage: float | None  # share of contexts that are answered; None without a threshold


def measured(found: Calibration, scored: Scored) -> MeasuredCalibration:
    """Measure a calibration on scores of other examples."""
    options, none = found.map.probabilities(scored)
    figures, threshold = figures_of(options, none, scored), found.threshold_for(PRECISION)
    if threshold is None:
        return MeasuredCalibration(figures, None, None, None)
    choices = choices_of(options, none, scored)
    answered = choices.is_option & (choices.option_confidence >= threshold.threshold)
    precision = float(choices.option_right[answered].mean()) if answered.any() else None
    return MeasuredCalibration(figures, threshold, precision, float(answered.mean()))
