"""MTurk's interface through boto3: what is signed and sent, what is sent once, and what a failing service changes."""

import dataclasses
import json
import threading
from concurrent.futures import ThreadPoolExecutor

import botocore.endpoint
import pytest
from crowd import Clock, client_of, judge, store_of
from crowd import study_of as study
from fake_mturk import KEY, SECRET, FakeMturk, mturk
from fake_platform import caller

from polyagents.human_eval.platforms import mturk as client_module
from polyagents.human_eval.platforms.calls import perform
from polyagents.human_eval.storage.people_records import work_of_people

HIT = "3" + "B" * 29
SETTINGS = {"id": HIT, "places": 3, "each": 1, "reward": 50, "title": "Who talks better?", "description": "Read & say."}
WORKERS = ["A" + str(number) * 13 for number in range(3)]
COUNTS = {"sent": 0, "done before": 0, "unknown": 0, "refused": 0}


@pytest.fixture
def fake(monkeypatch):
    """The platform, which boto3 asks instead of the real one, without pauses."""
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setattr(botocore.endpoint.time, "sleep", lambda seconds: None)
    made = FakeMturk()
    with mturk(made) as url:
        monkeypatch.setattr(client_module, "SANDBOX", url)
        yield made


@pytest.fixture
def shop(tmp_path, fake, monkeypatch, capsys):
    """Three workers, two of whom have completed the study: the store, and how to call the step in its folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.json").write_text(json.dumps(SETTINGS))
    (tmp_path / "draft.json").write_text(json.dumps(SETTINGS | {"id": ""}))
    of_mturk = study(
        id=HIT, platform="mturk", code="", screen_out_code="", each=1, consent="", instructions="", screening=[]
    )
    store = store_of("s.db", of_mturk, clock=Clock())
    client = client_of(store)
    for number, worker in enumerate(WORKERS):
        token = store.places.arrive(worker, assignment(number), client_module.SANDBOX)
        if number < 2:
            judge(client, store, f"/annotate/{token}")
        fake.add(assignment(number), worker, HIT)

    yield store, caller("mturk", SECRET, capsys)
    store.close()


def assignment(number):
    return f"3ASSIGN{number:023d}"


@pytest.mark.slow
def test_nothing_is_sent_without_yes_and_every_call_is_printed(shop, fake):
    _, call = shop
    for line, printed in (
        (["create", "--public-url", "https://x.org"], "create_hit"),
        (["approve"], "approve_assignment"),
        (["reject", WORKERS[0], "--message", "no"], "reject_assignment"),
        (["bonus", WORKERS[0], "--amount", ".5", "--message", "well done"], '"BonusAmount": "0.50"'),
        (["stop"], "update_expiration_for_hit"),
    ):
        _, said, error = call(*line)
        assert printed in said and "Nothing was sent" in said and not error
    assert not fake.asked


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault", ["lost", *(pytest.param(fault, marks=pytest.mark.release) for fault in (None, 500, 400))]
)
def test_a_hit_is_made_once(shop, fake, fault):
    _, call = shop
    fake.faults = [("CreateHIT", fault)] if fault else []
    lines, _, error = call("create", "--public-url", "https://x.org", "--yes")
    assert not error and lines[0]["id"] in fake.hits and len(fake.hits) == 1
    (hit,) = fake.hits.values()
    assert "<ExternalURL>https://x.org/join</ExternalURL>" in hit["Question"] and hit["MaxAssignments"] == 3
    again = call("create", "--public-url", "https://x.org", "--yes")[0]
    assert again == [COUNTS | {"done before": 1, "id": lines[0]["id"]}] and len(fake.hits) == 1


def test_the_status_has_all_pages(shop, fake):
    lines = shop[1]("status")[0]
    assert [one["status"] for one in lines] == ["Submitted"] * 3 and [one["judgements"] for one in lines] == [1, 1, 0]


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["lost", *(pytest.param(fault, marks=pytest.mark.release) for fault in (None, 503))])
def test_who_has_completed_is_approved_once(shop, fake, fault):
    _, call = shop
    fake.faults = [("ApproveAssignment", fault)] if fault else []
    lines, said, _ = call("approve", "--yes")
    assert lines == [COUNTS | {"sent": 2}], said
    assert [one["AssignmentStatus"] for one in fake.assignments.values()] == ["Approved", "Approved", "Submitted"]
    assert call("approve", WORKERS[0], "--yes")[0] == [COUNTS | {"done before": 1}]


def test_a_rejection_gives_the_place_back(shop, fake):
    store, call = shop
    call("reject", WORKERS[0], "--message", "no", "--yes")
    assert fake.assignments[assignment(0)]["AssignmentStatus"] == "Rejected" and store.places.taken().complete == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "faults",
    [["lost"] * 4, [500] * 4, *(pytest.param(few, marks=pytest.mark.release) for few in ([], ["lost"], [500]))],
)
def test_a_bonus_is_paid_once(shop, fake, faults):
    """boto3 itself sends a request four times; after that, our next call looks it up."""
    _, call = shop
    fake.faults = [("SendBonus", fault) for fault in faults]
    line = ("bonus", WORKERS[0], "--amount", "1.5", "--message", "well done", "--yes")
    first = call(*line)
    assert bool(first[2]) == (len(faults) == 4)
    fake.tokens.clear()  # they are forgotten after a day
    call(*line)
    assert [(one["BonusAmount"], one["WorkerId"]) for one in fake.bonuses] == [("1.50", WORKERS[0])]


def test_two_who_pay_at_once_pay_once(shop, fake):
    store, _ = shop
    one = work_of_people(store)[0]
    calls = [client_module.MechanicalTurk(client_module.SANDBOX).bonus(study(), one, 50, "x") for _ in range(2)]
    both = threading.Barrier(2)

    def pay(call):
        send = call.send
        return perform(store, dataclasses.replace(call, send=lambda token: [both.wait(10), send(token)][1]))

    with ThreadPoolExecutor(2) as pool:
        assert [outcome for outcome, _ in pool.map(pay, calls)] == ["sent", "sent"]
    assert len(fake.bonuses) == 1


@pytest.mark.slow
def test_a_wrong_key_and_none(shop, fake, monkeypatch, tmp_path):
    _, call = shop
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    assert "MTurk refuses" in call("status")[2]
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    assert "set AWS_ACCESS_KEY_ID" in call("status")[2]
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    assert "The AWS configuration of this machine cannot be used (The config profile (nobody)" in call("status")[2]
