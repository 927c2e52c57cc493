"""Every answer can be traced: its headers, the line of its request, and figures that alert rules read."""

import json
import logging
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from stand import HERE, Stand, echo
from starlette.testclient import TestClient

from polyagents.index.engines.engine import EngineError
from polyagents.serving.logs import LOG, logging_to_stderr
from polyagents.serving.ranking_app import create_app
from polyagents.serving.reloading import Reloader
from polyagents.serving.sources import Sources

RULES = Path(__file__).parents[2] / "deploy" / "alerts.yaml"
SECRET = "nobody may read this"


def records(said):
    """The lines of JSON."""
    return [json.loads(line) for line in said.splitlines()]


# ---- ids -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", ["a", "00-4bf92f3577b34da6a3ce929d0e0e4736-01", "x" * 128, "tenant:7/web+1=2"])
def test_a_plain_id_of_the_client_is_kept(given):
    with TestClient(create_app(Stand(echo)), HERE) as client:
        assert client.get("/healthz", headers={"X-Request-Id": given}).headers["x-request-id"] == given


@pytest.mark.parametrize("given", ["", "two words", "x" * 129, "caf\xe9", '"', "a,b", "\x1b[2J", None])
def test_any_other_id_is_replaced_by_one_of_our_own(given):
    headers = {} if given is None else {"X-Request-Id": given.encode("latin-1")}
    with TestClient(create_app(Stand(echo)), HERE) as client:
        found = {client.get("/healthz", headers=headers).headers["x-request-id"] for _ in range(2)}
    assert len(found) == 2 and all(re.fullmatch("[0-9a-f]{32}", one) for one in found)


def test_every_answer_has_an_id_and_those_of_the_application_name_what_answers():
    def rank(contexts, candidates, top_k):
        if contexts == ["away"]:
            raise EngineError("Milvus at 10.0.0.1 is away.")
        return echo(contexts, candidates, top_k)

    named = {"model": "M", "fingerprint": "f", "index": "replies.txt", "generation": "1"}
    asked = [
        ("/rank", {"context": "hi"}, 200),
        ("/rank", {}, 422),
        ("/rank", {"context": "bad"}, 500),
        ("/rank", {"context": "away"}, 503),
        ("/chat", {"history": ["hi"]}, 200),
        ("/v2/rerank", {"query": "hi", "documents": ["a"]}, 200),
        ("/nothing", {}, 404),
    ]
    token = {"Authorization": "Bearer t"}
    with TestClient(create_app(Stand(rank), "t"), HERE, raise_server_exceptions=False) as client:
        for path, body, status in asked:
            answer = client.post(path, json=body, headers=token)
            assert answer.status_code == status and answer.headers["x-request-id"]
            assert {name: answer.headers[f"polyagents-{name}"] for name in named} == named, path
        streamed = client.post("/chat", json={"history": ["hi"]}, headers={"Accept": "text/event-stream", **token})
        assert streamed.headers["polyagents-generation"] == "1"
        for answer in (client.post("/rank", json={}), client.get("/", headers={"Authorization": "Bearer u"})):
            assert answer.status_code == 401 and answer.headers["x-request-id"]
            assert not [name for name in answer.headers if name.startswith("polyagents-")]


def test_a_name_that_no_header_can_have_is_percent_encoded():
    with TestClient(create_app(Stand(echo, model="Modèle 7%\n")), HERE) as client:
        answer = client.get("/healthz")
    assert answer.headers["polyagents-model"] == "Mod%C3%A8le%207%25%0A" and answer.json()["model"] == "Modèle 7%\n"


# ---- lines -----------------------------------------------------------------------------------------------------------


def ask(log_format, level, capsys):
    """What the log says of a request, one that fails, one that is refused, and a probe; and the id of all."""
    capsys.readouterr()
    app = create_app(Stand(echo), "t")
    with logging_to_stderr(log_format, level), TestClient(app, HERE, raise_server_exceptions=False) as client:
        headers = {"X-Request-Id": "the-id", "Authorization": "Bearer t"}
        client.post("/rank", json={"context": SECRET}, headers=headers)
        client.post("/chat", json={"history": ["bad"]}, headers={"Accept": "text/event-stream", **headers})
        client.get("/a%0ab?token=t", headers={"X-Request-Id": "the-id"})
        client.get("/healthz", headers=headers)
    return capsys.readouterr().err


