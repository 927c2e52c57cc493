"""The report of a human evaluation: judgements in, a page, a picture and tables out."""

import base64
import contextlib
import os
from collections.abc import Sequence
from typing import Any

import jinja2

from polyagents.console import number_of
from polyagents.errors import InputError
from polyagents.evaluation.intervals import RESAMPLES
from polyagents.files.atomic import atomic_write
from polyagents.files.own_folder import own_folder, refuse_foreign
from polyagents.human_eval.records import FASTEST, Judgement, RatedChat
from polyagents.human_eval.statistics import display
from polyagents.human_eval.statistics.csv_files import judgement_tables, rating_tables
from polyagents.human_eval.statistics.filtering import check_counted, filter_judgements
from polyagents.human_eval.statistics.ratings import ratings
from polyagents.human_eval.statistics.report_picture import draw
from polyagents.human_eval.statistics.report_sections import annotators, sections
from polyagents.human_eval.statistics.text_summary import counted, counted_chats, rating_summary, summary
from polyagents.human_eval.statistics.win_rates import Matchup

TABLES = ("judgements", "win_rates", "ranking", "agreement", "annotators", "ratings", "problems", "chats", "replies")
FILES = ("report.html", "report.png", *(f"{table}.csv" for table in TABLES))


def write_report(judgements: Sequence[Judgement], folder: str, seed: int = 0, chats: Sequence[RatedChat] = ()) -> str:
    """Write the whole report of some judgements and chats into a folder, created if it is missing.

    report.html is the whole report in one file; report.png is its picture, and the tables are judgements.csv,
    win_rates.csv, ranking.csv, agreement.csv and annotators.csv, if there are judgements; ratings.csv, problems.csv,
    chats.csv and replies.csv, if there are chats (`csv_files.as_cell` says how to read them back exactly).

    Args:
        judgements: of one or more questions, in any order; of several of one annotator on one pair, the first counts.
        folder: to write to. Files of an earlier report in it are replaced or removed.
        seed: of the bootstrap, 0 or more; the same judgements and seed give the same report.

    Returns:
        The most important numbers as text, for a terminal.

    Raises:
        InputError: there is nothing to report on, a winner did not take part, or the folder cannot be written to.
    """
    if seed < 0:
        raise InputError(f"The seed of a report is {seed}; give 0 or more.")
    refuse_foreign(folder, "human_eval report", "--out", is_unmarked_report)  # before what takes long
    filtered = filter_judgements(judgements)
    check_counted(filtered, chats)
    found, people, rated = sections(filtered, seed), annotators(filtered), ratings(chats)
    picture = draw(found) if found else None
    html = report_page(
        sections=found,
        annotators=people,
        counted=counted(filtered) if filtered else "",
        picture=base64.b64encode(picture).decode("ascii") if picture else "",
        counted_chats=counted_chats(chats),
        ratings=rated,
    )
    files = judgement_tables(filtered, found, people) if filtered else {}
    files |= rating_tables(chats, rated) if chats else {}
    files |= {"report.html": html.encode("utf-8", errors="replace")} | ({"report.png": picture} if picture else {})
    own_folder(folder, "human_eval report", "--out", is_unmarked_report)
    for name in {*FILES} - files.keys():
        with contextlib.suppress(FileNotFoundError):
            os.remove(os.path.join(folder, name))
    for name, content in files.items():  # after everything is computed, so that an error leaves no incomplete report
        with atomic_write(os.path.join(folder, name)) as temporary, open(temporary, "wb") as file:
            file.write(content)
    said = [summary(found, filtered)] * bool(filtered) + [rating_summary(chats, rated)] * bool(chats)
    return "\n\n".join([*said, f"All of it: {os.path.join(folder, 'report.html')}"])


def is_unmarked_report(folder: str) -> bool:
    """Tell whether a folder holds a report of version 0.1.0, which did not mark them."""
    names = {*os.listdir(folder)}
    return "report.html" in names and bool(names & {"win_rates.csv", "ratings.csv"})


def report_page(**content: Any) -> str:
    """Render the HTML page, in which every text is escaped."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("polyagents.human_eval.statistics"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {"display": display, "number_of": number_of, "shade": shade}
    return environment.get_template("report.html").render(content, resamples=RESAMPLES, fastest=FASTEST)


def shade(matchup: Matchup) -> str:
    """Return the colour behind a win rate, as in the picture; pale, so that black text is easy to read on it."""
    rate = matchup.rate.value
    red, green, blue = (33, 102, 172) if rate > 0.5 else (178, 24, 43)
    return f"rgba({red}, {green}, {blue}, {abs(rate - 0.5):.2f})"
