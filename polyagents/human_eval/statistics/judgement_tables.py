"""What annotators judged, and what came of it, as CSV files."""

from collections.abc import Sequence

from polyagents.human_eval.statistics.csv_files import Cell, as_csv, ends, with_ends
from polyagents.human_eval.statistics.filtering import FilteredJudgement
from polyagents.human_eval.statistics.report_sections import AnnotatorSummary, Section
from polyagents.human_eval.statistics.win_rates import Matchup


def judgement_tables(
    filtered: Sequence[FilteredJudgement], found: Sequence[Section], people: Sequence[AnnotatorSummary]
) -> dict[str, bytes]:
    """Return the CSV files by name."""
    return {
        "judgements.csv": as_csv(
            (
                "annotator",
                "pair",
                "model_1",
                "model_2",
                "winner",
                "question",
                "reason",
                "seconds",
                "passed",
                "left_out",
            ),
            [judgement_row(one) for one in filtered],
        ),
        "win_rates.csv": as_csv(
            ("question", "model", "opponent", "wins", "judgements", "win_rate", "low", "high", "p_value"),
            [win_rate_row(section, way) for section in found for m in section.matchups for way in (m, m.reverse())],
        ),
        "ranking.csv": as_csv(
            ("question", "place", "model", "judgements", *with_ends("strength"), *with_ends("expected_win_rate")),
            [row for section in found for row in ranking_rows(section)],
        ),
        "agreement.csv": as_csv(
            ("question", "pairs", *with_ends("share"), *with_ends("alpha")),
            [agreement_row(section) for section in found],
        ),
        "annotators.csv": as_csv(
            ("annotator", "passed", "judgements", "counted", "median_seconds", "compared", "agreement"),
            [annotator_row(person) for person in people],
        ),
    }


def judgement_row(one: FilteredJudgement) -> list[Cell]:
    """Return a row of judgements.csv."""
    j = one.judgement
    passed = "yes" if j.passed else "no"
    return [j.annotator, j.pair, *j.models, j.winner, j.question, j.reason, j.seconds, passed, one.left_out]


def win_rate_row(section: Section, matchup: Matchup) -> list[Cell]:
    """Return a row of win_rates.csv; each comparison has two, one for either model, so that a pivot is the matrix."""
    return [section.question, *matchup.models, matchup.wins[0], matchup.judgements, *matchup.rate, matchup.p_value]


def ranking_rows(section: Section) -> list[list[Cell]]:
    """Return rows of ranking.csv; none where models cannot be ranked."""
    return [
        [section.question, place, ranked.model, ranked.judgements, *ranked.strength, *ranked.win_rate]
        for place, ranked in enumerate(section.ranking.models, 1)
    ]


def agreement_row(section: Section) -> list[Cell]:
    """Return a row of agreement.csv."""
    found = section.agreement
    if found is None:
        return [section.question, 0, *ends(None), *ends(None)]
    return [section.question, found.pairs, *ends(found.share), *ends(found.alpha)]


def annotator_row(person: AnnotatorSummary) -> list[Cell]:
    """Return a row of annotators.csv."""
    passed = "yes" if person.passed else "no"
    return [person.name, passed, person.judgements, person.counted, person.seconds, person.compared, person.agreement]
