"""Fits the map from scores to probabilities; the probabilities of each example come from a map fitted without it."""

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize, minimize_scalar
from scipy.special import expit, log_expit

from polyagents.console import number_of
from polyagents.decisions.score_map import Scored, ScoreMap, log_sum_exp
from polyagents.errors import InputError
from polyagents.evaluation.intervals import Floats

LEAST, LEAST_NONE = 50, 10  # examples with and without a right option, that a map can be fitted to
FOLDS = 5  # that decide between forms of the map
SEED = 0  # which examples are in which fold


def check_enough_examples(scored: Scored) -> None:
    """Refuse, with an InputError, too few examples."""
    inside = int(scored.in_scope.sum())
    outside = len(scored) - inside
    if inside < LEAST:
        raise InputError(
            f"{number_of(inside, 'example')} with a right option; a calibration needs at least {LEAST} that were not "
            f"trained on."
        )
    if not outside and scored.scores.shape[1] == 1:
        raise InputError(
            "Every example has one option, its label, so nothing is decided; give options for all (--options-file), or "
            "examples without a right one."
        )
    if 0 < outside < LEAST_NONE:
        raise InputError(
            f"There is no right option in {outside} of the {len(scored):,} examples, too few to learn 'none of these'; "
            f"give {LEAST_NONE} such examples or more, or none."
        )


def fit(scored: Scored) -> ScoreMap:
    """Fit a map by likelihood; the form of p(none) by its likelihood on examples that were left out."""
    inside = scored.rows(scored.in_scope)
    temperature = fit_temperature(inside.scores, inside.right)
    second = None
    if inside.reranked is not None:
        listed = (inside.right & np.isfinite(inside.reranked)).any(1)
        second = fit_temperature(inside.reranked[listed], inside.right[listed]) if listed.any() else 1.0
    plain = ScoreMap(temperature, second)
    outside = ~scored.in_scope
    if not outside.any():
        return plain
    features = plain.features(scored)
    folds = folds_of(scored.groups, FOLDS)
    weights = max(range(3), key=lambda weights: held_out_likelihood(weights, features, outside, folds))
    return ScoreMap(temperature, second, *none_terms(weights, features, outside))


def fit_temperature(scores: Floats, right: NDArray[np.bool_]) -> float:
    """Find the temperature by which the right options are most likely: the loss is convex in 1 / temperature.

    One of N + 2 examples is taken to be right by chance (Platt 1999), so that N right answers are not a certainty.
    """
    listed = np.isfinite(scores)
    centre = np.log(max(float(scores[listed].std()), 1e-6))
    answers = np.where(right, scores, -np.inf)
    middle = np.where(listed, scores, 0).sum(1) / listed.sum(1)
    chance = 1 / (len(scores) + 2)

    def loss(log_temperature: float) -> float:
        scale = np.exp(-log_temperature)
        likely = (1 - chance) * log_sum_exp(answers * scale) + chance * middle * scale
        return float((log_sum_exp(scores * scale) - likely).mean())

    return float(np.exp(minimize_scalar(loss, bounds=(centre - 6, centre + 6), method="bounded").x))


# ---- none of these ---------------------------------------------------------------------------------------------------


def none_terms(weights: int, features: Floats, outside: NDArray[np.bool_]) -> list[float]:
    """Fit bias, evidence_weight and margin_weight, of which the first 0, 1 or 2 weights are free.

    Without a weight, evidence counts as it is: "none" is one more option with the same score for every context.
    """
    columns = np.concatenate([np.ones((len(features), 1)), -features[:, :weights]], 1)
    fixed = [1.0, 0.0][weights:]
    return [*logistic(columns, outside, 0.0 if weights else -features[:, 0]), *fixed]


def logistic(columns: Floats, outcome: NDArray[np.bool_], offset: Floats | float = 0.0) -> list[float]:
    """Fit a logistic regression of columns [E, F] to Platt's targets, which no separation can reach."""
    spread = np.maximum(np.abs(columns).max(0), 1e-9)
    scaled = columns / spread
    positive = int(outcome.sum())
    targets = np.where(outcome, (positive + 1) / (positive + 2), 1 / (len(outcome) - positive + 2))

    def loss(weights: Floats) -> tuple[float, Floats]:
        logits = scaled @ weights + offset
        value = -(targets * log_expit(logits) + (1 - targets) * log_expit(-logits)).mean()
        return float(value), scaled.T @ (expit(logits) - targets) / len(scaled)

    found: list[float] = (minimize(loss, np.zeros(scaled.shape[1]), jac=True, method="BFGS").x / spread).tolist()
    return found


def held_out_likelihood(weights: int, features: Floats, outside: NDArray[np.bool_], folds: NDArray[np.int64]) -> float:
    """Return the mean log-likelihood of "none" or not, each fold by the terms that the others give."""
    likelihoods = np.empty(len(features))
    for fold in range(FOLDS):
        own = folds == fold
        if not outside[~own].any() or outside[~own].all():
            return -np.inf
        bias, *terms = none_terms(weights, features[~own], outside[~own])
        logits = bias - features[own] @ np.array(terms)
        likelihoods[own] = log_expit(np.where(outside[own], logits, -logits))
    return float(likelihoods.mean())


# ---- probabilities that an example had no part in -------------------------------------------------------------------


def folds_of(groups: NDArray[np.int64], folds: int) -> NDArray[np.int64]:
    """Assign each example to a fold, [E]; examples of one group are in the same fold."""
    count = int(groups.max()) + 1
    order: NDArray[np.int64] = np.random.default_rng(SEED).permutation(count) % folds
    return order[groups]


def cross_fitted(scored: Scored) -> tuple[Floats, Floats]:
    """Return probabilities as `ScoreMap.probabilities` does: each half's by the map that the other half gives."""
    half = folds_of(scored.groups, 2) == 0
    options, none = np.zeros(scored.scores.shape), np.zeros(len(scored))
    for own in (half, ~half):
        options[own], none[own] = fit(scored.rows(~own)).probabilities(scored.rows(own))
    return options, none
