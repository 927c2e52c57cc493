"""A study whose people come uninvited: places, the pages around the work, codes, and what strangers try."""

import codecs
import collections
import contextlib
import json
import random
import re
import signal
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from html import unescape
from pathlib import Path

import httpx2
import jinja2
import pandas
import pytest
from chatting import MODELS as CHAT_MODELS
from chatting import app_of, plan_of, shop_of, talk
from crowd import CODE, HERE, SCREENED, STUDY_ID, Clock, client_of, code_of, ids, join, judge, pass_stages, store_of
from crowd import study_of as study
from evaluation import SCRIPT, evaluation, fields, human_eval, serving
from sqlalchemy import select
from starlette.testclient import TestClient
from web import Stopped

from polyagents import InputError
from polyagents.human_eval.storage import queries
from polyagents.human_eval.storage.chat_store import ChatStore
from polyagents.human_eval.storage.database_tables import ParticipantRow
from polyagents.human_eval.storage.evaluation_store import EvaluationStore
from polyagents.human_eval.storage.people_records import work_of_people
from polyagents.human_eval.study import COMPLETE, read_study
from polyagents.human_eval.web import shared_pages
from polyagents.human_eval.web.study_pages import ENDS, RETURN
from polyagents.human_eval.web.wording import ENGLISH, read_wording
from polyagents.serving import http_server

TEMPLATES = Path(shared_pages.__file__).parent / "templates"


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def shop(tmp_path, clock):
    """A study of three places with four pairs: its store and a client."""
    store = store_of(str(tmp_path / "s.db"), pairs=4, clock=clock)
    yield store, client_of(store)
    store.close()


def sentence(answer):
    """What a page is sorry about."""
    (found,) = re.findall(r'<p id="sentence">(.*)</p>', answer.text)
    return unescape(found)


def rows(store):
    """The participants as they are stored."""
    with store.database.reading() as session:
        found = session.query(ParticipantRow).order_by(ParticipantRow.number)
        return [{one.name: getattr(row, one.name) for one in ParticipantRow.__table__.columns} for row in found]


def free(store):
    """How many places are free; what is taken is never more than there is."""
    places = store.places.taken()
    assert places.complete + places.open <= places.total
    return places.total - places.complete - places.open


# ---- the path of one person ------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_person_arrives_agrees_is_screened_reads_judges_and_gets_the_code(shop):
    store, client = shop
    link, pages = join(client, 1), []
    for stage, shown in (("consent", "<h1>Consent</h1>"), ("screening", "18 or older"), ("instructions", "<em>both")):
        page = client.get(link).text
        pages.append(page)
        assert shown in page and fields(page)["stage"] == stage
        answer = client.post(f"{link}/step", data=fields(page) | {"agree": "yes", "answer0": "yes"})
        assert (answer.status_code, answer.headers["location"]) == (303, link)
    for place in (1, 2):
        page = client.get(link, follow_redirects=True).text
        pages.append(page)
        assert f">{place} of 2</label>" in page
        last = judge(client, store, link)
    assert code_of(last) == CODE and f'href="https://app.prolific.com/submissions/complete?cc={CODE}"' in last
    assert CODE not in "".join(pages) and SCREENED not in "".join(pages) + last
    (row,) = rows(store)
    assert row["consent"] == "# Consent\n\nI take part." and row["consented"] and row["stage"] == "complete"
    assert client.get(f"{link}/1").text == last == client.get(link).text  # nothing can be changed any more
    assert len(store.judgements()) == 2 and store.judgements()[0].annotator.startswith("person-")
    assert f"{1:024x}" not in json.dumps([vars(one) for one in store.judgements()])


@pytest.mark.slow
def test_the_same_forms_twice_change_nothing(shop):
    store, client = shop
    link = join(client, 1)
    consent = fields(client.get(link).text) | {"agree": "yes"}
    for _ in range(2):
        assert client.post(f"{link}/step", data=consent).status_code == 303
    assert "18 or older" in client.get(link).text
    pass_stages(client, link)
    forms = []
    for _ in range(2):
        forms.append(fields(client.get(link, follow_redirects=True).text) | {"choice": "left", "reason": "r"})
        client.post(link, data=forms[-1])
    for form in (forms[-1], forms[0], forms[0] | {"choice": "right"}):  # a lost receipt, replays after the end
        assert client.post(link, data=form).headers["location"] == link
    assert len(store.judgements()) == 2


@pytest.mark.parametrize(
    ("stage", "change"),
    [
        ("consent", {"consent": "I take part, and am filmed."}),
        ("screening", {"screening": [{"question": "Are you a robot?", "options": ["yes", "no"], "accepted": ["yes"]}]}),
        ("pair", {}),
    ],
)
def test_a_page_of_an_earlier_server_answers_nothing_that_is_asked_since(stage, change, tmp_path, clock):
    url = str(tmp_path / "s.db")
    with contextlib.closing(store_of(url, clock=clock)) as store:
        client = client_of(store)
        link = join(client, 1)
        if stage == "screening":
            client.post(f"{link}/step", data=fields(client.get(link).text) | {"agree": "yes"})
        page = pass_stages(client, link) if stage == "pair" else client.get(link).text
    form = fields(page) | {"agree": "yes", "answer0": "yes", "choice": "left"}
    with contextlib.closing(store_of(url, study(**change), clock=clock)) as store:
        client = client_of(store, question="humanlike")
        answer = client.post(link if stage == "pair" else f"{link}/step", data=form)
        assert answer.status_code == 422 and "What is asked has changed" in sentence(answer)
        assert not store.judgements() and rows(store)[0]["stage"] == {"pair": "work"}.get(stage, stage)
        judge(client, store, link) if stage == "pair" else pass_stages(client, link)
        assert len(store.judgements()) == (stage == "pair") and rows(store)[0]["stage"] == "work"


