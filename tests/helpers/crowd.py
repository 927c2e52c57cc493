"""A small study: its settings, its store by a clock that tests set, and people who arrive as platforms send them."""

import re
from datetime import datetime, timedelta, timezone
from html import unescape
from pathlib import Path

from evaluation import MODELS, fields, filled
from starlette.testclient import TestClient

from polyagents.human_eval.storage.evaluation_store import EvaluationStore
from polyagents.human_eval.study import Study
from polyagents.human_eval.web.annotation_app import create_app
from polyagents.human_eval.web.questions import PRESETS

STUDY_ID = f"{0xC0FFEE:024x}"
CODE, SCREENED = "DONE-7F3A", "OUT-2B9C"
SCREENING = [{"question": "Are you 18 or older?", "options": ["yes", "no"], "accepted": ["yes"]}]
HERE, ORGANISER = "http://127.0.0.1:8009", "the-organiser"


class Clock:
    """A time that passes when a test says so."""

    def __init__(self):
        self.now = datetime(2026, 1, 1, tzinfo=timezone.utc)

    def __call__(self):
        return self.now

    def pass_minutes(self, minutes):
        self.now += timedelta(minutes=minutes)


def study_of(**changes):
    """A study of three places on Prolific, with every page before the work."""
    given = {"id": STUDY_ID, "platform": "prolific", "places": 3, "each": 2, "code": CODE, "screen_out_code": SCREENED}
    given |= {"consent": "# Consent\n\nI take part.", "instructions": "Read *both*.", "screening": SCREENING}
    return Study(**given | changes)


def store_of(url, study=None, pairs=3, checks=0, clock=None):
    """A store with pairs and checks, whose people come for a study; an existing one keeps what it has."""
    if not Path(url).exists():
        Path(url).write_bytes(filled(pairs, checks, "so it is"))
    return EvaluationStore(url, study or study_of(), clock or Clock())


def client_of(store, verify=None, texts=None, question="engaging"):
    """A browser without JavaScript, without a network before the server."""
    app = create_app(store, PRESETS[question], ORGANISER, texts, verify)
    return TestClient(app, HERE, raise_server_exceptions=False, follow_redirects=False)


def ids(number, session=None, study=STUDY_ID):
    """What Prolific says of a person."""
    return {"PROLIFIC_PID": f"{number:024x}", "STUDY_ID": study, "SESSION_ID": f"{session or number + 10**6:024x}"}


def join(client, number, **changes):
    """Arrive; the path of the person's link, or None if there is no place."""
    answer = client.get("/join", params=ids(number) | changes)
    return answer.headers["location"] if answer.status_code == 303 else None


def pass_stages(client, link, answer="yes"):
    """Agree, answer the screening questions, read the instructions: the page after that."""
    while 'name="stage"' in (page := client.get(link, follow_redirects=True).text):
        client.post(f"{link}/step", data=fields(page) | {"agree": "yes", "answer0": answer})
    return page


def judge(client, store, link, right=True):
    """Judge what is shown, a check as it asks for it, or else the other side; the page after that."""
    page = client.get(link, follow_redirects=True).text
    left = store.next_assignment(link.split("/")[-1]).left
    side = "left" if (MODELS[0] in left.conversation.models.values()) == right else "right"
    answer = client.post(link, data=fields(page) | {"choice": side, "reason": "r"})
    assert answer.status_code == 303, answer.text
    return client.get(link, follow_redirects=True).text


def code_of(page):
    """The code that a page shows; None if it shows none."""
    found = re.search(r'id="code">(.*?)<', page)
    return found and unescape(found[1])
