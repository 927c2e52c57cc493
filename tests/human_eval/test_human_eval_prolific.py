"""Prolific's interface: what is sent, what is sent once, and what a busy or failing service changes."""

import json
import logging
from pathlib import Path

import pytest
from crowd import CODE, SCREENED, STUDY_ID, Clock, client_of, ids, join, judge, store_of
from crowd import study_of as study
from fake_platform import caller
from fake_prolific import TOKEN, FakeProlific, prolific

from polyagents.human_eval.platforms import prolific as client_module
from polyagents.human_eval.platforms.calls import perform
from polyagents.human_eval.platforms.prolific import Prolific
from polyagents.human_eval.steps.page_server import verifier
from polyagents.human_eval.storage.people_records import forget, work_of_people
from polyagents.human_eval.study import SCREENED_OUT

SORRY = "Thank you for taking part. We cannot accept this submission, because most of the attention checks are wrong."
SETTINGS = {"id": STUDY_ID, "places": 3, "each": 2, "code": CODE, "screen_out_code": SCREENED, "reward": 200,
            "title": "Who talks better?", "description": "Read two conversations."}  # fmt: skip


@pytest.fixture
def fake(monkeypatch):
    """The platform, which our client asks instead of the real one, without pauses."""
    monkeypatch.setenv("PROLIFIC_TOKEN", TOKEN)
    made = FakeProlific()
    made.pauses = []
    with prolific(made) as url:
        monkeypatch.setattr(client_module, "API", url)
        monkeypatch.setattr(client_module, "sleep", made.pauses.append)
        yield made