def test_who_reloads_or_takes_another_device_keeps_the_place_and_gets_no_second(shop):
    store, client = shop
    link = join(client, 1)
    pass_stages(client, link)
    other = client_of(store)
    assert join(other, 1) == link and "Speaker A" in client.get(link, follow_redirects=True).text
    assert free(store) == 2 and len(rows(store)) == 1


def test_invited_people_of_the_same_database_meet_no_page_of_the_study(shop):
    store, client = shop
    token = store.invite(["ada"])[0].token
    assert "1 of 4" in client.get(f"/annotate/{token}", follow_redirects=True).text
    answer = client.post(f"/annotate/{token}/step", data={"stage": "consent", "agree": "yes"})
    assert answer.status_code == 422 and free(store) == 3


@pytest.mark.parametrize("stage", ["consent", "work", "declined"])
@pytest.mark.parametrize("now", [None, "autumn"])
def test_a_link_of_another_study_gives_no_work_and_is_not_printed(shop, stage, now, clock):
    store, client = shop
    link = join(client, 1)
    if stage == "work":
        pass_stages(client, link)
    if stage == "declined":
        client.post(f"{link}/step", data=fields(client.get(link).text) | {"agree": "no"})
    store.invite(["ada"])
    other = EvaluationStore(store.name, now and study(id=now, platform="link"), clock)
    answers = [client_of(other).get(link), client_of(other).post(link, data={"assignment": 1, "choice": "left"})]
    assert [answer.status_code for answer in answers] == [404, 404]
    assert sentence(answers[0]) == "This link belongs to a study that is not open at the moment; ask where you got it."
    assert other.invited().keys() == {"ada"} and not other.judgements()


@pytest.mark.parametrize(("stage", "form"), [("consent", {"agree": "no"}), ("screening", {"answer0": "no"})])
def test_who_declines_or_is_screened_out_ends_politely_and_leaves_the_place(shop, stage, form):
    store, client = shop
    link = join(client, 1)
    if stage == "screening":
        client.post(f"{link}/step", data={"stage": "consent", "agree": "yes"})
    assert free(store) == 2
    client.post(f"{link}/step", data={"stage": stage} | form)
    page = client.get(link).text
    assert free(store) == 3 and "Thank you!" in page and CODE not in page
    assert code_of(page) == (SCREENED if stage == "screening" else None) and (RETURN in unescape(page)) == (
        stage == "consent"
    )
    client.post(f"{link}/step", data={"stage": stage, "agree": "yes", "answer0": "yes"})  # another try
    assert client.get(link).text == page and join(client, 1) == link and not store.judgements()


# ---- checks ----------------------------------------------------------------------------------------------------------


def checked(tmp_path, clock, each=4, **changes):
    store = store_of(str(tmp_path / "s.db"), study(each=each, onboarding=2, **changes), pairs=6, checks=4, clock=clock)
    client = client_of(store)
    link = join(client, 1)
    pass_stages(client, link)
    return store, client, link


def kinds(store):
    """Which of the shown pairs were checks, in order."""
    with store.database.reading() as session:
        shown = "SELECT pairs.right FROM assignments JOIN pairs ON pairs.number = pair ORDER BY assignments.number"
        return [
            right is not None for (right,) in session.connection().exec_driver_sql(shown.replace("right", '"right"'))
        ]


@pytest.mark.slow
def test_checks_come_first_and_among_the_pairs(tmp_path, clock):
    store, client, link = checked(tmp_path, clock, each=5)
    page = client.get(link, follow_redirects=True).text
    assert ">1 of 9</label>" in page
    while not code_of(page):
        page = judge(client, store, link)
    assert kinds(store) == [True, True, False, False, True, False, False, True, False] and code_of(page) == CODE
    assert len(store.judgements()) == 5


@pytest.mark.slow
def test_who_fails_the_first_checks_ends_there_and_who_fails_the_later_ones_does_not_count(tmp_path, clock):
    store, client, link = checked(tmp_path, clock)
    judge(client, store, link, right=False)
    assert code_of(judge(client, store, link)) == SCREENED and free(store) == 3
    other = join(client, 2)
    page = pass_stages(client, other)
    for _ in range(8):
        first = "1 of" in page or "2 of" in page.split("</label>")[0]
        page = judge(client, store, other, right=first)
    assert code_of(page) == CODE and free(store) == 2
    assert [one.passed for one in store.judgements()] == [False] * 4


# ---- places ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_abandoned_place_is_offered_again_and_what_was_done_stays(shop, clock):
    store, client = shop
    links = [join(client, number) for number in range(3)]
    pass_stages(client, links[0])
    judge(client, store, links[0])
    assert join(client, 3) is None and "taken at the moment" in sentence(client.get("/join", params=ids(3)))
    clock.pass_minutes(59)
    judge(client, store, links[0])  # which completes it
    assert free(store) == 0
    clock.pass_minutes(2)  # the limit is an hour
    assert free(store) == 2 and join(client, 3)
    page = client.get(links[1]).text  # who comes back takes the last one
    assert "Consent" in page and free(store) == 0
    answer = client.get(links[2])
    assert answer.status_code == 409 and "come back later" in sentence(answer)
    answer = client.post(f"{links[2]}/step", data={"stage": "consent", "agree": "yes"})
    assert answer.status_code == 409 and rows(store)[2]["consent"] is None
    assert len(store.judgements()) == 2