@pytest.fixture
def stderr(monkeypatch):
    """Standard error, which `logging_to_stderr` leaves as records of JSON."""
    monkeypatch.setattr(sys, "stderr", sys.stderr)


@pytest.mark.parametrize("level", ["debug", "info", "warning", "error"])
def test_a_request_is_a_line_of_json(level, capsys, stderr):
    found = records(ask("json", level, capsys))
    assert all(one["request_id"] == "the-id" for one in found)
    lines = [one for one in found if one["message"] == "request"]
    assert [one["path"] for one in lines] == {
        "debug": ["/rank", "/chat", "/a\nb", "/healthz"],
        "info": ["/rank", "/chat", "/a\nb"],
    }.get(level, [])
    for line in lines[:1]:
        assert (line["status"], line["method"], line["generation"]) == ("200", "POST", "1") and line["ms"] >= 0
        assert (SECRET in line.get("body", "")) == (level == "debug") and "time" in line
    assert (SECRET in json.dumps(found)) == (level == "debug")
    (failed,) = [one for one in found if one["level"] == "error"]
    assert failed["message"] == "The model failed" and "RuntimeError: out of memory" in failed["traceback"]


def test_a_request_is_a_line_of_text(capsys):
    said = ask("text", "info", capsys)
    lines = [line for line in said.splitlines() if " request " in line]
    assert len(lines) == 3 and SECRET not in said and "token=t" not in said
    assert all(line.endswith(" request_id=the-id") for line in lines)
    assert re.match(
        r"\d{4}-\d\d-\d\dT[\d:.]+\+00:00 info request method=POST path=/rank status=200 ms=[\d.]+ ", lines[0]
    )
    assert 'path="/a\\nb" status=401' in lines[2]


def test_with_json_whatever_is_written_to_standard_error_is_a_record(capsys, stderr):
    with logging_to_stderr("json", "error"):
        print("a sentence", file=sys.stderr)
        print("one\ntwo\n", end="", file=sys.stderr)
        logging.getLogger("uvicorn.error").error("of uvicorn")
        print("begun", end="", file=sys.stderr)
        assert not sys.stderr.isatty()
    said = [one["message"] for one in records(capsys.readouterr().err)]
    assert said == ["a sentence", "one", "two", "of uvicorn"]


def test_logs_are_afterwards_as_before():
    loggers = [LOG, logging.getLogger("uvicorn")]
    before = [(one.handlers, one.propagate, one.level) for one in loggers]
    with logging_to_stderr("text", "debug"):
        assert [(one.handlers, one.propagate, one.level) for one in loggers] != before
    assert [(one.handlers, one.propagate, one.level) for one in loggers] == before


# ---- figures and rules -----------------------------------------------------------------------------------------------


def test_every_figure_of_an_alert_is_among_those_of_a_server():
    app = create_app(Stand(echo), reloader=Reloader(Sources("M")))
    with TestClient(app, HERE) as client:
        client.post("/rank", json={"context": "hi"})
        families = text_string_to_metric_families(client.get("/metrics").text)
        samples = {sample.name: sample.labels for family in families for sample in family.samples}
    rules = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
    for rule in rules:
        named = re.findall(r"\b(?:polyagents|process)_\w+", rule["expr"])
        assert named or re.search(r"\bup\b", rule["expr"]), rule["alert"]
        assert not {*named} - samples.keys(), rule["alert"]
        for labels in re.findall(r"\{(.*?)\}", rule["expr"]):
            known = {label for name in named for label in samples[name]} | {"job"}
            assert {*re.findall(r"(\w+)=", labels)} <= known, rule["alert"]
    assert len({rule["alert"] for rule in rules}) == len(rules) > 5
    assert samples["polyagents_served"] == Stand(echo).trace


def test_prometheus_accepts_the_rules():
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("there is no promtool here; Debian's package prometheus has it")
    done = subprocess.run([program, "check", "rules", str(RULES)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
