"""`polyagents human_eval serve`: the annotation page."""

import argparse
import functools
from collections.abc import Mapping
from typing import Any

from polyagents.arguments import CommandParser
from polyagents.console import number_of, say
from polyagents.errors import InputError
from polyagents.human_eval.steps.database_flag import add_database_flag, existing_store
from polyagents.human_eval.steps.page_server import add_server_flags, serve_pages, study_of
from polyagents.human_eval.web.questions import PRESETS, question_of
from polyagents.serving.http_server import listening


def parser() -> argparse.ArgumentParser:
    """Declare the flags."""
    parser = CommandParser(
        "polyagents human_eval serve",
        "Ask annotators which of two speakers they prefer, in their browsers. Prints the organiser's link, and one "
        "for each invited annotator. A link is all that a person needs, so hand them out with care.",
    )
    add_database_flag(parser)
    add_server_flags(parser)
    parser.add_argument(
        "--question",
        default="engaging",
        help=f"ACUTE-Eval's {', '.join(PRESETS)}, or your own sentence; each has its own answers",
    )
    return parser


def run(opt: Mapping[str, Any]) -> None:
    """Print the links and serve until Ctrl-C."""
    question = question_of(opt["question"])
    study = study_of(opt)
    store = existing_store(opt["database"], study=study)
    progress = store.progress(question.text)
    if not progress.pairs:
        raise InputError(f"{store.name} has no pairs to judge; make some with polyagents human_eval pairs.")
    there = f"{number_of(progress.pairs, 'pair')}, {number_of(progress.checks, 'check')}"
    if study and (study.each > progress.pairs or (study.onboarding or 0) > progress.checks):
        say(
            f"{opt['study']} wants {number_of(study.each, 'pair')} and {number_of(study.onboarding or 0, 'check')} of "
            f"each person, who will be done, and paid, with what there is: {there}."
        )
    from polyagents.human_eval.web.annotation_app import create_app  # loads the web libraries

    with listening(opt["host"], opt["port"]) as opened:
        what = f"{question.text} {there} of {store.name}"
        serve_pages(opened, opt, store, functools.partial(create_app, store, question), what)
