"""Probes and figures: what a proxy and Prometheus see of a server."""

import threading
from pathlib import Path

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families
from stand import HERE, REPLIES, Stand, echo
from starlette.testclient import TestClient

from polyagents import Ranker
from polyagents.errors import InputError
from polyagents.serving import observing
from polyagents.serving.http_server import address, listening, server_of
from polyagents.serving.ranking_app import create_app
from polyagents.serving.sources import Sources


def figures(client, **headers):
    """Every sample of /metrics: (name, labels) -> value."""
    answer = client.get("/metrics", headers=headers)
    assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/plain")
    samples = (sample for family in text_string_to_metric_families(answer.text) for sample in family.samples)
    return {(one.name, *sorted(one.labels.items())): one.value for one in samples}


def test_probes_need_no_token_and_tell_nothing_while_figures_do():
    with TestClient(create_app(Stand(echo), "a-secret"), "http://proxy.example") as client:
        assert client.get("/healthz").json()["status"] == "ok"
        assert client.get("/readyz").json() == {"status": "ready"}
        assert client.get("/metrics").status_code == client.get("/").status_code == 401
        assert client.post("/readyz", json={}).status_code == 401
        assert figures(client, Authorization="Bearer a-secret")
    with TestClient(create_app(Stand(echo)), "http://proxy.example") as client:
        assert client.get("/healthz").status_code == 200 and client.get("/metrics").status_code == 403


def test_probes_are_not_counted_among_a_clients_requests():
    with TestClient(create_app(Stand(echo), per_minute=1), HERE) as client:
        assert {client.get("/readyz").status_code for _ in range(5)} == {200}
        assert [client.get("/").status_code for _ in range(2)] == [200, 429]


def test_a_server_whose_candidates_are_away_is_not_ready_but_healthy(monkeypatch, caplog):
    monkeypatch.setattr(observing, "STALE", 0)
    with TestClient(create_app(Stand(echo)), HERE) as client:
        for error in (InputError("Milvus at 10.0.0.1 is away."), RuntimeError("password=x")):
            away = Stand(echo)
            away.check = raising(error)
            with TestClient(create_app(away), HERE) as other:
                answer = other.get("/readyz")
                assert answer.status_code == 503
                assert answer.json() == {"error": "The candidates cannot be searched; the server's log says why."}
                assert str(error) in caplog.text
                assert other.get("/healthz").status_code == 200
        assert client.get("/readyz").status_code == 200


def raising(error):
    def check():
        raise error

    return check


def test_many_probes_ask_the_candidates_once():
    asked = []
    stand = Stand(echo)
    stand.check = lambda: asked.append(threading.current_thread())
    with TestClient(create_app(stand), HERE) as client:
        for _ in range(5):
            assert client.get("/readyz").status_code == 200
    assert len(asked) == 1


def test_answers_are_counted_by_path_and_status_and_strangers_paths_together():
    with TestClient(create_app(Stand(echo)), HERE) as client:
        for _ in range(3):
            client.post("/rank", json={"context": "hi"})
        client.post("/rank", json={})
        for path in ("/a", "/b", "/static/none"):
            client.get(path)
        seen = figures(client)
    counted = {key[1:]: value for key, value in seen.items() if key[0] == "polyagents_requests_total"}
    assert counted == {
        (("path", "/rank"), ("status", "200")): 3,
        (("path", "/rank"), ("status", "422")): 1,
        (("path", "other"), ("status", "404")): 3,
    }
    assert seen["polyagents_request_seconds_count", ("path", "/rank")] == 4
    stage = ("stage", "search")
    assert seen["polyagents_batch_size_count", stage] == 3 and seen["polyagents_batch_size_sum", stage] == 3
    assert seen["polyagents_batch_seconds_count", stage] == 3 and seen[("polyagents_waiting",)] == 0


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
def test_no_page_of_them_is_for_other_sites(path):
    with TestClient(create_app(Stand(echo)), HERE) as client:
        headers = client.get(path).headers
    assert headers["cross-origin-resource-policy"] == "same-origin" and headers["cache-control"] == "no-store"


def test_what_is_under_way_is_answered_before_a_server_ends():
    """SIGTERM sets should_exit: no new connection is taken, and those that wait are not cut off."""
    begun, go_on = threading.Event(), threading.Event()

    def slow(contexts, candidates, top_k):
        begun.set()
        assert go_on.wait(30)
        return echo(contexts, candidates, top_k)

    statuses = []
    with listening("127.0.0.1", 0) as opened:
        opened.listen()
        server = server_of(create_app(Stand(slow)))
        serving = threading.Thread(target=server.run, kwargs={"sockets": [opened]})
        serving.start()
        url = f"{address(opened)}/rank"
        asking = threading.Thread(
            target=lambda: statuses.append(httpx2.post(url, json={"context": "hi"}, timeout=60).status_code)
        )
        asking.start()
        assert begun.wait(30)
        server.should_exit = True
        go_on.set()
        asking.join()
        serving.join()
    assert statuses == [200]
    with pytest.raises(httpx2.ConnectError):
        httpx2.post(url, json={"context": "hi"}, timeout=60)


# ---- what clients may not see ----------------------------------------------------------------------------------------


@pytest.fixture(params=["candidates", "index", "an index that is damaged"])
def hidden(request, model, tmp_path):
    """A server whose files are in a folder that no client may see the name of, and that folder's name."""
    ranker = Ranker.load(file := str(model("bi")))
    replies = tmp_path / "replies.txt"
    replies.write_text("\n".join(REPLIES))
    if request.param == "candidates":
        return Sources(file, str(replies)).read(), tmp_path.name
    ranker.index(replies, tmp_path / "index")
    served = Sources(file, index_dir=str(tmp_path / "index")).read()
    if "damaged" in request.param:

        def damaged(*_):
            raise InputError(f"{tmp_path} was changed or damaged after it was written.")

        served.candidates.search = damaged
    return served, tmp_path.name


@pytest.mark.slow
def test_no_client_sees_a_path_of_the_server(hidden, monkeypatch):
    served, name = hidden
    assert name not in served.model and name not in served.source
    gets = [
        "/",
        "/docs",
        "/openapi.json",
        "/healthz",
        "/readyz",
        "/metrics",
        "/nothing",
        "/rank",
        "/static/",
        "/static/x",
    ]
    posts = [
        ("/rank", {"context": "hi"}),
        ("/rank", {"context": "hi", "candidates": ["a", "b"]}),
        ("/rank", {}),
        ("/chat", {"history": ["hi"]}),
        ("/v1/rerank", {"query": "hi", "documents": ["a"], "return_documents": True}),
        ("/v2/rerank", {"query": "hi", "documents": ["a"], "max_tokens_per_doc": 0}),
        ("/v1/embeddings", {"input": "hi", "input_type": "document"}),
        ("/v1/embeddings", {"input": "hi", "input_type": "query", "dimensions": 1}),
    ]
    with TestClient(create_app(served), HERE, raise_server_exceptions=False) as client:
        answers = [client.get(path) for path in gets] + [client.post(path, json=body) for path, body in posts]
        answers.append(client.post("/chat", json={"history": ["hi"]}, headers={"Accept": "text/event-stream"}))
    folders = [name, str(Path(__file__).parents[2]), str(Path.home()), "/tmp", "site-packages"]
    for answer in answers:
        said = answer.text + str(answer.headers)
        assert not [folder for folder in folders if folder in said], answer.request.url
    assert {answer.status_code for answer in answers} >= {200, 404, 405, 422}
    assert (answers[10].status_code == 500) == ("damaged" in str(served.candidates.search))
