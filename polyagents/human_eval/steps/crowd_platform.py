"""What `polyagents human_eval prolific` and `mturk` share: how a study is offered, approved, paid and ended."""

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from polyagents.arguments import CommandParser, Real, refuse_given
from polyagents.console import number_of, say
from polyagents.errors import InputError
from polyagents.human_eval.steps.database_flag import add_database_flag, existing_store
from polyagents.human_eval.steps.page_server import arrival, check_public_url
from polyagents.human_eval.study import COMPLETE, Study, read_study

if TYPE_CHECKING:
    from polyagents.human_eval.platforms.calls import Call
    from polyagents.human_eval.platforms.mturk import MechanicalTurk
    from polyagents.human_eval.platforms.prolific import Prolific
    from polyagents.human_eval.storage.people_records import PersonWork

    Access = Prolific | MechanicalTurk

# Action -> the flags that it alone, or with others, has.
ACTIONS: dict[str, tuple[str, ...]] = {
    "create": ("public_url",),
    "status": (),
    "approve": (),
    "reject": ("message",),
    "bonus": ("message", "amount"),
    "stop": (),
}


def parser_of(platform: str, description: str) -> argparse.ArgumentParser:
    """Declare the flags."""
    parser = CommandParser(f"polyagents human_eval {platform}", description)
    parser.add_argument("action", nargs="?", help=", ".join(ACTIONS))
    parser.add_argument(
        "people", nargs="*", help="of approve, reject and bonus: names, pseudonyms or submissions; approve takes by "
        "default everybody who has completed the study and passed the checks",
    )  # fmt: skip
    parser.add_argument("--study", help="the study's settings, as for serve")
    parser.add_argument("--public-url", help="of create: https://HOST[:PORT], under which people reach the server")
    parser.add_argument("--message", help="of reject and bonus: what the person is told")
    parser.add_argument(
        "--amount", type=Real("an amount of .01 to 1,000", 0.01, 1000.01), help="of bonus: in the study's currency"
    )
    parser.add_argument("--yes", action="store_true", help="send what is printed; otherwise, nothing is sent")
    add_database_flag(parser)
    return parser


def run_action(opt: Mapping[str, Any], platform: str, access_of: "Callable[[], Access]") -> None:
    """Print the calls of an action, send them if that is wanted, and print what became of them."""
    action = opt["action"]
    if action not in ACTIONS or not opt["study"]:
        raise InputError(f"human_eval {platform} needs {'|'.join(ACTIONS)} and --study FILE.")
    if opt["people"] and action not in ("approve", "reject", "bonus"):
        raise InputError(f"human_eval {platform} {action} is not about single people; give no names.")
    others = [name for flags in ACTIONS.values() for name in flags if name not in ACTIONS[action]]
    refuse_given(opt, others, f"is not for human_eval {platform} {action}; remove it.")
    study = read_study(opt["study"], platform, needs_id=action != "create")
    store = existing_store(opt["database"])
    from polyagents.human_eval.storage.people_records import work_of_people  # loads SQLAlchemy

    # Only now is a token asked for: wrong flags, study and database are said first.
    everybody, access = work_of_people(store, study.id), access_of()
    if action == "status":
        print_status(everybody, access.submissions(study))
        return
    calls = calls_of(opt, study, access, everybody)
    for call in calls:
        print(call.shown)
    if not opt["yes"]:
        these = "this" if len(calls) == 1 else f"these {len(calls)}"
        say(f"Nothing was sent; give --yes to send {these}." if calls else "There is nobody to approve.")
        return
    from polyagents.human_eval.platforms.calls import perform

    counts = {"sent": 0, "done before": 0, "unknown": 0, "refused": 0}
    made, refusal = "", ""
    for call in calls:
        try:
            outcome, made = perform(store, call)
        except InputError as error:
            outcome, refusal = "refused", str(error)
            say(refusal)
        counts[outcome] += 1
    print(json.dumps(counts | ({"id": made} if action == "create" and made else {})))
    if counts["refused"]:
        raise InputError(f"{counts['refused']} of {number_of(len(calls), 'call')} refused: {refusal}")
    if counts["unknown"]:
        raise InputError(
            f"It is not known whether {number_of(counts['unknown'], 'call')} went through; give the same command after "
            f"ten minutes: it looks that up, and sends nothing twice that must not be."
        )


def calls_of(opt: Mapping[str, Any], study: Study, access: "Access", everybody: "Sequence[PersonWork]") -> "list[Call]":
    """Return the calls of an action; an InputError says what is missing."""
    action, message = opt["action"], opt["message"] or ""
    if action == "create":
        if study.id:
            raise InputError(
                f"--study {opt['study']} has the id {study.id} already, and its pages take people of that one only; "
                f"remove the id to offer another."
            )
        if not study.title or not study.description or not study.reward:
            raise InputError(
                f"--study {opt['study']} needs a title, a description and a reward for people to choose it."
            )
        check_public_url(opt["public_url"], "https")
        return [access.create(study, opt["public_url"].rstrip("/") + arrival(study))]
    if action == "stop":
        return [access.stop(study)]
    people = list(dict.fromkeys(chosen(name, everybody) for name in opt["people"]))
    if action == "approve":
        due = [one for one in everybody if one.stage == COMPLETE and one.passed and not one.approved]
        return [access.approve(one) for one in people or due if one.submission]
    if not people or not message or (action == "bonus" and opt["amount"] is None):
        amount = ", --amount" if action == "bonus" else ""
        raise InputError(f"human_eval {study.platform} {action} needs PEOPLE{amount} and --message TEXT.")
    if action == "reject":
        return [access.reject(one, message) for one in people]
    return [access.bonus(study, one, round(100 * opt["amount"]), message) for one in people]


def chosen(name: str, everybody: "Sequence[PersonWork]") -> "PersonWork":
    """Find a person who has a submission."""
    for one in everybody:
        if one.submission and name in (one.person, one.name, one.submission):
            return one
    raise InputError(f"{name!r:.80} is nobody's name, pseudonym or submission in this study.")


def print_status(everybody: "Sequence[PersonWork]", statuses: Mapping[str, str]) -> None:
    """Print a line of JSON for each submission: the platform's status, and what the person did."""
    known = {one.submission: one for one in everybody if one.submission}
    for submission in dict.fromkeys([*known, *statuses]):
        line: dict[str, Any] = {"submission": submission, "status": statuses.get(submission)}
        if one := known.get(submission):
            line |= {"person": one.name, "stage": one.stage, "judgements": one.judgements, "chats": one.chats}
            line |= {"checks": one.checks, "checks_right": one.checks_right, "passed": one.passed}
            line |= {"seconds": one.seconds, "approved": one.approved, "rejected": one.rejected, "bonus": one.bonus}
        print(json.dumps(line))
