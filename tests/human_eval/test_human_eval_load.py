"""50 annotators at once, and a server that is killed in the middle: no answer is lost, none is doubled."""

import collections
import contextlib
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest
from evaluation import evaluation, fields, serving

from polyagents.human_eval.storage.evaluation_store import EvaluationStore

PEOPLE, PAIRS = 50, 3
KILLED_AFTER = PEOPLE * PAIRS // 2  # answers


def served(database, port=0):
    """The pages of everybody."""
    return serving("serve", "--database", database, "--port", port, links=PEOPLE + 1, bare=True)


class Person:
    """An annotator: what was sent, and what the server said it had stored."""

    def __init__(self, name, link):
        self.name, self.link = name, link
        self.unsure, self.acknowledged = None, {}

    def answer(self, browser, form):
        """Send a form; it is unsure whether it was stored until the server says so."""
        self.unsure = form
        answer = browser.post(self.link, data=form)
        assert answer.status_code == 303, answer.text
        self.acknowledged[int(form["assignment"])] = form["reason"]
        self.unsure = None

    def work(self, browser, everybody):
        """Answer until there is nothing left, or the server is gone."""
        with contextlib.suppress(httpx2.TransportError):
            if self.unsure:
                self.answer(browser, self.unsure)  # as the page offers after a lost connection
            while "Thank you" not in (page := browser.get(self.link, follow_redirects=True)).text:
                form = fields(page.text)
                self.answer(browser, form | {"choice": "left", "reason": f"{self.name} on {form['assignment']}"})
                everybody.count()


class Everybody:
    """Tells when so many answers were acknowledged."""

    def __init__(self, enough):
        self.left, self.lock, self.reached = enough, threading.Lock(), threading.Event()

    def count(self):
        with self.lock:
            self.left -= 1
        if self.left <= 0:
            self.reached.set()


def work(people, everybody, meanwhile=lambda: None):
    """All at once; returns the seconds that it took."""
    begin = time.perf_counter()
    # One client: fifty would spend more time on certificates, of which there are none here, than the server on answers.
    with httpx2.Client(timeout=120) as browser, ThreadPoolExecutor(len(people)) as pool:
        working = [pool.submit(person.work, browser, everybody) for person in people]
        meanwhile()
        for one in working:
            one.result()
    return time.perf_counter() - begin


def reasons(store):
    """How often each reason is stored; every answer has its own."""
    return collections.Counter(one.reason for one in store.judgements())


def acknowledged(people):
    """The reasons that the server said it had stored."""
    return {reason for person in people for reason in person.acknowledged.values()}


@pytest.mark.slow
@pytest.mark.parametrize("database", ["sqlite", pytest.param("postgresql", marks=pytest.mark.release)], indirect=True)
def test_50_annotators_and_a_server_that_is_killed(database, capsys):
    store, _ = evaluation(database, PAIRS, [f"person {number}" for number in range(PEOPLE)])
    with served(database) as (process, links):
        organiser = links.pop("organiser")
        port = organiser.split(":")[2].split("/")[0]
        people = [Person(name, link) for name, link in links.items()]
        everybody = Everybody(KILLED_AFTER)

        def kill():
            everybody.reached.wait(120)
            process.send_signal(signal.SIGKILL)

        first = work(people, everybody, kill)
    said, unsure = acknowledged(people), {person.unsure["reason"] for person in people if person.unsure}
    stored = reasons(store)
    assert said <= stored.keys() and stored.keys() - said <= unsure, "lost, or from nowhere"
    assert set(stored.values()) == {1}, "doubled"
    assert KILLED_AFTER <= len(said) < PEOPLE * PAIRS, "the server was not killed in the middle"

    with served(database, port) as (_, again):
        assert again == {person.name: person.link for person in people} | {"organiser": organiser}
        second = work(people, Everybody(PEOPLE * PAIRS))
    every = reasons(store)
    assert every.keys() == acknowledged(people) and set(every.values()) == {1} and len(every) == PEOPLE * PAIRS
    assert {one.judged for one in EvaluationStore(database).progress().annotators} == {PAIRS}
    rates = [len(said) / first, (len(every) - len(stored)) / second]
    with capsys.disabled():  # figures for docs/results.md
        print(f"\n{store.database.writer.dialect.name}, {PEOPLE} annotators: {len(said)} answers acknowledged and")
        print(f"{len(stored)} stored, {len(unsure)} on their way, when the server was killed; {len(every)} of")
        print(f"{PEOPLE * PAIRS} stored in the end; {rates[0]:.0f} answers/s before, {rates[1]:.0f}/s after")
    store.close()
