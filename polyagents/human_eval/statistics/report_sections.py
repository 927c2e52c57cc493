"""The content of a report for each question and each annotator."""

import statistics
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from polyagents.human_eval.records import Judgement
from polyagents.human_eval.statistics.agreement import Agreement, agreement
from polyagents.human_eval.statistics.bradley_terry import Ranking, ranking_of
from polyagents.human_eval.statistics.filtering import FilteredJudgement
from polyagents.human_eval.statistics.win_rates import Matchup, matchups


@dataclass(frozen=True)
class Section:
    """The results of one question."""

    question: str
    judgements: tuple[Judgement, ...]
    models: tuple[str, ...]  # the strongest first; by name if there is no ranking
    matchups: tuple[Matchup, ...]  # each pair of models that was compared, the stronger first
    ranking: Ranking  # may have no models, and says why
    agreement: Agreement | None  # None if no pair was judged by two annotators

    def between(self, model: str, opponent: str) -> Matchup | None:
        """Return how a model fared against another; None if they were not compared."""
        both_ways = (way for matchup in self.matchups for way in (matchup, matchup.reverse()))
        return next((way for way in both_ways if way.models == (model, opponent)), None)


def sections(filtered: Sequence[FilteredJudgement], seed: int) -> list[Section]:
    """Make a section for each question that has judgements that count, in the order of their first."""
    by_question: dict[str, list[Judgement]] = defaultdict(list)
    for one in filtered:
        if not one.left_out:
            by_question[one.judgement.question].append(one.judgement)
    return [section(question, judgements, seed) for question, judgements in by_question.items()]


def section(question: str, judgements: Sequence[Judgement], seed: int) -> Section:
    """Count and estimate everything about one question."""
    ranking = ranking_of(judgements, seed)
    names = sorted({model for judgement in judgements for model in judgement.models})
    models = [ranked.model for ranked in ranking.models] or names
    found = (m if models.index(m.models[0]) < models.index(m.models[1]) else m.reverse() for m in matchups(judgements))
    ordered = sorted(found, key=lambda matchup: [models.index(model) for model in matchup.models])
    agreed = agreement(judgements, seed)
    return Section(question, tuple(judgements), tuple(models), tuple(ordered), ranking, agreed)


@dataclass(frozen=True)
class AnnotatorSummary:
    """The work of one person."""

    name: str
    passed: bool
    judgements: int
    counted: int
    seconds: float | None  # median from seeing a pair to the answer; None if it is not known
    compared: int  # choices of others on the same pairs and questions; of those that count
    agreement: float | None  # share of these that are the same as this annotator's, 0 to 1; None if there are none
    too_fast: int  # judgements that came faster than anybody reads


def annotators(filtered: Sequence[FilteredJudgement]) -> list[AnnotatorSummary]:
    """Summarise every annotator's work, by name."""
    choices: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    by_name: dict[str, list[FilteredJudgement]] = defaultdict(list)
    for one in filtered:
        by_name[one.judgement.annotator].append(one)
        if not one.left_out:
            choices[one.judgement.question, one.judgement.pair][one.judgement.winner] += 1
    return [annotator(name, by_name[name], choices) for name in sorted(by_name)]


def annotator(
    name: str, own: Sequence[FilteredJudgement], choices: dict[tuple[str, str], Counter[str]]
) -> AnnotatorSummary:
    """Summarise one annotator's work."""
    counted = [one.judgement for one in own if not one.left_out]
    seconds = [one.judgement.seconds for one in own if one.judgement.seconds is not None]
    same = sum(choices[j.question, j.pair][j.winner] - 1 for j in counted)
    compared = sum(choices[j.question, j.pair].total() - 1 for j in counted)
    return AnnotatorSummary(
        name,
        all(one.judgement.passed for one in own),
        len(own),
        len(counted),
        statistics.median(seconds) if seconds else None,
        compared,
        same / compared if compared else None,
        sum(one.judgement.too_fast for one in own),
    )