def test_looking_keeps_no_place(shop, clock):
    store, client = shop
    link = join(client, 1)
    for _ in range(3):
        clock.pass_minutes(25)
        client.get(link)
    assert rows(store)[0]["until"] < clock().isoformat() or free(store) == 2
    clock.pass_minutes(61)
    assert free(store) == 3


def test_an_answer_after_the_place_is_gone_is_not_stored(shop, clock):
    store, client = shop
    link = join(client, 0)
    pass_stages(client, link)
    form = fields(client.get(link, follow_redirects=True).text) | {"choice": "left"}
    clock.pass_minutes(61)
    others = [join(client, number) for number in (1, 2, 3)]
    assert all(others) and client.post(link, data=form).status_code == 409 and not store.judgements()
    clock.pass_minutes(61)
    assert client.post(link, data=form).status_code == 303 and len(store.judgements()) == 1


@pytest.mark.slow
def test_recruitment_ends_when_all_is_judged(shop, clock):
    store, client = shop
    for number in range(3):
        link = join(client, number)
        pass_stages(client, link)
        for _ in range(2):
            page = judge(client, store, link)
        assert code_of(page) == CODE
    clock.pass_minutes(10_000)
    answer = client.get("/join", params=ids(9))
    assert answer.status_code == 409 and "This study is complete" in sentence(answer) and len(rows(store)) == 3
    assert "3 complete, 0 under way, 0 free" in client.get("/progress/the-organiser").text


def test_a_person_who_has_judged_every_pair_is_done_though_more_were_wanted(tmp_path, clock):
    store = store_of(str(tmp_path / "s.db"), study(each=50, consent="", screening=[], instructions=""), clock=clock)
    client = client_of(store)
    link = join(client, 1)
    for _ in range(3):
        page = judge(client, store, link)
    assert code_of(page) == CODE


def test_chats_have_places_too(tmp_path, clock):
    store = store_of(str(tmp_path / "s.db"), study(each=2), clock=clock)
    chats = ChatStore(store, plan_of(conversations=2))
    client = TestClient(app_of(chats), HERE, raise_server_exceptions=False, follow_redirects=False)
    link = join(client, 1)
    token = link.split("/")[-1]
    assert client.post(f"{link}/say", data={"chat": 1, "place": 0, "text": "hi"}).headers["location"] == link
    assert "A conversation" in pass_stages(client, link)
    for _ in range(2):
        assert CODE not in client.get(link).text
        talk(chats, token)
    assert code_of(client.get(link).text) == CODE and store.places.taken().complete == 1
    with pytest.raises(InputError):
        chats.current("nobody")
    assert {chat.model for chat in map(chats.read, (1, 2))} == set(CHAT_MODELS)


@pytest.mark.parametrize("work", ["pairs", "chats"])
def test_who_has_done_enough_for_a_study_that_wants_less_now_is_done(work, tmp_path, clock):
    url, short = str(tmp_path / "s.db"), {"consent": "", "screening": [], "instructions": ""}
    for each, page in ((3, ""), (2, CODE)):
        with contextlib.closing(store_of(url, study(each=each, **short), clock=clock)) as store:
            chats = ChatStore(store, plan_of(conversations=each))
            app = TestClient(app_of(chats), HERE, follow_redirects=False)
            client = client_of(store) if work == "pairs" else app
            link = join(client, 1)
            for _ in range(2 * (not page)):
                form = fields(client.get(link, follow_redirects=True).text) | {"choice": "left"}
                talk(chats, link.split("/")[-1]) if work == "chats" else client.post(link, data=form)
            if page:
                assert code_of(client.get(link, follow_redirects=True).text) == page
            assert store.places.taken().complete == bool(page)


# ---- the record ------------------------------------------------------------------------------------------------------


def done_by(shop, number):
    """Let a person do everything; the link."""
    store, client = shop
    link = join(client, number)
    pass_stages(client, link)
    while not code_of(judge(client, store, link)):
        pass
    return link


def test_the_table_of_payments_says_who_did_what_and_the_report_names_nobody(shop, clock, tmp_path, capsys):
    store, client = shop
    done_by(shop, 1)
    clock.pass_minutes(5)
    join(client, 2)
    human_eval("export", "--to", "payments", "--out", tmp_path / "p.csv", "--database", store.name)
    assert json.loads(capsys.readouterr().out)["people"] == 2
    first, second = pandas.read_csv(tmp_path / "p.csv", dtype=str, keep_default_na=False).to_dict("records")
    assert first["person"] == f"{1:024x}" and first["submission"] == ids(1)["SESSION_ID"] and first["passed"] == "yes"
    assert (first["stage"], first["judgements"], first["seconds"]) == ("complete", "2", "0.0")
    assert (second["stage"], second["judgements"], second["ended"], second["approved"]) == ("consent", "0", "", "")
    human_eval("report", "--out", tmp_path / "report", "--database", store.name)
    human_eval("export", "--to", "acute_eval", "--out", tmp_path / "a.jsonl", "--database", store.name)
    for path in [*(tmp_path / "report").iterdir(), tmp_path / "a.jsonl"]:
        assert first["person"].encode() not in path.read_bytes(), path
    assert first["name"] in (tmp_path / "report" / "judgements.csv").read_text()


