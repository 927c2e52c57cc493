"""TypeSafe's own client asks a running server to decide: it gets what `Ranker.decide` gives."""

import json
from dataclasses import replace

import numpy as np
import pytest
import typesafe_sdk
from commands import copy_model
from decisions import simulated
from stand import REPLIES, Stand
from starlette.testclient import TestClient
from typesafe_sdk import Choice, Noul, RetryPolicy, Score, TypeSafeClient
from web import running

from polyagents import InputError, Match, Ranker
from polyagents.commands import serve
from polyagents.decisions.calibration import MadeFor, fitted_to, identity, path_of, write_calibration
from polyagents.serving.ranking_app import create_app
from polyagents.serving.sources import Sources

CONTEXT = "your persona: i ski .\ni like red"
COLOURS = {"red": "so you like red", "blue": ["so you like blue", "blue is nice"], "bye": None}


@pytest.fixture(scope="module")
def candidates_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("decisions") / "replies.txt"
    path.write_text("\n".join(REPLIES))
    return str(path)


@pytest.fixture(scope="module")
def calibrated(trained, tmp_path_factory):
    """A model file with a calibration that knows "none of these"."""
    file = str(copy_model(trained("poly"), tmp_path_factory.mktemp("calibrated") / "poly"))
    ranker = Ranker.load(file)
    spread = float(np.std(ranker.score(CONTEXT, REPLIES)))
    scored, _ = simulated(200, temperature=max(spread, 1e-3), outside=0.2)
    made_for = MadeFor(identity(ranker.model), None, None, None, 1, 10, "")
    write_calibration(fitted_to(scored, made_for, 1.0), path_of(file))
    return file


@pytest.fixture(scope="module")
def asked(calibrated, candidates_file):
    """A ranker and a client of its server."""
    served = Sources(calibrated, candidates_file).read()
    with running(create_app(served)) as url, client(url) as asking:
        yield served.ranker, asking


def client(url, key="none"):
    """TypeSafe's client; it asks once."""
    return TypeSafeClient(api_key=key, base_url=url, retry=RetryPolicy(max_retries=0))


@pytest.mark.slow
def test_a_choice_is_what_the_ranker_decides(asked):
    ranker, asking = asked
    found = asking.system_one(CONTEXT, {"colour": Choice(criteria=COLOURS), "same": Choice(criteria=COLOURS)})
    expected = ranker.decide(CONTEXT, {name: texts or name for name, texts in COLOURS.items()})
    answer = found.choices["colour"]
    assert answer.probabilities == pytest.approx(expected.probabilities, abs=1e-4)
    assert answer.confidence == answer.probabilities[answer.choice] == max(answer.probabilities.values())
    assert found.choices["same"] == answer and found.model == "poly" and found.usage.input_tokens > 0
    raw = json.loads(found.raw_http_response.content)["answers"]["colour"]
    assert raw["calibrated"] and raw["none_probability"] == pytest.approx(expected.none_probability, abs=1e-4)


def test_yes_or_no_is_the_share_of_yes_or_what_is_not_none(asked):
    ranker, asking = asked
    both = Noul(criteria={"true": "so you like red", "false": "bye"})
    found = asking.system_one(CONTEXT, {"both": both, "one": Noul(instructions="so you like red")}).nouls
    two = ranker.decide(CONTEXT, {"true": "so you like red", "false": "bye"}, none=False)
    assert found["both"].noul == pytest.approx(two.probabilities["true"], abs=1e-4)
    one = ranker.decide(CONTEXT, ["so you like red"])
    assert found["one"].noul == pytest.approx(one.probabilities["so you like red"], abs=1e-4)


def test_a_score_is_the_expected_level(asked):
    ranker, asking = asked
    found = asking.system_one(CONTEXT, {"level": Score(criteria=REPLIES[:3])}).scores["level"]
    levels = ranker.decide(CONTEXT, REPLIES[:3], none=False).probabilities
    assert found.score == pytest.approx(sum(place * levels[text] for place, text in enumerate(REPLIES[:3])), abs=1e-3)
    assert found.legend == dict(enumerate(REPLIES[:3])) and sum(found.probabilities.values()) == pytest.approx(1)


def test_the_servers_own_candidates_have_a_name(asked):
    ranker, asking = asked
    own = asking.system_one(CONTEXT, {"reply": Choice(criteria={"@replies.txt": None})}).choices["reply"]
    assert own.probabilities == pytest.approx(ranker.decide(CONTEXT, REPLIES).probabilities, abs=1e-4)


@pytest.mark.parametrize(
    ("state", "read"),
    [
        ({"subject": "red", "n": 3}, "subject: red\nn: 3"),
        (["your persona: i ski .", "i like red"], CONTEXT),
        ([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}], "hi\nhello"),
    ],
)
def test_a_state_of_any_json_is_read_as_lines(asked, state, read):
    ranker, asking = asked
    found = asking.system_one(state, {"colour": Choice(criteria={"a": "red", "b": "blue"})}).choices["colour"]
    assert found.probabilities == pytest.approx(ranker.decide(read, {"a": "red", "b": "blue"}).probabilities, abs=1e-4)


