"""Prolific's public REST API (docs.prolific.com/api-reference), as far as a study needs it.

What only reads is asked again if the service is busy or fails. What changes something is sent once: a request that may
have been carried out, though its answer was lost, ends in `AnswerLost`.
"""

import os
import time
from collections.abc import Callable
from typing import Any

import requests

from polyagents.errors import InputError

API = "https://api.prolific.com/api/v1"
TOKEN = "PROLIFIC_TOKEN"
TRIES, LONGEST = 5, 60.0  # of one request; seconds of one pause
TIMEOUT = 30.0  # seconds


class AnswerLost(InputError):
    """The error for a request that may have been carried out."""


class Prolific:
    """A researcher's access to Prolific."""

    def __init__(self, token: str, url: str = API, sleep: Callable[[float], None] = time.sleep):
        self.url, self.sleep, self.session = url, sleep, requests.Session()
        self.session.headers["Authorization"] = f"Token {token}"

    @classmethod
    def from_environment(cls) -> "Prolific":
        """Make an access with the token of the environment.

        Raises:
            InputError: there is none.
        """
        token = os.environ.get(TOKEN, "").strip()
        if not (token and token.isascii() and token.isprintable()):
            raise InputError(f"Prolific asks for a token; set {TOKEN} to the one of your account's settings.")
        return cls(token, API)

    def get(self, path: str, **parameters: str) -> Any:
        """Read something, and again if the service is busy or fails.

        Raises:
            InputError: it is refused, or does not answer in the end.
        """
        return self._asked("GET", path, params=parameters)

    def post(self, path: str, body: Any) -> Any:
        """Send something once; again only if the service said that it was too busy to do it.

        Raises:
            AnswerLost: it may have been carried out.
            InputError: it is refused.
        """
        return self._asked("POST", path, json=body)

    def _asked(self, method: str, path: str, **content: Any) -> Any:
        """Send a request and read the JSON of its answer."""
        why = ""
        for attempt in range(TRIES):
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
                    self.sleep(min(float(given), LONGEST) if given.isdigit() else pause)
                    why = "too many requests"
                    continue
                if answer.status_code < 300:
                    return parsed(answer)
                if answer.status_code < 500:
                    raise InputError(f"Prolific refuses {method} {path} ({answer.status_code}: {said(answer)}).")
                why = f"status {answer.status_code}"
            if method != "GET":
                raise AnswerLost(f"Prolific gave no clear answer to {method} {path} ({why}); it may have done it.")
            self.sleep(pause)
        raise InputError(f"Prolific cannot be asked {method} {path} ({why}); try again later.")

    def knows(self, study: str, person: str, submission: str) -> bool:
        """Tell whether a submission of a person to a study is under way."""
        try:
            found = self.get(f"/submissions/{submission}/")
        except InputError as error:
            if "(404" in str(error):
                return False
            raise
        whose = found.get("participant") or found.get("participant_id")
        return (found.get("study_id"), whose, found.get("status")) == (study, person, "ACTIVE")


def parsed(answer: requests.Response) -> Any:
    """Read the JSON of an answer; {} if it has none."""
    try:
        return answer.json() if answer.content else {}
    except ValueError as error:
        raise AnswerLost("Prolific answered with something other than JSON.") from error


def said(answer: requests.Response) -> str:
    """Return what an error says, in one short line."""
    return " ".join(answer.text.split())[:200]