def bytes_of(store):
    """All that the database's files hold."""
    return b"".join(
        Path(f"{store.name}{end}").read_bytes() for end in ("", "-wal") if Path(f"{store.name}{end}").exists()
    )


@pytest.mark.slow
@pytest.mark.parametrize("answers", [False, True])
def test_who_is_forgotten_is_nowhere_in_the_files(shop, answers, capsys):
    store, client = shop
    link = done_by(shop, 1)
    done_by(shop, 2)
    store.database.checkpoint()
    assert ids(1)["PROLIFIC_PID"].encode() in bytes_of(store) and b"person-" in bytes_of(store)
    human_eval("forget", ids(1)["PROLIFIC_PID"], *["--answers"] * answers, "--database", store.name)
    assert json.loads(capsys.readouterr().out) == {"forgotten": 1, "answers": 2 * answers}
    left = bytes_of(store)
    assert not [one for one in (*ids(1).values(), link.split("/")[-1]) if one != STUDY_ID and one.encode() in left]
    assert ids(2)["PROLIFIC_PID"].encode() in left and client.get(link).status_code == 404
    assert len(store.judgements()) == (2 if answers else 4) and store.places.taken().complete == 2


def test_who_is_forgotten_while_at_work_leaves_the_place(shop):
    store, client = shop
    join(client, 1)
    human_eval("forget", f"{1:024x}", "--database", store.name)
    assert free(store) == 3


def test_an_invited_persons_name_and_words_are_forgotten(tmp_path):
    chats, (token,) = shop_of(str(tmp_path / "s.db"), ("ada lovelace",))
    for number in range(2):
        talk(chats, token, says=f"i am ada lovelace {number}")
    human_eval("forget", "ada lovelace", "--answers", "--database", chats.store.name)
    assert b"lovelace" not in bytes_of(chats.store) and len(chats.store.conversations()) == 2
    assert not chats.store.invited()  # serve prints no link for nobody
    chats.store.close()