@pytest.fixture
def shop(tmp_path, fake, monkeypatch, capsys):
    """Three people of a study, two of whom have completed it: the store, and how to call the step in its folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.json").write_text(json.dumps(SETTINGS))
    (tmp_path / "draft.json").write_text(json.dumps(SETTINGS | {"id": ""}))
    store = store_of("s.db", study(each=1, consent="", instructions="", screening=[]), clock=Clock())
    client = client_of(store)
    for number in (1, 2, 3):
        person = ids(number)
        fake.add(person["SESSION_ID"], person["PROLIFIC_PID"], STUDY_ID)
        link = join(client, number)
        if number < 3:
            judge(client, store, link)
            fake.submissions[person["SESSION_ID"]]["status"] = "AWAITING REVIEW"

    yield store, caller("prolific", TOKEN, capsys)
    store.close()


def status(fake, number):
    return fake.submissions[ids(number)["SESSION_ID"]]["status"]


def bonuses(fake, number):
    return fake.submissions[ids(number)["SESSION_ID"]]["bonus_payments"]


COUNTS = {"sent": 0, "done before": 0, "unknown": 0, "refused": 0}


def test_nothing_is_sent_without_yes(shop, fake, monkeypatch):
    _, call = shop
    monkeypatch.delenv("PROLIFIC_TOKEN")
    person = ids(1)["PROLIFIC_PID"]
    for line, printed in (
        (["create", "--public-url", "https://x.org"], "/studies/ {"),
        (["approve"], '/transition/ {"action": "APPROVE"}'),
        (["reject", person, "--message", SORRY], '"REJECT"'),
        (["bonus", person, "--amount", "1.5", "--message", "well done"], "1.50"),
        (["stop"], '"STOP"'),
    ):
        _, said, error = call(*line)
        assert printed in said and "Nothing was sent" in said and not error
    assert not fake.asked


def test_a_draft_is_made_of_the_settings(shop, fake):
    _, call = shop
    ((made,), _, _) = call("create", "--public-url", "https://x.org", "--yes")
    (draft,) = fake.studies.values()
    assert made["id"] == draft["id"] and draft["total_available_places"] == 3 and draft["reward"] == 200
    names = "&".join(f"{name}={{{{%{name}%}}}}" for name in ("PROLIFIC_PID", "STUDY_ID", "SESSION_ID"))
    assert draft["external_study_url"] == f"https://x.org/join?{names}"
    assert [one["code"] for one in draft["completion_codes"]] == [CODE, SCREENED]
    ((again,), _, _) = call("create", "--public-url", "https://x.org", "--yes")
    assert again == COUNTS | {"done before": 1, "id": made["id"]} and len(fake.studies) == 1
    _, _, error = call("create", "--public-url", "https://x.org", "--yes", study="study.json")
    assert f"has the id {STUDY_ID} already" in error and len(fake.studies) == 1


def test_a_draft_whose_answer_was_lost_is_found_and_not_made_twice(shop, fake):
    _, call = shop
    fake.faults = [("POST /studies/", "lost")]
    _, _, error = call("create", "--public-url", "https://x.org", "--yes")
    assert "not known whether" in error
    ((made,), _, _) = call("create", "--public-url", "https://x.org", "--yes")
    assert made["id"] in fake.studies and len(fake.studies) == 1


def test_the_status_says_what_each_person_did(shop, fake):
    _, call = shop
    fake.add("f" * 24, "e" * 24, STUDY_ID)  # who never reached us
    lines, _, _ = call("status")
    assert [one["status"] for one in lines] == ["AWAITING REVIEW", "AWAITING REVIEW", "ACTIVE", "ACTIVE"]
    assert [one.get("stage") for one in lines] == ["complete", "complete", "work", None]
    assert lines[0]["judgements"] == 1 and lines[0]["passed"] and lines[0]["seconds"] == 0


def test_more_submissions_than_a_page(shop, fake, monkeypatch):
    _, call = shop
    monkeypatch.setattr(client_module, "PAGE", 2)
    assert len(call("status")[0]) == 3


@pytest.mark.slow
def test_who_has_completed_the_study_is_approved_once(shop, fake):
    _, call = shop
    ((counts,), _, _) = call("approve", "--yes")
    assert counts == COUNTS | {"sent": 2} and [status(fake, number) for number in (1, 2, 3)] == [
        "APPROVED", "APPROVED", "ACTIVE"
    ]  # fmt: skip
    asked = len(fake.asked)
    ((counts,), _, _) = call("approve", "--yes")
    assert counts == COUNTS and len(fake.asked) == asked
    assert call("approve")[1] == "There is nobody to approve.\n"
    ((counts,), _, _) = call("approve", ids(1)["PROLIFIC_PID"], "--yes")
    assert counts == COUNTS | {"done before": 1} and len(fake.asked) == asked


@pytest.mark.slow
def test_a_rejection_gives_the_place_back(shop, fake):
    store, call = shop
    assert store.places.taken().complete == 2
    _, _, error = call("reject", ids(1)["PROLIFIC_PID"], "--message", "no", "--yes")
    assert "Prolific takes 100 or more" in error and status(fake, 1) == "AWAITING REVIEW"
    call("reject", ids(1)["PROLIFIC_PID"], "--message", SORRY, "--yes")
    assert status(fake, 1) == "REJECTED" and store.places.taken().complete == 1


@pytest.mark.slow
def test_a_bonus_is_paid_once_however_often_it_is_sent(shop, fake):
    store, call = shop
    names = ids(1)["PROLIFIC_PID"], ids(1)["SESSION_ID"]  # of one person
    assert "give --yes to send this." in call("bonus", *names, "--amount", "1.5", "--message", "well done")[1]
    for _ in range(4):
        call("bonus", *names, "--amount", "1.5", "--message", "well done", "--yes")
    assert bonuses(fake, 1) == [150] and work_of_people(store)[0].bonus == 150
    call("bonus", ids(1)["PROLIFIC_PID"], "--amount", "1.5", "--message", "another reason", "--yes")
    assert bonuses(fake, 1) == [150, 150]


@pytest.mark.slow
def test_a_study_that_is_begun_again_can_be_stopped_again(shop, fake):
    _, call = shop
    for _ in range(2):
        fake.studies[STUDY_ID] = {"status": "ACTIVE"}
        assert call("stop", "--yes")[0] == [COUNTS | {"sent": 1}]
        assert fake.studies[STUDY_ID]["status"] == "AWAITING REVIEW"


def test_who_was_approved_and_paid_is_forgotten_with_the_submission(shop, fake):
    store, call = shop
    person = ids(1)["PROLIFIC_PID"]
    call("approve", "--yes")
    call("bonus", person, "--amount", "1.5", "--message", "well done", "--yes")
    forget(store, person, False)
    left = Path(store.name).read_bytes()
    assert not [one for one in (person, ids(1)["SESSION_ID"], "bonus-0") if one.encode() in left]
    assert ids(2)["SESSION_ID"].encode() in left
    assert [(one.approved is not None, one.bonus) for one in work_of_people(store)[:2]] == [(True, 150), (True, 0)]


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["lost", 500])
@pytest.mark.parametrize("where", ["POST /bulk-bonus-payments/.*/pay/", "POST /submissions/bonus-payments/"])
def test_a_bonus_whose_answer_was_lost_is_looked_up(shop, fake, where, fault):
    """Of a status of 5xx, nobody knows whether it was paid: here it was not, and it must not be paid twice either."""
    store, _ = shop
    access, one = Prolific(TOKEN, client_module.API), work_of_people(store)[0]
    call = access.bonus(study(), one, 150, "well done")
    fake.faults = [(where, fault)]
    assert perform(store, call)[0] == "unknown"
    assert perform(store, call)[0] == "unknown"  # another process may be at it
    store.clock.pass_minutes(11)
    paying = "/pay/" in where
    assert perform(store, call)[0] == ("sent" if not paying else "done before" if fault == "lost" else "unknown")
    assert perform(store, call)[0] == ("unknown" if paying and fault != "lost" else "done before")
    assert bonuses(fake, 1) == ([] if paying and fault != "lost" else [150])


def test_a_payment_that_was_killed_before_it_was_sent_is_not_lost(shop, fake):
    store, _ = shop
    access, one = Prolific(TOKEN, client_module.API), work_of_people(store)[0]
    call = access.bonus(study(), one, 150, "well done")

    def killed(*_, **__):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), pytest.MonkeyPatch.context() as patch:
        patch.setattr(access, "asked", killed)
        perform(store, call)
    store.clock.pass_minutes(11)
    assert perform(store, call)[0] == "sent" and bonuses(fake, 1) == [150]


def test_a_refused_call_may_be_sent_again_when_its_reason_is_gone(shop, fake):
    _, call = shop
    fake.submissions[ids(1)["SESSION_ID"]]["status"] = "ACTIVE"
    lines, said, error = call("approve", "--yes")
    assert lines == [COUNTS | {"sent": 1, "refused": 1}] and "ACTIVE cannot become APPROVED" in said + error
    fake.submissions[ids(1)["SESSION_ID"]]["status"] = "AWAITING REVIEW"
    assert call("approve", "--yes")[0] == [COUNTS | {"sent": 1}]


def test_a_busy_service_is_asked_again_after_the_pause_that_it_names(shop, fake):
    _, call = shop
    fake.faults = [("POST .*", 429), ("POST .*", 429)]
    assert call("approve", "--yes")[0] == [COUNTS | {"sent": 2}] and fake.pauses == [7.0, 7.0]
    fake.faults = [("GET .*", 500), ("GET .*", "lost"), ("GET .*", 502)]
    assert len(call("status")[0]) == 3
    fake.faults = [("GET .*", 500)] * 5
    assert "try again later" in call("status")[2]


@pytest.mark.slow
@pytest.mark.parametrize("answer", [[], {}, {"id": None}, "ok", 7.5])
def test_half_an_answer_is_none(shop, fake, answer):
    _, call = shop
    bonus = ("bonus", ids(1)["PROLIFIC_PID"], "--amount", "1.5", "--message", "well done", "--yes")
    for path, line in (("/studies/", ("create", "--public-url", "https://x.org", "--yes")), (".*bonus.*", bonus)):
        fake.faults = [(f"POST {path}", answer)]
        lines, _, error = call(*line)
        assert lines == [COUNTS | {"unknown": 1}] and "not known whether" in error
    fake.faults = [("GET .*", answer)]
    lines, _, error = call("status")
    assert (len(lines), "other than a JSON object" in error) == ((3, False) if isinstance(answer, dict) else (0, True))
    assert bonuses(fake, 1) == []


def test_with_verify_prolific_is_asked_about_who_arrives(tmp_path, fake):
    access = Prolific(TOKEN, client_module.API)
    store = store_of(str(tmp_path / "v.db"))
    client = client_of(store, verify=lambda person, submission: access.knows(STUDY_ID, person, submission))
    fake.add(ids(1)["SESSION_ID"], ids(1)["PROLIFIC_PID"], STUDY_ID)
    fake.add(ids(2)["SESSION_ID"], ids(2)["PROLIFIC_PID"], "another study")
    assert join(client, 1) and not join(client, 2) and not join(client, 3)
    fake.submissions[ids(1)["SESSION_ID"]]["status"] = "RETURNED"
    assert not join(client, 1)
    fake.faults = [("GET .*", 500)] * 5
    answer = client.get("/join", params=ids(1))
    assert answer.status_code == 503 and "Prolific" not in answer.text
    store.close()


@pytest.mark.parametrize("token", [TOKEN, "another"])
def test_who_serves_with_a_token_that_is_refused_hears_of_it(token, fake, monkeypatch, capsys):
    monkeypatch.setenv("PROLIFIC_TOKEN", token)
    assert verifier({"verify": True}, study())
    said = capsys.readouterr().err
    assert ("(401: " in said and "nobody new can take part" in said) == (token != TOKEN) and token not in said


@pytest.mark.slow
def test_the_token_is_in_no_log_and_follows_no_redirect(shop, fake, caplog):
    _, call = shop
    caplog.set_level(logging.DEBUG)
    fake.faults = [("GET .*", 302)]
    call("status")
    call("approve", "--yes")
    assert TOKEN not in caplog.text and SCREENED_OUT not in caplog.text


BAD = {
    "": "needs create|status|approve|reject|bonus|stop",
    "pay": "needs create|status",
    "status x": "is not about single people",
    "approve --message thanks": "--message is not for human_eval prolific approve; remove it",
    "reject x --amount 1 --message no": "--amount is not for human_eval prolific reject; remove it",
    "stop --public-url https://x.org": "--public-url is not for human_eval prolific stop; remove it",
    "create --public-url http://x.org": "is not an address",
    "create": "is not an address",
    "bonus": "needs PEOPLE, --amount and --message",
    "bonus nobody --amount 1 --message x": "'nobody' is nobody's name",
    "reject": "needs PEOPLE and --message",
}


def test_bad_calls(shop, fake):
    for arguments, said in BAD.items():
        assert said in shop[1](*arguments.split(), "--yes")[2] and not fake.asked


def test_a_missing_token(shop, fake, monkeypatch):
    for token in ("", " ", "é", "a\nb"):
        monkeypatch.setenv("PROLIFIC_TOKEN", token)
        assert "set PROLIFIC_TOKEN" in shop[1]("status")[2] and not fake.asked
