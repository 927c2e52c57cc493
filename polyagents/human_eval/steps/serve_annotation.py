"""`polyagents human_eval serve`: the annotation page."""

import argparse
import functools
from collections.abc import Mapping
from typing import Any

from polyagents.arguments import CommandParser
from polyagents.console import say
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
    if study and (study.each > progress.pairs or (study.onboarding or 0) > progress.checks):
        say(
            f"{opt['study']} wants {study.each:,} pairs and {study.onboarding or 0:,} checks of each person, who will "
            f"be done, and paid, with what there is: {progress.pairs:,} pairs, {progress.checks:,} checks."
        )
    from polyagents.human_eval.web.annotation_app import create_app  # loads the web libraries

    with listening(opt["host"], opt["port"]) as opened:
        what = f"{question.text} {progress.pairs:,} pairs, {progress.checks:,} checks of {store.name}"
        serve_pages(opened, opt, store, functools.partial(create_app, store, question), what)