@pytest.mark.slow
def test_people_are_forgotten_after_days(shop, clock, capsys):
    store, _ = shop
    store.places.study = study(minutes=100_000)  # a place is kept so long, a name is not
    clock.now = datetime.now(timezone.utc) - timedelta(days=40)
    done_by(shop, 1)
    clock.pass_minutes(30 * 24 * 60)
    done_by(shop, 2)
    human_eval("forget", "--older-than", 30, "--database", store.name)
    assert json.loads(capsys.readouterr().out)["forgotten"] == 1
    assert [row["person"] for row in rows(store)] == [None, f"{2:024x}"] and len(store.judgements()) == 4


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("forget", "needs a PERSON or --older-than"),
        ("forget x --older-than 3", "needs a PERSON or --older-than"),
        ("forget nobody", "Nobody is called 'nobody'"),
        ("forget --older-than 0", "'0' is not a whole number"),
        ("forget --older-than 1000000", "1000000 is too large: at most 100000"),
        ("export --to payments --out new.csv", "No platform has sent anybody"),
        ("export --to payment --out new.csv", "--to acute_eval|parlai|crowd_task|potato|label_studio|payments"),
    ],
)
def test_bad_calls_of_the_record(arguments, said, ends_with_2, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    evaluation("s.db")[0].close()
    (line,) = ends_with_2("human_eval", *arguments.split(), "--database", "s.db")
    assert said in line


# ---- strangers -------------------------------------------------------------------------------------------------------


FORGED = [
    {"STUDY_ID": f"{7:024x}"},
    {"STUDY_ID": ""},
    {"PROLIFIC_PID": ""},
    {"PROLIFIC_PID": "x" * 24},
    {"PROLIFIC_PID": "a" * 23 + "\n"},
    {"PROLIFIC_PID": "a" * 5000},
    {"PROLIFIC_PID": "' OR 1=1 --"},
    {"PROLIFIC_PID": "{{%PROLIFIC_PID%}}"},
    {"SESSION_ID": ""},
    {"SESSION_ID": "٠" * 24},
    {"SESSION_ID": SCRIPT},
]


def test_identifiers_that_are_none(shop):
    store, client = shop
    for changes in FORGED:
        answer = client.get("/join", params=ids(1) | changes)
        assert answer.status_code in (404, 422) and sentence(answer) and "<script>" not in answer.text, changes
    assert not rows(store) and free(store) == 3


def test_another_persons_submission_and_another_submission_of_a_person(shop):
    store, client = shop
    link = join(client, 1)
    foreign = client.get("/join", params=ids(2) | {"SESSION_ID": ids(1)["SESSION_ID"]})
    forged = client.get("/join", params=ids(1, session=77))
    assert foreign.status_code == forged.status_code == 422 and "does not belong to you" in sentence(forged)
    assert len(rows(store)) == 1 and link not in foreign.text + forged.text


def test_with_verify_only_submissions_that_the_platform_confirms_get_in(tmp_path, clock):
    store = store_of(str(tmp_path / "s.db"), clock=clock)
    real = {(ids(1)["PROLIFIC_PID"], ids(1)["SESSION_ID"]), (ids(1)["PROLIFIC_PID"], ids(1, session=5)["SESSION_ID"])}
    client = client_of(store, verify=lambda person, submission: (person, submission) in real)
    link = join(client, 1)
    assert join(client, 2) is None and join(client, 1, SESSION_ID=f"{6:024x}") is None and len(rows(store)) == 1
    assert join(client, 1, SESSION_ID=f"{5:024x}") == link  # begun once more, as the platform confirms
    assert rows(store)[0]["session"] == f"{5:024x}"


def test_forged_forms_of_the_stages(shop):
    store, client = shop
    link = join(client, 1)
    forged = [
        {"stage": "work"},
        {"stage": "instructions"},
        {"stage": "complete"},
        {},
        {"stage": "screening", "answer0": "yes"},
        {"stage": "consent"},
        {"stage": "consent", "agree": "maybe"},
        {"stage": "screening", "answer0": "perhaps"},
        {f"field{number}": "" for number in range(30)},
    ]
    for form in forged:
        answer = client.post(f"{link}/step", data=form)
        assert answer.status_code in (303, 415, 422) and CODE not in answer.text
        assert fields(client.get(link).text)["stage"] == "consent"
    answer = client.post(link, data={"assignment": 1, "choice": "left"})
    assert answer.headers["location"] == link and not store.judgements()  # work before the consent
    assert client.get(f"{link}/1").text == client.get(link).text
    assert client.post("/annotate/nobody/step", data={"stage": "consent", "agree": "yes"}).status_code == 404


@pytest.mark.slow
@pytest.mark.parametrize("arrivals", [150, pytest.param(10_000, marks=pytest.mark.release)])
def test_ten_thousand_arrivals_for_fifty_places(arrivals, tmp_path, clock, monkeypatch):
    store = store_of(str(tmp_path / "s.db"), study(places=50), clock=clock)
    monkeypatch.setattr(shared_pages, "REQUESTS_PER_MINUTE", 60)
    client = client_of(store)
    found = collections.Counter(client.get("/join", params=ids(number)).status_code for number in range(200))
    assert found[429] >= 100 and len(rows(store)) <= 60  # of one address, the rest must wait
    for number in range(200, 200 + arrivals):  # past the pages, as from as many addresses
        with contextlib.suppress(InputError):
            store.places.arrive(f"{number:024x}", f"{number + 10**6:024x}")
    assert len(rows(store)) == 50 and free(store) == 0
    clock.pass_minutes(61)
    assert free(store) == 50


@pytest.mark.slow
def test_places_and_codes_are_right_whatever_happens(tmp_path, clock, monkeypatch):
    """Some hundred random acts of ten people; what is stored is compared with what a person may have done."""
    draw = random.Random(0)
    monkeypatch.setattr(queries, "new_token", lambda: f"{draw.getrandbits(64):x}")  # which decides the sides of pairs
    store = store_of(str(tmp_path / "s.db"), pairs=4, checks=1, clock=clock)
    client, links, judged, coded = client_of(store), {}, collections.Counter(), set()
    for _ in range(120):
        number = draw.randrange(10)
        links[number] = links.get(number) or join(client, number)
        link, act = links[number], draw.random()
        if act < 0.1:
            clock.pass_minutes(draw.choice([1, 30, 61]))
        elif link:
            page = client.get(link, follow_redirects=True).text
            if "assignment" in fields(page):
                before = len(store.judgements())
                form = fields(page) | {"choice": draw.choice(["left", "right"]), "reason": str(before)}
                for _ in range(draw.choice([1, 2])):
                    client.post(link, data=form)
                judged[link] += len(store.judgements()) - before
            elif "stage" in fields(page):
                client.post(
                    f"{link}/step", data=fields(page) | {"agree": "yes", "answer0": draw.choice(["yes", "yes", "no"])}
                )
            coded |= {link} if code_of(page) == CODE else set()
            assert (code_of(page) == CODE) <= (judged[link] == 2)
        assert free(store) >= 0
    assert sum(judged.values()) == len(store.judgements()) and len(coded) <= 3
    assert store.places.taken().complete == sum(count == 2 for count in judged.values()) > 0


# ---- MTurk and the plain link ----------------------------------------------------------------------------------------

WORKER, HIT, TURK = "A" + "1" * 13, "3" + "B" * 29, "https://workersandbox.mturk.com"


def turk(**changes):
    """What MTurk puts into the address of its frame."""
    return {"workerId": WORKER, "hitId": HIT, "assignmentId": "3" + "C" * 29, "turkSubmitTo": TURK} | changes


@pytest.fixture
def turk_shop(tmp_path, clock):
    of_mturk = study(id=HIT, platform="mturk", code="", screen_out_code="")
    store = store_of(str(tmp_path / "s.db"), of_mturk, clock=clock)
    yield store, client_of(store)
    store.close()


@pytest.mark.slow
def test_mturk_gets_its_form_at_the_end_and_its_frame(turk_shop):
    store, client = turk_shop
    preview = client.get("/join", params={"hitId": HIT, "assignmentId": "ASSIGNMENT_ID_NOT_AVAILABLE"})
    assert "<em>both</em>" in preview.text and "This is a preview" in preview.text and "<form" not in preview.text
    assert not rows(store)
    link = client.get("/join", params=turk()).headers["location"]
    pass_stages(client, link)
    judge(client, store, link)
    page = judge(client, store, link)
    assert (
        f'action="{TURK}/mturk/externalSubmit"' in page
        and f'name="assignmentId" value="{turk()["assignmentId"]}"' in page
    )
    policy = client.get(link).headers["content-security-policy"]
    assert f"frame-ancestors https://worker.mturk.com {TURK} https://www.mturk.com;" in f"{policy};"
    assert f"form-action 'self' https://www.mturk.com {TURK};" in policy
    again = client.get("/join", params=turk(assignmentId="3" + "D" * 29))  # returned, and accepted once more
    assert again.headers["location"] == link and "3" + "D" * 29 in client.get(link).text


def test_an_assignment_that_was_returned_is_the_next_workers(turk_shop):
    store, client = turk_shop
    first = client.get("/join", params=turk()).headers["location"]
    client.post(f"{first}/step", data=fields(client.get(first).text) | {"agree": "no"})
    second = client.get("/join", params=turk(workerId="A" + "2" * 13)).headers["location"]
    assert second != first and [row["session"] for row in rows(store)] == [None, turk()["assignmentId"]]
    assert [one.submission for one in work_of_people(store)] == ["", turk()["assignmentId"]]
    again = client.get("/join", params=turk(assignmentId="3" + "D" * 29)).headers["location"]
    assert again == first and "You did not agree" in client.get(first).text


def test_an_assignment_takes_its_place_along_but_not_from_who_has_completed(turk_shop):
    store, client = turk_shop
    first, second, third = (turk(workerId="A" + str(number) * 13) for number in (1, 2, 3))
    client.get("/join", params=first)
    before = store.places.taken()
    assert client.get("/join", params=second).status_code == 303 and store.places.taken() == before
    with store.database.atomic_write() as session:
        session.scalars(select(ParticipantRow).where(ParticipantRow.session.is_not(None))).one().stage = COMPLETE
    answer = client.get("/join", params=third)
    assert answer.status_code == 422 and "does not belong to you" in sentence(answer)


@pytest.mark.parametrize(
    "back", ["https://www.mturk.com.evil.example", "http://www.mturk.com", "https://evil.example/www.mturk.com", ""]
)
def test_nothing_is_sent_to_other_hosts_than_mturks(turk_shop, back):
    store, client = turk_shop
    answer = client.get("/join", params=turk(turkSubmitTo=back))
    assert answer.status_code == 422 and "another place" in sentence(answer) and not rows(store)


def test_other_pages_are_in_no_frame(shop):
    _, client = shop
    assert "frame-ancestors 'none'" in client.get("/join").headers["content-security-policy"]


@pytest.mark.slow
def test_one_link_for_everybody_asks_who_comes(tmp_path, clock):
    store = store_of(str(tmp_path / "s.db"), study(id="spring", platform="link", code="thanks, <all>"), clock=clock)
    client = client_of(store)
    page = client.get("/join", params={"study": "spring"}).text
    assert 'name="person"' in page and not rows(store)
    link = client.get("/join", params=fields(page) | {"person": "ada@example.org"}).headers["location"]
    assert client.get("/join", params=fields(page) | {"person": "ada@example.org"}).headers["location"] == link
    pass_stages(client, link)
    judge(client, store, link)
    assert code_of(judge(client, store, link)) == "thanks, <all>"
    assert client.get("/join", params={"study": "autumn", "person": "x"}).status_code == 404


# ---- the organiser's texts -------------------------------------------------------------------------------------------


def test_markdown_of_the_organiser_is_shown_and_its_html_is_not(tmp_path, clock):
    text = f"# Who we are\n\n{SCRIPT}\n\n- [us](https://example.org)\n- [bad](javascript:alert(1))\n\n![x](https://e.org/x.png)"
    store = store_of(str(tmp_path / "s.db"), study(consent=text), clock=clock)
    client = client_of(store)
    page = client.get(join(client, 1)).text
    assert "<h1>Who we are</h1>" in page and '<a href="https://example.org">us</a>' in page
    assert "&lt;script&gt;" in page and "<script>" not in page and "<img" not in page and 'href="javascript' not in page


def test_every_text_of_the_pages_is_in_the_file_and_can_be_replaced(shop, tmp_path, clock):
    known = json.loads(ENGLISH.read_text())
    assert all(key == text for key, text in known.items() if key != "lang")
    asked = {text for path in TEMPLATES.glob("*.html") for text in said_in(path)}
    asked |= {
        text
        for path in (TEMPLATES.parent / "static").glob("*.js")
        for text in re.findall(r'said\("(.*?)"', path.read_text())
    }
    asked |= {text for pair in ENDS.values() for text in pair} | {RETURN}
    assert asked <= known.keys()
    for path in TEMPLATES.glob("*.html"):
        # The organiser's are in English.
        if path.name not in ("progress.html", "chat_progress.html", "organiser.html", "organiser_parts.html"):
            bare = re.sub(r"\{#.*?#\}|\{%.*?%\}|\{\{.*?\}\}|<[^<>]*>", "", path.read_text(), flags=re.DOTALL)
            assert not re.findall(r"[a-z]{3,}", bare.replace("Ctrl", "").replace("Enter", "")), path
    german = {
        "lang": "de",
        "I agree": "Ich stimme zu",
        "{} of {}": "{1} insgesamt, das ist {0}",
        "Partner": "Gegenüber",
    }
    german |= {"Pair {} has not been shown to you yet; continue where you are.": "Paar {} kommt noch."}
    (tmp_path / "de.json").write_text(
        json.dumps(german | {"Speaker A": "Person A", "I would prefer to talk to {}": "Lieber {}"})
    )
    store, _ = shop
    client = client_of(store, texts=read_wording(str(tmp_path / "de.json")))
    link = join(client, 1)
    page = client.get(link).text
    assert '<html lang="de">' in page and "Ich stimme zu" in page and "I do not agree" in page
    page = pass_stages(client, link)
    assert "2 insgesamt, das ist 1" in page and "Lieber Person A" in page and "Gegenüber" in page
    assert sentence(client.get(f"{link}/7")) == "Paar 7 kommt noch."


def said_in(path):
    """The texts that a template asks for, past its expressions."""
    syntax = jinja2.Environment().parse(path.read_text())
    calls = [call for call in syntax.find_all(jinja2.nodes.Call) if getattr(call.node, "name", "") == "say"]
    return {call.args[0].value for call in calls if isinstance(call.args[0], jinja2.nodes.Const)}


@pytest.mark.parametrize(
    "texts",
    ["[]", "{", '{"I agree": 1}', '{"I aggree": "x"}', '{"{} of {}": "{}"}', '{"{} of {}": "{0} {2}"}',
     '{"{} of {}": "{0.x}{1}"}', '{"{} of {}": "{:s} {}"}', '{"{} of {}": "{:>99999999999} {}"}',
     '{"{} of {}": "{!s} {}"}',
     '{"I agree": "{}"}', '{"I agree": " "}', '{"I agree": "{"}'],
)  # fmt: skip
def test_texts_that_cannot_be_used(texts, tmp_path):
    (tmp_path / "t.json").write_text(texts)
    with pytest.raises(InputError, match=r"The texts .*t\.json"):
        read_wording(str(tmp_path / "t.json"))


# ---- the command -----------------------------------------------------------------------------------------------------

SETTINGS = {"id": STUDY_ID, "places": 50, "each": 2, "code": CODE}


def write_study(folder, **changes):
    """A study's file."""
    (folder / "consent.md").write_text("# Consent\n\nyes ?")
    (folder / "study.json").write_text(json.dumps(SETTINGS | {"consent": "consent.md"} | changes))
    return folder / "study.json"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"places": 0}, "its places (0) cannot be used"),
        ({"places": "3"}, "its field places is of another type"),
        ({"each": -1}, "its each (-1)"),
        ({"id": ""}, "its id ('')"),
        ({"id": "abc"}, "its id ('abc')"),
        ({"code": "a b"}, "its code ('a b')"),
        ({"screen_out_code": CODE}, "its screen_out_code"),
        ({"minutes": 0}, "its minutes (0)"),
        ({"onboarding": -1}, "its onboarding (-1)"),
        ({"consent": "no.md"}, "no.md cannot be read"),
        ({"screening": [{"question": "?", "options": ["a"], "accepted": ["b"]}]}, "its screening"),
        *(
            ({"screening": [{"question": "?", "options": ["a", option], "accepted": ["a"]}]}, "its screening")
            for option in ("", " ", "b\nc", "b\r")
        ),
        ({"screening": [{"question": "?"}]}, "a field is missing"),
        ({"colour": "red"}, "an unknown field, colour"),
        ({"platform": "mturk"}, "its platform is 'mturk', and the command's prolific"),
        ({"title": "half \ud800"}, "it has half a character"),
        ({"screening": [{"question": "?", "options": ["\ud800"], "accepted": ["\ud800"]}]}, "it has half a character"),
    ],
)
def test_studies_that_cannot_be_used(changes, said, tmp_path):
    with pytest.raises(InputError, match=re.escape(said)):
        read_study(str(write_study(tmp_path, **changes)), "prolific")


