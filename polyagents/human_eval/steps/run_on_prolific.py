"""`polyagents human_eval prolific`: a study's draft, its submissions, approval, bonuses and end on Prolific."""

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from polyagents.human_eval.steps.crowd_platform import parser_of, run_action

if TYPE_CHECKING:
    from polyagents.human_eval.platforms.prolific import Prolific


def parser() -> argparse.ArgumentParser:
    """Declare the flags."""
    return parser_of(
        "prolific",
        "Offer a study on Prolific, see what its people did, approve, reject, pay bonuses, stop. Every call is "
        "printed, and sent only with --yes; the token is read from PROLIFIC_TOKEN.",
    )


def run(opt: Mapping[str, Any]) -> None:
    """Print the calls of an action, and send them if that is wanted."""

    def access() -> "Prolific":
        from polyagents.human_eval.platforms.prolific import Prolific

        return Prolific.from_environment() if opt["yes"] or opt["action"] == "status" else Prolific("")

    run_action(opt, "prolific", access)