def test_without_a_calibration_the_answer_says_so(trained, candidates_file):
    with running(create_app(Sources(trained("bi"), candidates_file).read())) as url, client(url) as asking:
        found = asking.system_one("hi", {"a": Choice(criteria={"x": None, "y": None})})
        assert json.loads(found.raw_http_response.content)["answers"]["a"]["calibrated"] is False
        assert sum(found.choices["a"].probabilities.values()) == pytest.approx(1)
        with pytest.raises(typesafe_sdk.TypeSafeUnprocessableEntityError, match="a calibration that has learnt"):
            asking.system_one("hi", {"a": Noul(instructions="hello")})
        (listed,) = asking.models.list().models
        assert listed.name == "bi" and "not calibrated" in listed.description


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"state": "", "questions": {"a": {"type": "choice", "criteria": {"x": None}}}}, "state must be"),
        ({"state": "a" * 20_001, "questions": {"a": {"type": "choice", "criteria": {"x": None}}}}, "state must be"),
        ({"state": {"a": "\ud800"}, "questions": {"a": {"type": "choice", "criteria": {"x": None}}}}, "state must be"),
        ({"state": "a", "questions": {}}, "questions must be"),
        ({"state": "a", "questions": {"a": {"type": "box"}}}, "questions must be"),
        ({"state": "a", "questions": {"a": {"type": "choice", "criteria": {}}}}, "questions must be"),
        ({"state": "a", "questions": {"a": {"type": "noul"}}}, "needs criteria with texts of true and false"),
        (
            {"state": "a", "questions": {"a": {"type": "choice", "criteria": {"x": "z", "y": "z"}}}},
            "have the same text",
        ),
        ({"state": "a", "questions": {"a": {"type": "choice", "criteria": {"x": " "}}}}, "has a blank text"),
        ({"state": "a", "questions": {"a": {"type": "choice", "criteria": {"": "x"}}}}, "has a blank name"),
        ({"state": "a", "questions": {"a": {"type": "choice", "criteria": {"x": []}}}}, "is an empty list"),
        ({"state": "a", "questions": {"a": {"type": "choice", "criteria": {"x": "y" * 2001}}}}, "more than 2,000"),
        ({"state": "a", "questions": {"a": {"type": "choice", "criteria": {"x": "\ud800"}}}}, "questions must be"),
        ({"state": "a", "questions": {"a": {"type": "choice", "criteria": {"x": ["\ud800"]}}}}, "half a character"),
        ({"state": "a", "questions": {"a": {"type": "choice", "criteria": {"@other": None}}}}, "no set @other"),
        ({"state": "a", "questions": {"a": {"type": "score", "criteria": ["x", "x"]}}}, "have the same text"),
        ({"state": "a", "questions": {str(n): {"type": "noul"} for n in range(129)}}, "questions must be"),
        ({"state": "a", "questions": {"a": {"type": "noul"}}, "assets": {"b": {}}}, "no field 'assets'"),
    ],
)
def test_a_question_that_cannot_be_answered_is_one_sentence(body, said):
    app = create_app(
        Stand(lambda contexts, texts, k: [([Match(0, text, 1.0) for text in texts], True) for _ in contexts])
    )
    with TestClient(app, base_url="http://127.0.0.1:8008") as asking:
        answer = asking.post("/v1/systemone", content=json.dumps(body), headers={"Content-Type": "application/json"})
    assert answer.status_code == 422 and said in answer.json()["error"]


def test_every_error_is_one_that_the_client_can_read(calibrated, candidates_file):
    served = Sources(calibrated, candidates_file).read()
    question = {"a": Choice(criteria={"x": None})}
    with running(create_app(served, token="secret", per_minute=1)) as url:
        with client(url) as asking, pytest.raises(typesafe_sdk.TypeSafeAuthenticationError, match="token"):
            asking.system_one("hi", question)
        with client(url, "secret") as asking:
            asking.system_one("hi", question)
            with pytest.raises(typesafe_sdk.TypeSafeRateLimitError) as limited:
                asking.system_one("hi", question)
            assert limited.value.retry_after_ms > 0


# ---- the chat --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("threshold", "handed_over"), [(0.0, False), (0.999, True)])
def test_a_chat_says_how_sure_it_is_and_hands_over(calibrated, candidates_file, threshold, handed_over):
    served = replace(Sources(calibrated, candidates_file).read(), hand_over=threshold)
    with TestClient(create_app(served), base_url="http://127.0.0.1:8008") as asking:
        reply = asking.post("/chat", json={"history": ["i like red"], "top_k": 2}).json()
    expected = served.ranker.decide("i like red", REPLIES)
    assert reply["probability"] == pytest.approx(expected.probabilities[reply["text"]], abs=1e-4)
    assert reply["hand_over"] == (handed_over or expected.choice is None)


def test_handing_over_needs_a_calibration(trained, candidates_file):
    opt = vars(serve.parser().parse_args(["-mf", trained("bi"), "--candidates-file", candidates_file, "--port", "0"]))
    with pytest.raises(InputError, match="has no calibration: run polyagents calibrate"):
        serve.run(opt | {"hand_over": 0.5})