def test_a_byte_order_mark_is_no_part_of_a_text(tmp_path):
    path = write_study(tmp_path, platform="prolific")
    for file in (path, tmp_path / "consent.md"):
        file.write_bytes(codecs.BOM_UTF8 + file.read_bytes())
    assert read_study(str(path), "prolific").consent.startswith("# Consent")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--recruit prolific", "needs --study FILE"),
        ("--recruit somewhere", "invalid choice: 'somewhere'"),
        ("--recruit prolific --study none.json --insecure", "none.json cannot be used"),
        ("--study study.json", "give --recruit"),
        ("--verify", "give --recruit"),
        ("--recruit prolific --study study.json", "needs --public-url https://HOST"),
        ("--recruit prolific --study study.json --public-url http://x.org", "plain HTTP can be read"),
        ("--recruit prolific --study study.json --public-url ftp://x.org", "is not an address"),
        ("--recruit prolific --study study.json --public-url https://x.org/path", "is not an address"),
        *(
            (f"--recruit prolific --study study.json --public-url https://{address}", "is not an address")
            for address in ("[", "[::1", "℀.org", "x/#f", "x?", "x:99999", "x:abc", "x:-1", "x:0", "u:p@x", "x\\y")
        ),
        ("--recruit link --study study.json --verify", "--verify is for --recruit prolific"),
        ("--recruit prolific --study study.json --insecure --verify", "set PROLIFIC_TOKEN"),
    ],
)
def test_flags_of_a_study(flags, said, ends_with_2, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PROLIFIC_TOKEN", raising=False)
    write_study(tmp_path)
    store_of("s.db").close()
    (line,) = ends_with_2("human_eval", "serve", "--database", "s.db", *flags.split())
    assert said in line


def test_chats_of_a_study_are_counted_by_its_settings(trained, ends_with_2, tmp_path):
    flags = ["--recruit", "link", "--study", write_study(tmp_path, id="x"), "--conversations", 4]
    (line,) = ends_with_2("human_eval", "chat", trained("bi"), *flags, "--database", tmp_path / "s.db")
    assert "--conversations is for people who are invited; set each in" in line and not (tmp_path / "s.db").exists()


@pytest.mark.parametrize("command", ["serve", "chat"])
def test_the_address_for_the_platform_is_printed(command, trained, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(http_server, "server_of", Stopped)
    write_study(tmp_path, id="spring & autumn", code="x", onboarding=4)
    (tmp_path / "replies.txt").write_text("yes\nno\n")
    store_of("s.db").close()
    flags = ["--recruit", "link", "--study", "study.json", "--public-url", "https://x.org/", "--port", "0"]
    models = [trained("bi"), "--fixed-candidates-path", "replies.txt"] if command == "chat" else []
    human_eval(command, *models, *flags, "--database", "s.db")
    said = capsys.readouterr()
    assert ("wants 2 pairs and 4 checks" in said.err) == (command == "serve")
    organiser, address = [line.split("\t") for line in said.out.splitlines()]
    assert address == ["link", "https://x.org/join?study=spring%20%26%20autumn"]
    assert organiser[1].startswith("https://x.org/progress/")


# ---- fifty at once ---------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def served(folder, port=0):
    """The process, and the address that it prints for the platform."""
    study = ("--recruit", "prolific", "--study", "study.json", "--insecure")
    command = ("serve", "--database", "s.db", "--port", port, *study)
    with serving(*command, links=2, cwd=folder, bare=True) as (process, printed):
        yield process, printed["prolific"].partition("/join")[0]


class Participant:
    """One of the people: what the server said it had stored, and the code that it gave."""

    def __init__(self, number, leaves=False):
        self.number, self.leaves = number, leaves
        self.link, self.code, self.stored, self.unsure = None, None, set(), set()

    def work(self, browser, start, judged):
        """Go the whole way, or until the server is gone."""
        with contextlib.suppress(httpx2.TransportError):
            answer = browser.get(f"{start}/join", params=ids(self.number))
            if answer.status_code == 409:
                return
            assert self.link in (None, answer.headers["location"]), "another place"
            self.link = answer.headers["location"]
            while True:
                answer = browser.get(start + self.link, follow_redirects=True)
                if answer.status_code == 409:  # the place was offered again, and is taken
                    return
                page = answer.text
                self.code = code_of(page)
                assert self.code in (None, CODE) and bool(self.code) == (CODE in page)
                sure, likely = len(self.stored), len(self.stored | self.unsure)
                assert likely >= 2 if self.code else sure < 2
                if self.code:
                    return
                form = fields(page)
                if "stage" in form:
                    assert browser.post(f"{start}{self.link}/step", data=form | {"agree": "yes"}).status_code == 303
                    continue
                if self.leaves and self.stored:
                    return
                reason = f"{self.number} on {form['assignment']}"
                self.unsure.add(reason)
                answer = browser.post(start + self.link, data=form | {"choice": "left", "reason": reason})
                assert answer.status_code == 303, answer.text
                self.stored.add(reason)
                judged()


@pytest.mark.slow
def test_fifty_at_once_with_a_server_that_is_killed(tmp_path):
    evaluation(str(tmp_path / "s.db"), 3, ())[0].close()
    write_study(tmp_path)
    people = [Participant(number, leaves=number % 10 == 0) for number in range(60)]  # of whom ten find no place
    left, reached = collections.Counter({"judgements": 40}), threading.Event()

    def judged():
        left.subtract(["judgements"])
        if left["judgements"] <= 0:
            reached.set()

    def work(start, who, meanwhile=lambda: None):
        with httpx2.Client(timeout=120) as browser, ThreadPoolExecutor(len(who)) as pool:
            working = [pool.submit(one.work, browser, start, judged) for one in who]
            meanwhile()
            for one in working:
                one.result()

    def kill():
        reached.wait(60)
        process.send_signal(signal.SIGKILL)

    with served(tmp_path) as (process, start):
        work(start, people, kill)
    with served(tmp_path, start.rpartition(":")[2]) as (process, again):
        assert again == start
        work(start, people)
        with contextlib.closing(sqlite3.connect(tmp_path / "s.db")) as database, database:
            held = "SELECT count(*) FROM participants WHERE stage = 'work'"
            assert database.execute(held).fetchone()[0] == sum(bool(one.link and not one.code) for one in people)
            database.execute("UPDATE participants SET until = '2020-01-01T00:00:00+00:00' WHERE stage != 'complete'")
        for one in people:
            one.leaves = False
        latecomers = [Participant(number) for number in range(100, 110)]
        work(start, [one for one in people if not one.leaves] + latecomers)
    everybody = people + latecomers
    store = store_of(str(tmp_path / "s.db"), study(places=50))
    reasons = collections.Counter(one.reason for one in store.judgements())
    acknowledged = {reason for one in everybody for reason in one.stored}
    assert set(reasons.values()) == {1} and acknowledged <= reasons.keys()
    assert reasons.keys() <= {reason for one in everybody for reason in one.unsure}
    places = store.places.taken()
    assert places.complete == sum(one.code == CODE for one in everybody) == 50 and places.open == 0
    store.close()
