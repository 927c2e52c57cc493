"""`polyagents human_eval report`: the results of an evaluation."""

import argparse
from collections.abc import Mapping
from typing import Any

from polyagents.arguments import CommandParser, seed_number
from polyagents.human_eval.steps.database_flag import add_database_flag, existing_store


def parser() -> argparse.ArgumentParser:
    """Declare the flags."""
    parser = CommandParser(
        "polyagents human_eval report",
        "Win rates, agreement, a ranking, and ratings of chats, with intervals: report.html, report.png and CSV files.",
    )
    add_database_flag(parser)
    parser.add_argument("--out", default="human-eval-report", help="folder of the report; created if it is missing")
    parser.add_argument("--seed", type=seed_number, default=0, help="seed of the bootstrap for the ranking's intervals")
    return parser


def run(opt: Mapping[str, Any]) -> None:
    """Write the report and print its summary."""
    store = existing_store(opt["database"])
    from polyagents.human_eval.statistics.evaluation_report import write_report  # loads SciPy and Matplotlib
    from polyagents.human_eval.storage.results import rated_chats

    print(write_report(store.judgements(), opt["out"], opt["seed"], rated_chats(store.database)))
