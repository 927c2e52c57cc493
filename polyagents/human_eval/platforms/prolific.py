"""Prolific's public REST API (docs.prolific.com/api-reference), as far as a study needs it.

What only reads is asked again if the service is busy or fails. What changes something is sent once: a request that may
have been carried out, though its answer was lost, ends in `AnswerLost`.
"""

import itertools
import json
import os
from time import sleep
from typing import Any

import requests

from polyagents.console import number_of
from polyagents.errors import InputError
from polyagents.files.hashing import fingerprint
from polyagents.human_eval.platforms.calls import AnswerLost, Call
from polyagents.human_eval.storage.people_records import PersonWork
from polyagents.human_eval.study import Study

API = "https://api.prolific.com/api/v1"
TOKEN = "PROLIFIC_TOKEN"
TRIES, LONGEST = 5, 60.0  # of one request; seconds of one pause
TIMEOUT = 30.0  # seconds
PAGE = 100  # submissions
SHORTEST = 100  # characters of a rejection's message


class Prolific:
    """A researcher's access to Prolific, which asks so many times what may be asked again."""

    def __init__(self, token: str, url: str = API, tries: int = TRIES):
        self.url, self.tries, self.session = url, tries, requests.Session()
        self.session.headers["Authorization"] = f"Token {token}"

    @classmethod
    def from_environment(cls, tries: int = TRIES) -> "Prolific":
        """Make an access with the token of the environment; without one, an InputError."""
        token = os.environ.get(TOKEN, "").strip()
        if not (token.isascii() and token.isprintable() and token):
            raise InputError(f"Prolific asks for a token; set {TOKEN} to the one of your account's settings.")
        return cls(token, API, tries)

    def asked(self, method: str, path: str, **content: Any) -> Any:
        """Send a request, with arguments of `requests`, and read the JSON of its answer.

        A GET is sent again if the service is busy or fails, anything else only if the service says that it was too busy
        to do it. AnswerLost says that it may have been done; InputError, that it is refused, or a GET not answered.
        """
        why = ""
        for attempt in range(self.tries):
            pause = min(2.0**attempt, LONGEST)
            try:
                # No redirect is followed: the token would go with it.
                answer = self.session.request(
                    method, f"{self.url}{path}", timeout=TIMEOUT, allow_redirects=False, **content
                )
            except requests.RequestException as error:
                why = f"no answer ({type(error).__name__})"
            else:
                if answer.status_code == 429:
                    given = answer.headers.get("Retry-After", "")
                    sleep(min(float(given), LONGEST) if given.isdigit() else pause)
                    why = "too many requests"
                    continue
                if answer.status_code < 300:
                    return parsed_answer(answer)
                if answer.status_code < 500:
                    raise InputError(f"Prolific refuses {method} {path} ({answer.status_code}: {said(answer)}).")
                why = f"status {answer.status_code}"
            if method != "GET":
                raise AnswerLost(f"Prolific gave no clear answer to {method} {path} ({why}); it may have done it.")
            sleep(pause)
        raise InputError(f"Prolific cannot be asked {method} {path} ({why}); try again later.")

    def knows(self, study: str, person: str, submission: str) -> bool:
        """Tell whether a submission of a person to a study is under way."""
        try:
            found = self.asked("GET", f"/submissions/{submission}/")
        except InputError as error:
            if "(404" in str(error):
                return False
            raise
        whose = found.get("participant") or found.get("participant_id")
        return (found.get("study_id"), whose, found.get("status")) == (study, person, "ACTIVE")

    # ---- what a study asks for -------------------------------------------------------------------------------------

    def submissions(self, study: Study) -> dict[str, str]:
        """Return the status of every submission of a study, by its name."""
        found: dict[str, str] = {}
        for page in itertools.count(1):
            which = {"page": str(page), "page_size": str(PAGE)}
            results = self.asked("GET", f"/studies/{study.id}/submissions/", params=which).get("results") or []
            found |= {str(one.get("id")): str(one.get("status")) for one in results}
            if len(results) < PAGE:
                break
        return found

    def create(self, study: Study, address: str) -> Call:
        """Make a draft of a study; it is published on Prolific's own page."""
        codes = [{"code": study.code, "code_type": "COMPLETED", "actions": [{"action": "MANUALLY_REVIEW"}]}]
        if study.screen_out_code:
            codes += [{"code": study.screen_out_code, "code_type": "OTHER", "actions": [{"action": "MANUALLY_REVIEW"}]}]
        body = {
            "name": study.title,
            "description": study.description,
            "external_study_url": address,
            "prolific_id_option": "url_parameters",
            "completion_codes": codes,
            "total_available_places": study.places,
            "estimated_completion_time": study.duration,
            "reward": study.reward,
        }

        def drafts(token: str) -> list[str]:
            every = self.asked("GET", "/studies/").get("results") or []
            return [str(one.get("id")) for one in every if one.get("internal_name") == token]

        def send(token: str) -> str:
            if before := drafts(token):  # of a try whose answer was lost
                return before[0]
            return made_name(self.asked("POST", "/studies/", json=body | {"internal_name": token}))

        key = f"create {fingerprint([json.dumps(body, sort_keys=True)])}"
        return Call(key, "create", shown_call("/studies/", body), send)

    def approve(self, one: PersonWork) -> Call:
        """Approve a submission, which pays the reward."""
        return self._transition(one, "approve", "APPROVED", {"action": "APPROVE"})

    def reject(self, one: PersonWork, message: str) -> Call:
        """Reject a submission, which is not paid; an InputError says if Prolific takes no message so short."""
        if len(message) < SHORTEST:
            raise InputError(
                f"--message has {number_of(len(message), 'character')}; Prolific takes {SHORTEST} or more: tell the "
                f"person why."
            )
        body = {"action": "REJECT", "message": message, "rejection_category": "OTHER"}
        return self._transition(one, "reject", "REJECTED", body)

    def bonus(self, study: Study, one: PersonWork, cents: int, reason: str) -> Call:
        """Pay a bonus. To pay once, a payment whose answer was lost is looked up among the submission's bonuses."""
        body = {"study_id": study.id, "csv_bonuses": f"{one.submission},{cents / 100:.2f}"}

        def send(payment: str) -> str:
            self.asked("POST", f"/bulk-bonus-payments/{payment}/pay/", json={})
            return payment

        return Call(
            f"bonus {one.number} {cents} {reason}",
            "bonus",
            f"{shown_call('/submissions/bonus-payments/', body)}\n{shown_call('/bulk-bonus-payments/ID/pay/', {})}",
            send,
            lambda payment: sum(self._submission(one).get("bonus_payments") or []) >= one.bonus + cents,
            repeatable=False,
            prepare=lambda: made_name(self.asked("POST", "/submissions/bonus-payments/", json=body)),
            participant=one.number,
            amount=cents,
        )

    def stop(self, study: Study) -> Call:
        """End the recruitment of a study."""
        path, body = f"/studies/{study.id}/transition/", {"action": "STOP"}
        send = lambda _: str(self.asked("POST", path, json=body).get("status", ""))  # noqa: E731
        return Call(f"stop {study.id}", "stop", shown_call(path, body), send)

    def _submission(self, one: PersonWork) -> Any:
        """Read a person's submission."""
        return self.asked("GET", f"/submissions/{one.submission}/")

    def _transition(self, one: PersonWork, kind: str, status: str, body: dict[str, str]) -> Call:
        """Change the status of a submission, which Prolific does once however often it is asked."""
        path = f"/submissions/{one.submission}/transition/"

        def send(_: str) -> str:
            self.asked("POST", path, json=body)
            return one.submission

        is_done = lambda _: bool(self._submission(one).get("status") == status)  # noqa: E731
        return Call(f"{kind} {one.number}", kind, shown_call(path, body), send, is_done, participant=one.number)


def shown_call(path: str, body: Any) -> str:
    """Return a request as it is printed."""
    return f"POST {API}{path} {json.dumps(body, ensure_ascii=False)}"


def parsed_answer(answer: requests.Response) -> dict[str, Any]:
    """Read the JSON object of an answer; {} if it has none."""
    try:
        found = answer.json() if answer.content else {}
    except ValueError as error:
        raise AnswerLost("Prolific answered with something other than JSON.") from error
    if not isinstance(found, dict):
        raise AnswerLost("Prolific answered with something other than a JSON object.")
    return found


def made_name(answer: dict[str, Any]) -> str:
    """Return Prolific's name of what it has made; AnswerLost if the answer has none."""
    if not answer.get("id"):
        raise AnswerLost("Prolific's answer does not name what it has made.")
    return str(answer["id"])


def said(answer: requests.Response) -> str:
    """Return what an error says, in one short line."""
    return " ".join(answer.text.split())[:200]
