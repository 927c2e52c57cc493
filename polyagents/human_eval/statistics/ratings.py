"""The ratings of models by the people who talked with them."""

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scipy import stats

from polyagents.evaluation.intervals import CONFIDENCE, Estimate, share
from polyagents.human_eval.records import HIGHEST, LOWEST, RatedChat


@dataclass(frozen=True)
class ModelRating:
    """The ratings of one model."""

    model: str
    chats: int  # finished ones, of people who passed the checks
    people: int
    mean: Estimate | None  # rating of the whole, 1 to 5; None if nobody gave one
    rated: int  # replies that were called good or bad
    good: Estimate | None  # share of these that were called good, 0 to 1; None if there are none
    replies: int  # of all its chats
    problems: Mapping[str, int]  # what people found wrong -> in how many replies


def ratings(chats: Sequence[RatedChat]) -> list[ModelRating]:
    """Rate each model, the best mean first; chats of people who failed the checks do not count."""
    by_model: dict[str, list[RatedChat]] = defaultdict(list)
    for chat in chats:
        if chat.passed:
            by_model[chat.model].append(chat)
    found = [model_rating(model, own) for model, own in sorted(by_model.items())]
    return sorted(found, key=lambda one: -one.mean.value if one.mean else 0)


def model_rating(model: str, chats: Sequence[RatedChat]) -> ModelRating:
    """Count and estimate everything known about one model."""
    by_person: dict[str, list[int]] = defaultdict(list)
    for chat in chats:
        if chat.rating is not None:
            by_person[chat.annotator].append(chat.rating)
    said = [message.good for chat in chats for message in chat.messages if message.good is not None]
    return ModelRating(
        model,
        len(chats),
        len({chat.annotator for chat in chats}),
        mean_of_people(list(by_person.values())) if by_person else None,
        len(said),
        share(sum(said), len(said)) if said else None,
        sum(len(chat.messages) // 2 for chat in chats),
        dict(Counter(sorted(problem for chat in chats for message in chat.messages for problem in message.problems))),
    )


def mean_of_people(by_person: Sequence[Sequence[int]]) -> Estimate:
    """Estimate the mean of people's mean ratings, with Student's interval over people, cut to the range of ratings.

    People differ in how they use a scale, so ten ratings of one say less than one of ten: each person has the
    same weight. The interval says what other people like these would have said. A bootstrap over people, as for the
    ranking, is too narrow here: in a simulation of five people with two chats each, it covers the truth .87 of the
    time, this one .95 (docs/human-evaluation.md). One person, or people who all say the same, say nothing about others.
    """
    means = [sum(own) / len(own) for own in by_person]
    value = statistics.fmean(means)
    if len(set(means)) == 1:
        return Estimate(value, math.nan, math.nan)
    reach = float(stats.t.ppf((1 + CONFIDENCE) / 2, len(means) - 1)) * statistics.stdev(means) / len(means) ** 0.5
    return Estimate(value, max(value - reach, LOWEST), min(value + reach, HIGHEST))
