"""The Bradley-Terry model, which ranks several models, with bootstrap intervals."""

from collections.abc import Sequence
from dataclasses import dataclass

import choix
import numpy as np
from scipy.sparse.csgraph import connected_components
from scipy.special import expit

from polyagents.evaluation.intervals import RESAMPLES, Estimate, Floats, bootstrapped
from polyagents.human_eval.records import Judgement

ENOUGH_ANNOTATORS = 5  # with at least this many, a resample draws annotators, see resampled()
MOST_STEPS = 100  # of a fit; a handful is usual


@dataclass(frozen=True)
class RankedModel:
    """A model and its place."""

    model: str
    strength: Estimate  # log-odds, mean 0 over the models: a difference of 1 is a win rate of .73, one of 2 of .88
    win_rate: Estimate  # how often it would be preferred over one of the others, drawn at random; 0 to 1
    judgements: int  # that it took part in


@dataclass(frozen=True)
class Ranking:
    """Models by strength."""

    models: tuple[RankedModel, ...]  # the strongest first; none if they cannot be ranked
    note: str  # one sentence on what the intervals speak of, or on why there is no ranking


def ranking_of(judgements: Sequence[Judgement], seed: int, resamples: int = RESAMPLES) -> Ranking:
    """Rank the models of some judgements, at least one, of two different models each."""
    models = sorted({model for judgement in judgements for model in judgement.models})
    by_annotator = count_wins(judgements, models)
    wins = by_annotator.sum(0)
    parts, part_of = connected_components(wins)
    if parts > 1:
        groups = " | ".join(", ".join(models[i] for i in np.flatnonzero(part_of == p)) for p in range(parts))
        return Ranking(
            (),
            f"No ranking: these groups of models were never compared with each other, so nothing says which is better: "
            f"{groups}. Add pairs of models of different groups.",
        )
    value = strengths(wins + prior(wins))
    draws = refitted(resampled_wins(by_annotator, seed, resamples) + prior(wins), value)
    units = len(by_annotator) if len(by_annotator) >= ENOUGH_ANNOTATORS else max(len(judgements), 2)
    strength, rate = bootstrapped(value, draws, units), bootstrapped(win_rates(value), win_rates(draws), units)
    played = (wins + wins.T).sum(1)
    order = np.argsort(-value, kind="stable")
    ranked = tuple(RankedModel(models[i], strength[i], rate[i], int(played[i])) for i in order)
    return Ranking(ranked, note(len(models), len(by_annotator)))


def count_wins(judgements: Sequence[Judgement], models: Sequence[str]) -> Floats:
    """Count [A, K, K] how often each annotator, by name, preferred the row's model over the column's."""
    place = {model: i for i, model in enumerate(models)}
    row = {name: i for i, name in enumerate(sorted({judgement.annotator for judgement in judgements}))}
    wins = np.zeros((len(row), len(models), len(models)))
    for judgement in judgements:
        first, second = judgement.models
        loser = second if judgement.winner == first else first
        wins[row[judgement.annotator], place[judgement.winner], place[loser]] += 1
    return wins


def prior(wins: Floats) -> Floats:
    """Return imaginary judgements [K, K] that keep strengths finite if a model always wins or loses.

    Together they are K - 1, one for each number that is estimated, shared evenly among the pairs of models that were
    compared, half of them won by either. With two models that is half a win for each, the usual correction of
    log-odds; in general it is, for balanced comparisons of similar models, Firth's (1993) reduction of bias.
    """
    compared = (wins + wins.T) > 0
    imaginary: Floats = compared * (len(wins) - 1) / compared.sum()
    return imaginary


def strengths(wins: Floats) -> Floats:
    """Fit the strengths [K] of greatest likelihood, with mean 0, to wins [K, K], the prior among them."""
    # choix gives up after 100 rounds, which some 7 of 1,000 random sparse comparisons need.
    found: Floats = choix.ilsr_pairwise_dense(wins, max_iter=10_000, tol=1e-6)
    centred: Floats = found - found.mean()
    return centred


def refitted(wins: Floats, start: Floats) -> Floats:
    """Fit strengths [R, K] to many resamples at once, by Newton's method; choix takes them one by one, 1 ms each.

    Args:
        wins: [R, K, K], the prior among them.
        start: [K], the strengths of the original wins.
    """
    compared = wins + wins.swapaxes(1, 2)
    found: Floats = np.tile(start, (len(wins), 1))
    for _ in range(MOST_STEPS):
        over = expit(found[:, :, None] - found[:, None, :])
        gradient = (wins - compared * over).sum(2)
        ties = compared * over * (1 - over)
        # Strengths are differences; 1/K makes the matrix regular and leaves their mean at 0.
        information = np.eye(wins.shape[1]) * ties.sum(2)[:, :, None] - ties + 1 / wins.shape[1]
        step = np.linalg.solve(information, gradient[:, :, None])[:, :, 0].clip(-1, 1)  # farther, it may overshoot
        found += step
        if np.abs(step).max() < 1e-6:
            break
    centred: Floats = found - found.mean(1, keepdims=True)
    return centred


def win_rates(strengths: Floats) -> Floats:
    """Return how often each model [..., K] would be preferred over one of the others, drawn at random."""
    over: Floats = expit(strengths[..., :, None] - strengths[..., None, :])
    rates: Floats = (over.sum(-1) - 0.5) / (strengths.shape[-1] - 1)  # without itself, beaten half of the time
    return rates


def resampled_wins(by_annotator: Floats, seed: int, resamples: int) -> Floats:
    """Draw wins [R, K, K] as they might have come out.

    Annotators are drawn, each with all their judgements: people differ in taste, so ten judgements of one say less
    than one of ten, and an interval should say what other people like these would have said. (Simulated, 10 people
    whose taste varies by .6: the interval covers the truth .94 of the time; with single judgements drawn .83.)

    Fewer than ENOUGH_ANNOTATORS cannot tell how far people differ: of three, this would cover .88. There, single
    judgements are drawn, and the interval describes only these people.

    The imaginary judgements of the prior are among what is drawn. Otherwise a model that always won would win in every
    resample just as often, and its interval would have no width.

    Args:
        by_annotator: wins of each annotator [A, K, K].
    """
    annotators, count = by_annotator.shape[:2]
    wins = by_annotator.sum(0)
    random = np.random.default_rng(seed)
    if annotators < ENOUGH_ANNOTATORS:
        cells = (wins + prior(wins)).ravel()
        drawn = random.multinomial(round(wins.sum()), cells / cells.sum(), size=resamples).astype(np.float64)
    else:
        units = np.concatenate([by_annotator, prior(wins)[None]]).reshape(annotators + 1, -1)
        drawn = random.multinomial(annotators + 1, np.full(annotators + 1, 1 / (annotators + 1)), resamples) @ units
    return drawn.reshape(resamples, count, count)


def note(models: int, annotators: int) -> str:
    """Say whom the intervals describe."""
    text = f"The intervals say what other people like these {annotators} annotators might have said."
    if annotators < ENOUGH_ANNOTATORS:
        text = (
            f"With fewer than {ENOUGH_ANNOTATORS} annotators ({annotators}) the intervals describe only these "
            f"people, not others like them."
        )
    return text + " With two models the ranking is their win rate, with half a win added to each." * (models == 2)
