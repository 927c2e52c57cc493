"""The report of a human evaluation: judgements in, a page, a picture and tables out."""

import base64
import os
from collections.abc import Sequence

import jinja2

from polyagents.errors import InputError
from polyagents.files.atomic import atomic_write
from polyagents.human_eval import formats
from polyagents.human_eval.counting import Sifted, check_enough, sift
from polyagents.human_eval.csv_files import Cell, as_csv, ends, with_ends
from polyagents.human_eval.intervals import RESAMPLES
from polyagents.human_eval.picture import draw
from polyagents.human_eval.rating_files import rating_tables
from polyagents.human_eval.ratings import ModelRating, ratings
from polyagents.human_eval.records import Judgement, RatedChat
from polyagents.human_eval.sections import Annotator, Section, annotators, sections
from polyagents.human_eval.summary import counted, counted_chats, rating_summary, summary
from polyagents.human_eval.win_rates import Matchup


def write_report(judgements: Sequence[Judgement], folder: str, seed: int = 0, chats: Sequence[RatedChat] = ()) -> str:
    """Write everything that can be said about some judgements and chats into a folder, made where it is missing.

    report.html is the whole report in one file; report.png is its picture, and the tables are judgements.csv,
    win_rates.csv, ranking.csv, agreement.csv and annotators.csv, where there are judgements; ratings.csv, chats.csv and
    replies.csv, where there are chats (`csv_files.as_cell` says how to read them back exactly).

    Args:
        judgements: of one or more questions, in any order; of several of one annotator on one pair, the first counts.
        folder: to write to. Files of an earlier report in it are replaced.
        seed: of the bootstrap, 0 or more; the same judgements and seed give the same report.
        chats: finished ones, with what people said of them.

    Returns:
        The most important numbers as text, for a terminal.

    Raises:
        InputError: there is nothing to report on, a winner did not take part, or the folder cannot be written to.
    """
    if seed < 0:
        raise InputError(f"The seed of a report is {seed}; give 0 or more.")
    sifted = sift(judgements)
    if not chats:
        check_enough(sifted)
    found, people, rated = sections(sifted, seed), annotators(sifted), ratings(chats)
    picture = draw(found) if found else None
    html = page(sifted, found, people, picture, chats, rated)
    files = (tables(sifted, found, people) if sifted else {}) | (rating_tables(chats, rated) if chats else {})
    files |= {"report.html": html.encode("utf-8", errors="replace")} | ({"report.png": picture} if picture else {})
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder} cannot be made ({error.strerror}); give another folder for the report.") from error
    for name, content in files.items():  # not before all of it is known: nothing that fails leaves half a report
        with atomic_write(os.path.join(folder, name)) as temporary, open(temporary, "wb") as file:
            file.write(content)
    said = [summary(found, sifted)] * bool(sifted) + [rating_summary(chats, rated)] * bool(chats)
    return "\n\n".join([*said, f"All of it: {os.path.join(folder, 'report.html')}"])


def page(
    sifted: Sequence[Sifted],
    found: Sequence[Section],
    people: Sequence[Annotator],
    picture: bytes | None,
    chats: Sequence[RatedChat],
    rated: Sequence[ModelRating],
) -> str:
    """The HTML page. Every text in it is escaped; names may be anything."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("polyagents.human_eval"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html").render(
        sections=found,
        annotators=people,
        counted=counted(sifted) if sifted else "",
        picture=base64.b64encode(picture).decode("ascii") if picture else "",
        counted_chats=counted_chats(chats),
        ratings=rated,
        resamples=RESAMPLES,
        comparisons=sum(len(section.matchups) for section in found),
        formats=formats,
        shade=shade,
    )


def shade(matchup: Matchup) -> str:
    """The colour behind a win rate, as in the picture; pale, so that black text is easy to read on it."""
    rate = matchup.rate.value
    red, green, blue = (33, 102, 172) if rate > 0.5 else (178, 24, 43)
    return f"rgba({red}, {green}, {blue}, {abs(rate - 0.5):.2f})"


def tables(sifted: Sequence[Sifted], found: Sequence[Section], people: Sequence[Annotator]) -> dict[str, bytes]:
    """The CSV files, by name."""
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
            [judgement_row(one) for one in sifted],
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


def judgement_row(one: Sifted) -> list[Cell]:
    """A row of judgements.csv."""
    j = one.judgement
    passed = "yes" if j.passed else "no"
    return [j.annotator, j.pair, *j.models, j.winner, j.question, j.reason, j.seconds, passed, one.left_out]


def win_rate_row(section: Section, matchup: Matchup) -> list[Cell]:
    """A row of win_rates.csv; each comparison has two, one for either model, so that a pivot is the matrix."""
    return [section.question, *matchup.models, matchup.wins[0], matchup.judgements, *matchup.rate, matchup.p_value]


def ranking_rows(section: Section) -> list[list[Cell]]:
    """Rows of ranking.csv; none where models cannot be ranked."""
    return [
        [section.question, place, ranked.model, ranked.judgements, *ranked.strength, *ranked.win_rate]
        for place, ranked in enumerate(section.ranking.models, 1)
    ]


def agreement_row(section: Section) -> list[Cell]:
    """A row of agreement.csv."""
    found = section.agreement
    if found is None:
        return [section.question, 0, *ends(None), *ends(None)]
    return [section.question, found.pairs, *ends(found.share), *ends(found.alpha)]


def annotator_row(person: Annotator) -> list[Cell]:
    """A row of annotators.csv."""
    passed = "yes" if person.passed else "no"
    return [person.name, passed, person.judgements, person.counted, person.seconds, person.compared, person.agreement]
