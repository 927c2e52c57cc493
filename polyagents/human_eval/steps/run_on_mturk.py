"""`polyagents human_eval mturk`: how a study is offered, approved, paid and ended on Amazon Mechanical Turk."""

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from polyagents.human_eval.steps.crowd_platform import parser_of, run_action

if TYPE_CHECKING:
    from polyagents.human_eval.platforms import mturk


def parser() -> argparse.ArgumentParser:
    """Declare the flags."""
    parser = parser_of(
        "mturk",
        "Offer a study on Amazon Mechanical Turk, see what its people did, approve, reject, pay bonuses, stop. Every "
        "call is printed, and sent only with --yes. boto3 reads the credentials from the environment.",
    )
    parser.add_argument("--live", action="store_true", help="the market itself, where people are paid; not the sandbox")
    return parser


def run(opt: Mapping[str, Any]) -> None:
    """Print the calls of an action, and send them if that is wanted."""

    def access() -> "mturk.MechanicalTurk":
        from polyagents.human_eval.platforms import mturk  # loads boto3

        return mturk.MechanicalTurk(mturk.LIVE if opt["live"] else mturk.SANDBOX)

    run_action(opt, "mturk", access)
