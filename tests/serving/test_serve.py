"""`polyagents serve`: what it answers, what it refuses, and that nothing stops it."""

import asyncio
import gzip
import json
import os
import signal
import socket
import subprocess
from pathlib import Path

import forks
import httpx2
import pytest
import torch
from stand import HERE, REPLIES, Queue, Stand, echo
from starlette.exceptions import HTTPException
from starlette.testclient import TestClient
from web import raw, running

from polyagents import Match, Ranker
from polyagents.commands.serve import parser, tokens_of, write_replies_of_task
from polyagents.errors import InputError
from polyagents.human_eval.web.shared_pages import with_headers
from polyagents.human_eval.web.wording import read_wording
from polyagents.index.engines.engine import EngineError
from polyagents.serving import answering, limits, ranking_app
from polyagents.serving.batching import EncodingJob, QueueFull, RankingJob
from polyagents.serving.guard import Guard
from polyagents.serving.http_server import listen, listening
from polyagents.serving.limits import Rate
from polyagents.serving.ranking_app import create_app
from polyagents.serving.sources import Sources

SCRIPT = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def served(trained, tmp_path_factory):
    """A poly-encoder with six replies."""
    path = tmp_path_factory.mktemp("serve") / "replies.txt"
    path.write_text("\n".join(REPLIES))
    return Sources(trained("poly"), str(path)).read()


@pytest.fixture
def client(served):
    """A client of its server, without a network between them."""
    with TestClient(create_app(served), HERE) as client:
        yield client


def found(matches):
    """Matches of Python as those of JSON."""
    return [
        ({} if m.id is None else {"id": m.id})
        | {"index": m.index, "text": m.text, "score": pytest.approx(m.score, abs=1e-4)}
        for m in matches
    ]


def events(text):
    """Server-sent events: (name, data)."""
    parts = [part.split("\n") for part in text.split("\n\n") if part]
    return [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in parts]


# ---- answers ---------------------------------------------------------------------------------------------------------


def test_rank_gives_what_the_ranker_gives(client, served):
    answer = client.post("/rank", json={"context": "hi !", "top_k": 3}).json()
    assert answer["matches"] == found(served.ranker.rank("hi !", REPLIES, top_k=3))
    assert answer["candidates"] == {"name": served.source, "size": 6} and answer["complete"] is True
    assert answer["ms"] > 0 and answer["together"] == 1


def test_rank_takes_turns_and_candidates_of_its_own(client, served):
    turns, candidates = ["your persona: i ski .", "hi !"], ["yes", "no", "yes"]
    answer = client.post("/rank", json={"context": turns, "candidates": candidates}).json()
    assert answer["matches"] == found(served.ranker.rank("\n".join(turns), candidates))
    assert answer["candidates"] == {"name": "request", "size": 3}


@pytest.mark.parametrize("kind", ["bi", "cross"])
def test_the_other_architectures_are_served(trained, replies, kind):
    served = Sources(trained(kind), str(replies)).read()
    with TestClient(create_app(served), HERE) as client:
        answer = client.post("/rank", json={"context": "hi !"}).json()
    assert answer["matches"] == found(served.ranker.rank("hi !", REPLIES))


def test_an_index_is_served(model, replies, tmp_path):
    file = str(model("bi"))
    ranker = Ranker.load(file)
    index = ranker.index(replies, tmp_path / "index")
    with TestClient(create_app(Sources(file, index_dir=str(tmp_path / "index")).read()), HERE) as client:
        answer = client.post("/rank", json={"context": "hi !", "top_k": 2}).json()
    assert answer["matches"] == found(ranker.rank("hi !", index, top_k=2))
    assert answer["candidates"] == {"name": "index", "size": 6}


WITH_IDS = [{"id": f"r{n}", "text": text, "length": len(text), "last": text[-1]} for n, text in enumerate(REPLIES)]
FILTERS = [
    ({"last": "e"}, ["r0", "r2", "r4", "r5"]),
    ({"last": ["e", "d"], "length": {"lt": 12}}, ["r0", "r5"]),
    ({"length": 3}, ["r5"]),
    ({"last": "x"}, []),
    ({}, [one["id"] for one in WITH_IDS]),
]


@pytest.mark.parametrize("kind", ["index", "file", "list"])
def test_candidates_with_ids_are_served_and_filtered(trained, tmp_path, kind):
    (tmp_path / "faq.jsonl").write_text("\n".join(map(json.dumps, WITH_IDS)))
    file = trained("cross" if kind == "list" else "poly")
    ranker, fields = Ranker.load(file), ["last", "length:int"]
    if kind == "index":
        index = ranker.index(tmp_path / "faq.jsonl", tmp_path / "index", fields=fields)
        served = Sources(file, index_dir=str(tmp_path / "index")).read()
    else:
        index = ranker.prepare(WITH_IDS, fields)
        served = Sources(file, str(tmp_path / "faq.jsonl"), fields="last,length:int").read()
    with TestClient(create_app(served), HERE) as client:
        for given, left in FILTERS:
            answer = client.post("/rank", json={"context": "hi !", "filter": given}).json()
            assert answer["matches"] == found(ranker.rank("hi !", index, filter=given)) and answer["complete"] is True
            assert {one["id"] for one in answer["matches"]} == {*left}
        for given, said in (
            ({"colour": "red"}, "names 'colour', which is not a field; the fields are last (text), length (int)"),
            ({"length": "3"}, "length is '3'; give a whole number"),
            ({"last": {"like": "e"}}, "give bounds"),
            ({"last' or '1": "e"}, "is not a field"),
            ({"last": [""] * 1_001}, "filter must be an object of at most 32 fields"),
            ("last", "filter must be"),
        ):
            answer = client.post("/rank", json={"context": "hi !", "filter": given})
            assert answer.status_code == 422 and said in answer.json()["error"], answer.json()
        own = client.post("/rank", json={"context": "hi !", "candidates": ["a"], "filter": {"last": "e"}})
        assert own.status_code == 422 and "have no fields" in own.json()["error"]
        assert client.post("/chat", json={"history": ["hi !"]}).json()["text"] in REPLIES


def test_plain_lines_have_no_ids_and_no_fields(client):
    answer = client.post("/rank", json={"context": "hi !", "filter": {}}).json()
    assert all(one.keys() == {"index", "text", "score"} for one in answer["matches"])
    answer = client.post("/rank", json={"context": "hi !", "filter": {"tenant": "a"}})
    assert answer.status_code == 422 and "these candidates have no fields" in answer.json()["error"]


@pytest.mark.parametrize("path", ["/v1/rerank", "/v2/rerank"])
def test_documents_are_filtered_by_their_texts_and_keep_their_ids(client, path):
    documents = ["bye", *({"id": f"d{n}", "text": text, "last": text[-1]} for n, text in enumerate(REPLIES))]
    whole = client.post(path, json={"query": "hi !", "documents": documents}).json()["results"]
    assert [one.get("id") for one in whole] == [f"d{one['index'] - 1}" if one["index"] else None for one in whole]
    some = client.post(path, json={"query": "hi !", "documents": documents, "filter": {"last": ["e", "d"]}}).json()
    assert some["results"] == [
        pytest.approx(one) for one in whole if one["index"] and documents[one["index"]]["last"] in "ed"
    ]
    none = client.post(path, json={"query": "hi !", "documents": documents, "filter": {"id": "x"}, "top_n": 2})
    assert none.status_code == 200 and none.json()["results"] == []
    for given in ({"colour": "e"}, {"last": 1}):
        refused = client.post(path, json={"query": "hi !", "documents": documents, "filter": given})
        assert refused.status_code == 422 and "filter" in refused.json()["message"]


def test_without_candidates_the_model_answers_as_in_interactive(model, chat):
    file = model("poly")
    with pytest.raises(InputError, match="does not exist yet; give some with --candidates-file"):
        Sources(str(file)).read()  # the library reads no task
    write_replies_of_task(str(file))
    with TestClient(create_app(Sources(str(file)).read()), HERE) as client:
        reply = client.post("/chat", json={"history": ["hi !"]}).json()
    (replies,) = Path(file).parent.glob("*.cands")  # with -t the world of the task would bring a persona
    assert reply["text"] in " ".join(chat(file, ["hi !"], "--fixed-candidates-path", replies)[0])
    assert reply["candidates"]["name"].endswith(".cands")


def test_chat_puts_the_persona_first_and_says_nothing_twice(client, served):
    persona, history = ["your persona: i ski ."], ["hi !", "so you like red", "yes"]
    answer = client.post("/chat", json={"history": history, "persona": persona, "top_k": 10}).json()
    all_of_them = served.ranker.rank("\n".join(persona + history), REPLIES)
    assert answer["matches"] == found(match for match in all_of_them if match.text != "so you like red")
    assert answer["text"] == answer["matches"][0]["text"]


def test_chat_repeats_itself_when_all_has_been_said(client):
    answer = client.post("/chat", json={"history": [*REPLIES, "and now ?"]}).json()
    assert answer["text"] in REPLIES


def test_chat_streams_what_happens(client):
    body = {"history": ["hi !"], "top_k": 2}
    answer = client.post("/chat", json=body, headers={"Accept": "text/event-stream"})
    assert answer.headers["content-type"].startswith("text/event-stream")
    (first, queued), (second, ranking), (third, reply) = events(answer.text)
    assert (first, second, third) == ("queued", "ranking", "reply")
    assert queued == {"ahead": 0} and ranking["candidates"]["size"] == 6
    whole = client.post("/chat", json=body).json()
    assert reply["matches"] == whole["matches"] and reply["text"] == whole["text"]


def test_the_page_shows_what_is_served(client, served):
    page = client.get("/").text
    assert "poly-encoder" in page and "6 candidates" in page and served.source in page


def test_the_endpoints_are_described_without_the_network(client):
    page, schema = client.get("/docs").text, client.get("/openapi.json").json()
    assert set(schema["paths"]) == {"/rank", "/chat", "/v1/rerank", "/v2/rerank", "/v1/embeddings", "/v1/systemone"}
    described = "200 400 401 403 408 413 415 422 429 500 503"
    for path, methods in schema["paths"].items():
        assert set(described.split()) == set(methods["post"]["responses"])
        assert f"POST {path}" in page and f"curl http://127.0.0.1:8008{path}" in page
    assert "a whole number from 1 to 100" in page
    assert "http" not in page.replace(HERE, "")  # nothing from elsewhere
    assert "<script" not in page


# ---- many at once ----------------------------------------------------------------------------------------------------


def answers(model, questions, **limits):
    """Answers (or errors) to questions that all wait when the model begins."""

    async def ask():
        batcher = Queue(model, **limits)
        tickets = [batcher.ask(question) for question in questions]
        batcher.start()
        result = await asyncio.gather(*(ticket.result for ticket in tickets), return_exceptions=True)
        batcher.stop()
        return result

    return asyncio.run(ask())


@pytest.mark.parametrize("kind", ["bi", "poly", "uni", "cross"])
def test_what_waits_is_ranked_together_as_if_alone(trained, replies, kind):
    served = Sources(trained(kind), str(replies)).read()
    contexts = ["hi !", "do you like red ?\nyes", "tell me everything about the sea and the mountains", "bye", "hi !"]
    together = answers(served, [RankingJob(context, None, 4) for context in contexts])
    for context, answer in zip(contexts, together, strict=True):
        (alone,) = answers(served, [RankingJob(context, None, 4)])
        assert (alone.together, answer.together) == (1, 5)
        assert [m.index for m in answer.matches] == [m.index for m in alone.matches]
        assert [m.score for m in answer.matches] == pytest.approx([m.score for m in alone.matches], abs=1e-4)


def test_only_what_is_alike_is_ranked_together():
    asked = [RankingJob("a", None, 1), RankingJob("b", ("x",), 1), RankingJob("c", None, 2), RankingJob("d", None, 1)]
    found = answers(Stand(echo), asked)
    assert [answer.matches[0].text for answer in found] == ["a", "b", "c", "d"]
    assert [answer.together for answer in found] == [2, 1, 1, 2]


def test_single_texts_are_encoded_together_and_lists_by_themselves():
    called = []
    stand = Stand(echo)
    encode = stand.encode
    stand.encode = lambda texts, are_contexts: called.append(texts) or encode(texts, are_contexts)
    asked = [EncodingJob(*job) for job in ((("a",), True), (("bb", "c"), True), (("dd",), False), (("eee",), True))]
    found = answers(stand, [*asked, RankingJob("f", None, 1)])
    assert called == [["a", "eee"], ["bb", "c"], ["dd"]]
    assert [part.vectors.tolist() for part in found[:4]] == [[[1, 1]], [[2, 1], [1, 1]], [[2, 0]], [[3, 1]]]
    assert [part.tokens for part in found[:4]] == [[1], [1, 1], [1], [1]]
    assert found[4].matches[0].text == "f" and found[4].together == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="on a GPU all are ranked together")
def test_a_long_context_does_not_hold_up_short_ones(served):
    """On a CPU, where all would be padded to its length."""
    asked = [RankingJob(context, None, 1) for context in ("hi", "hi there " * 500, "how are you ?")]
    assert [answer.together for answer in answers(served, asked)] == [2, 1, 2]


def test_the_oldest_question_is_answered_first():
    order = []

    def rank(contexts, candidates, top_k):
        order.append("".join(contexts))
        return echo(contexts, candidates, top_k)

    asked = [("a", 1), ("b", 2), ("c", 3), ("d", 1), ("e", 2)]
    answers(Stand(rank), [RankingJob(context, None, top_k) for context, top_k in asked])
    assert order == ["ad", "be", "c"]


def test_no_more_are_ranked_together_than_allowed():
    found = answers(Stand(echo), [RankingJob(context, None, 1) for context in "abcde"], together=2)
    assert [answer.together for answer in found] == [2, 2, 2, 2, 1]


def test_an_engine_that_is_away_is_asked_once_for_all_that_are_ranked_together():
    asked = []

    def away(contexts, candidates, top_k):
        asked.append(len(contexts))
        raise EngineError("Milvus is away.")

    found = answers(Stand(away), [RankingJob(context, None, 1) for context in "abc"])
    assert [str(error) for error in found] == ["Milvus is away."] * 3 and asked == [3]


def test_an_error_of_the_model_is_only_for_the_request_that_caused_it():
    first, second, third = answers(Stand(echo), [RankingJob(context, None, 1) for context in ("a", "bad", "c")])
    assert (first.matches[0].text, third.matches[0].text) == ("a", "c")
    assert isinstance(second, RuntimeError)


def test_what_nobody_waits_for_is_not_ranked():
    ranked = []

    def rank(contexts, candidates, top_k):
        ranked.extend(contexts)
        return echo(contexts, candidates, top_k)

    async def ask():
        batcher = Queue(Stand(rank))
        gone, there = batcher.ask(RankingJob("gone", None, 1)), batcher.ask(RankingJob("there", None, 1))
        gone.result.cancel()
        batcher.start()
        await there.result
        batcher.stop()

    asyncio.run(ask())
    assert ranked == ["there"]


def test_a_full_queue_is_an_exception():
    async def ask():
        batcher = Queue(Stand(echo), waiting=1)
        batcher.ask(RankingJob("a", None, 1))
        with pytest.raises(QueueFull):
            batcher.ask(RankingJob("b", None, 1))

    asyncio.run(ask())


def test_a_full_queue_is_503():
    async def ask():
        transport = httpx2.ASGITransport(create_app(Stand(echo), waiting=1))  # no lifespan: nobody answers
        async with httpx2.AsyncClient(transport=transport, base_url=HERE) as client:
            sent = {asyncio.create_task(client.post("/rank", json={"context": c})) for c in "ab"}
            done, waiting = await asyncio.wait(sent, return_when=asyncio.FIRST_COMPLETED)
            for one in waiting:
                one.cancel()
            return done.pop().result()

    answer = asyncio.run(ask())
    assert answer.status_code == 503 and answer.headers["retry-after"] == "1"
    assert "Too many requests wait" in answer.json()["error"]


def test_the_server_goes_on_after_an_error_of_the_model():
    with TestClient(create_app(Stand(echo)), HERE, raise_server_exceptions=False) as client:
        failed = client.post("/rank", json={"context": "bad"})
        assert failed.status_code == 500 and failed.json()["error"].startswith("The model failed with RuntimeError")
        assert "out of memory" not in failed.text  # that is for the server's log
        streamed = client.post("/chat", json={"history": ["bad"]}, headers={"Accept": "text/event-stream"})
        assert events(streamed.text)[-1] == ("error", failed.json())
        assert client.post("/rank", json={"context": "good"}).json()["matches"][0]["text"] == "good"


def test_a_score_that_is_no_number_is_null():
    rank = lambda contexts, candidates, top_k: [([Match(0, "a", float("-inf"))], True)]  # noqa: E731
    with TestClient(create_app(Stand(rank)), HERE) as client:
        assert client.post("/rank", json={"context": "a"}).json()["matches"][0]["score"] is None
        streamed = client.post("/chat", json={"history": ["b"]}, headers={"Accept": "text/event-stream"})
        assert events(streamed.text)[-1][1]["matches"][0]["score"] is None


# ---- limits ----------------------------------------------------------------------------------------------------------


def test_a_client_may_ask_so_often_a_minute():
    now = [0.0]
    rate = Rate(3, clock=lambda: now[0])
    assert [rate.wait("a") for _ in range(3)] == [0, 0, 0]
    assert rate.wait("a") == pytest.approx(20) and rate.wait("b") == 0
    now[0] = 20.0
    assert rate.wait("a") == 0 and rate.wait("a") == pytest.approx(20)


def test_clients_that_have_gone_are_forgotten(monkeypatch):
    monkeypatch.setattr(limits, "CLIENTS", 2)
    now = [0.0]
    rate = Rate(60, clock=lambda: now[0])
    for client in ("a", "b"):
        rate.wait(client)
    now[0] = 100.0
    rate.wait("c")
    assert set(rate.used_until) == {"c"}


def test_too_many_requests_are_told_when_to_come_again(served):
    app = create_app(served, per_minute=2)
    app.app.rate.clock = lambda: 0.0  # however busy the machine is
    with TestClient(app, HERE) as client:
        answers = [client.post("/rank", json={"context": "hi"}) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert answers[2].headers["retry-after"] == "30" and "ask again in 30 s" in answers[2].json()["error"]


def test_a_client_cannot_say_that_it_is_another():
    """uvicorn believes X-Forwarded-For of loopback unless told otherwise."""
    with running(create_app(Stand(echo), per_minute=1)) as url:
        for status, name in ((200, "1.1.1.1"), (429, "2.2.2.2")):
            answer = httpx2.post(f"{url}/rank", json={"context": "a"}, headers={"X-Forwarded-For": name}, timeout=60)
            assert answer.status_code == status


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"context": "a" * 20_001}, "at most 20,000 characters together; given: a text of 20,001 characters"),
        ({"context": ["a"] * 201}, "a list of 1 to 200 turns"),
        ({"context": "a", "candidates": ["b"] * 1001}, "a list of 1 to 1,000 texts"),
        ({"context": "a", "candidates": ["b" * 2001]}, "at most 2,000 characters each"),
        ({"context": "a", "top_k": 101}, "a whole number from 1 to 100: how many to return; given: 101"),
        ({"context": "a", "top_k": 0}, "given: 0"),
    ],
)
def test_what_is_too_much_is_said(client, body, said):
    answer = client.post("/rank", json=body)
    assert answer.status_code == 422 and said in answer.json()["error"]


def test_a_large_body_is_refused_before_it_is_sent():
    with running(create_app(Stand(echo))) as url:
        head = f"POST /rank HTTP/1.1\r\nHost: {url[7:]}\r\nContent-Type: application/json\r\n"
        status, answer = raw(url, f"{head}Content-Length: 10000000\r\n\r\n".encode())
        assert status == 413 and "larger than 1,000,000 bytes" in answer
        status, _ = raw(
            url, f"{head}Transfer-Encoding: chunked\r\n\r\n".encode() + (b"ffff\r\n" + b" " * 65535 + b"\r\n") * 16
        )
        assert status == 413
        sent = httpx2.post(
            f"{url}/rank", content=b" " * 10_000_000, headers={"Content-Type": "application/json"}, timeout=60
        )
        assert sent.status_code == 413
        assert httpx2.post(f"{url}/rank", json={"context": "a"}, timeout=60).status_code == 200


def test_a_body_that_never_comes_is_given_up(monkeypatch):
    monkeypatch.setattr("polyagents.serving.guard.BODY_SECONDS", 0.01)
    with running(create_app(Stand(echo))) as url:
        head = f"POST /rank HTTP/1.1\r\nHost: {url[7:]}\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n"
        assert raw(url, head.encode())[0] == 408


# ---- hostile input ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'"hi"',
        b"null",
        b"NaN",
        b"\xff\xfe",
        b"[" * 200_000,
        b"9" * 10_000,
        b'{"context": 5}',
        b'{"context": null}',
        b'{"context": {}}',
        b'{"context": []}',
        b'{"context": " "}',
        b'{"context": ["a", 3]}',
        b'{"context": "a", "top_k": "3"}',
        b'{"context": "a", "top_k": true}',
        b'{"context": "a", "top_k": 1.5}',
        b'{"context": "a", "top_k": 1' + b"0" * 30 + b"}",
        b'{"context": "a", "candidates": "b"}',
        b'{"context": "a", "candidates": []}',
        b'{"context": "a", "candidates": [["b"]]}',
        b'{"context": "a", "more": 1}',
        b'{"context": "a", "\\ud800<b>": 1}',
        b'{"context": "\\ud800"}',
        b'{"context": ["a", "\\udfff"]}',
        b'{"context": "a", "candidates": ["b", "\\ud800"]}',
    ],
)
def test_a_wrong_body_gets_one_sentence(client, body):
    answer = client.post("/rank", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 422)
    (name, sentence), *more = answer.json().items()
    assert name == "error" and not more and sentence.endswith(".") and len(sentence) < 300 and "\n" not in sentence


@pytest.mark.parametrize(
    ("path", "body", "twice"),
    [
        ("/rank", '{"context": "hi", "context": "bye"}', "context"),
        ("/rank", '{"context": "hi", "filter": {"last": "e", "last": "d"}}', "last"),
        ("/v2/rerank", '{"query": "hi", "documents": [{"text": "a", "text": "b"}]}', "text"),
        ("/v1/systemone", '{"state": "a", "questions": {"b": {"criteria": {"c": "d", "c": "e"}}}}', "c"),
    ],
)
def test_a_key_twice_is_refused(client, path, body, twice):
    answer = client.post(path, content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400
    assert f"The body cannot be read as JSON (it has '{twice}' twice)." in answer.json().values()


@pytest.mark.parametrize("text", [SCRIPT, "a\0b", "\u202e\u2028", "𝕊 🎿", "\r\n\r\n", "data: x\n\nevent: reply"])
def test_strange_texts_are_texts(client, served, text):
    answer = client.post("/rank", json={"context": f"hi {text}", "candidates": [text, "b"]})
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert {match["text"] for match in answer.json()["matches"]} == {text, "b"}


def test_a_text_is_no_event_of_its_own():
    text = "a\n\nevent: error\ndata: {}\n\n"
    with TestClient(create_app(Stand(echo)), HERE) as client:
        streamed = client.post("/chat", json={"history": [text]}, headers={"Accept": "text/event-stream"}).text
    assert [name for name, _ in events(streamed)] == ["queued", "ranking", "reply"]
    assert events(streamed)[-1][1]["text"] == text


def test_html_in_names_is_shown_as_text():
    with TestClient(create_app(Stand(echo, model=SCRIPT, source='"><img src=x>')), HERE) as client:
        for page in (client.get("/"), client.get("/docs")):
            assert SCRIPT not in page.text and "<img" not in page.text
            assert "script-src 'self'" in page.headers["content-security-policy"]
            assert "unsafe" not in page.headers["content-security-policy"]


OWN_SOURCE = Path(ranking_app.__file__).name  # beside the folder of static files


@pytest.mark.parametrize(
    "path",
    [
        f"/static/../{OWN_SOURCE}",
        f"/static/%2e%2e/{OWN_SOURCE}",
        f"/static/..%2f{OWN_SOURCE}",
        f"/static/..%5c{OWN_SOURCE}",
        "/static//etc/passwd",
        "/static/%2fetc/passwd",
        "/static/%00",
        "/static/",
        "/static/" + "a" * 5000,
        "//etc/passwd",
        "/../../../../etc/passwd",
        "/templates/chat.html",
    ],
)
def test_nothing_but_the_static_files_can_be_fetched(path):
    with running(create_app(Stand(echo))) as url:
        status, answer = raw(url, f"GET {path} HTTP/1.1\r\nHost: {url[7:]}\r\n\r\n".encode())
    assert status == 404 and '{"error":"There is no such page' in answer


def test_a_page_of_another_site_cannot_ask(client):
    json_body = {"Content-Type": "application/json"}
    for origin in ("http://evil.example", "null", "http://127.0.0.1:9999", f"{HERE}.evil.example"):
        answer = client.post("/chat", content=b'{"history": ["a"]}', headers=json_body | {"Origin": origin})
        assert answer.status_code == 403 and "another site" in answer.json()["error"]
    assert client.post("/chat", content=b'{"history": ["a"]}', headers=json_body | {"Origin": HERE}).status_code == 200
    preflight = client.options("/chat", headers={"Origin": "http://evil.example"} | json_body)
    assert "access-control-allow-origin" not in preflight.headers


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_a_form_cannot_ask(client, kind):
    answer = client.post("/chat", content=b'{"history": ["a"]}', headers={"Content-Type": kind})
    assert answer.status_code == 415 and "application/json" in answer.json()["error"]


@pytest.mark.parametrize(("coding", "status"), [("gzip", 415), ("br, gzip", 415), ("identity", 200), ("Identity", 200)])
def test_a_compressed_body_is_refused_for_that(client, coding, status):
    content = gzip.compress(b'{"history": ["a"]}') if status == 415 else b'{"history": ["a"]}'
    json_body = {"Content-Type": "application/json", "Content-Encoding": coding}
    answer = client.post("/chat", content=content, headers=json_body)
    assert answer.status_code == status and ("not compressed" in answer.text) == (status == 415)


def test_another_name_for_this_machine_is_refused(client):
    for host in ("evil.example", "evil.example:8008", "127.0.0.1.evil.example", "", "[::1", "localhost@evil.example"):
        answer = client.get("/", headers={"Host": host})
        assert answer.status_code == 403 and "localhost only" in answer.json()["error"], host
    for host in ("localhost:8008", "127.0.0.1", "[::1]:8008"):
        assert client.get("/", headers={"Host": host}).status_code == 200, host


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing", 404),
        ("POST", "/rank/", 404),
        ("GET", "/static", 404),
        ("GET", "/rank", 405),
        ("PUT", "/", 405),
    ],
)
def test_what_there_is_not_is_said(client, method, path, status):
    answer = client.request(method, path, headers={"Content-Type": "application/json"}, follow_redirects=False)
    assert answer.status_code == status and set(answer.json()) == {"error"}


@pytest.mark.parametrize("path", ["/", "/healthz", "/readyz", "/metrics", "/nothing", "/rank"])
def test_head_is_answered_as_get_is(client, path):
    head, get = client.head(path), client.get(path)
    assert (head.status_code, head.headers["content-type"]) == (get.status_code, get.headers["content-type"])


# ---- the token -------------------------------------------------------------------------------------------------------

TOKEN = "a secret; with, ümlaut=%20&"


@pytest.fixture
def guarded():
    """A client of a server with a token, by a name of its own."""
    with TestClient(create_app(Stand(echo), TOKEN), "http://lab.example") as client:
        yield client


def test_nothing_is_had_without_the_token(guarded):
    for path in ("/", "/docs", "/openapi.json", "/static/chat.js", "/nothing"):
        answer = guarded.get(path)
        assert answer.status_code == 401 and "Authorization: Bearer" in answer.json()["error"]
    assert guarded.post("/rank", json={"context": "a"}).status_code == 401


@pytest.mark.parametrize(
    "given", ["Bearer", "Bearer ", "Bearer wrong", "Bearer \xff", "Basic YTpi", f"Bearer {TOKEN[:-1]}", TOKEN]
)
def test_a_wrong_token_is_refused(guarded, given):
    headers = {"Authorization": given.encode("utf-8")}
    assert guarded.post("/rank", json={"context": "a"}, headers=headers).status_code == 401


def test_the_token_in_the_header(guarded):
    headers = {"Authorization": f"Bearer {TOKEN}".encode()}
    assert guarded.post("/rank", json={"context": "a"}, headers=headers).status_code == 200


def test_a_link_with_the_token_sets_a_cookie_that_scripts_do_not_see(guarded):
    assert guarded.get("/", params={"token": "wrong"}).status_code == 401
    assert guarded.get("/docs", params={"token": TOKEN}).status_code == 401  # only the page's link logs in
    page = guarded.get("/", params={"token": TOKEN})
    assert page.status_code == 200 and page.headers["referrer-policy"] == "no-referrer"
    cookie = page.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie and "secret" not in cookie
    assert guarded.get("/static/chat.js").status_code == 200
    assert guarded.post("/chat", json={"history": ["a"]}).json()["text"] == "a"
    evil = guarded.post("/chat", json={"history": ["a"]}, headers={"Origin": "http://evil.example"})
    assert evil.status_code == 403


@pytest.mark.parametrize("cookie", ["", "wrong", TOKEN.encode().hex(), "\xff"])
def test_a_wrong_cookie_is_refused(guarded, cookie):
    headers = {"Cookie": f"polyagents_serve={cookie}".encode("latin-1")}
    assert guarded.get("/", headers=headers).status_code == 401


def test_wrong_tokens_use_up_the_tries_of_an_address_and_not_the_requests_of_those_with_the_token():
    with TestClient(create_app(Stand(echo), TOKEN, per_minute=2), HERE) as client:
        assert [client.get("/").status_code for _ in range(3)] == [401, 401, 429]
        headers = {"Authorization": f"Bearer {TOKEN}".encode()}
        assert [client.get("/", headers=headers).status_code for _ in range(3)] == [200, 200, 429]


def test_a_cookie_is_valid_on_every_server_with_its_token_and_on_no_other():
    with TestClient(create_app(Stand(echo), TOKEN), HERE) as client:
        cookie = client.get("/", params={"token": TOKEN}).cookies["polyagents_serve"]
    for tokens, status in (
        (TOKEN, 200),
        (f"operator\nchat ask {'x' * 9}\n{TOKEN}", 200),
        (TOKEN[:-1], 401),
        ("x", 401),
    ):
        with TestClient(create_app(Stand(echo), tokens), HERE) as other:
            assert other.get("/", cookies={"polyagents_serve": cookie}).status_code == status
            assert other.get("/", headers={"Authorization": f"Bearer {cookie}"}).status_code == 401  # nor a token


# ---- who keeps others waiting ----------------------------------------------------------------------------------------


def test_what_a_client_has_given_up_is_not_waited_for():
    """And what nobody waits for is not ranked (above)."""

    class Gone:
        async def receive(self):
            return {"type": "http.disconnect"}

    async def ask():
        result = asyncio.get_running_loop().create_future()
        with pytest.raises(HTTPException) as refused:
            await answering.wanted_still(result, Gone())
        return refused.value.status_code, result.cancelled()

    assert asyncio.run(ask()) == (499, True)


AROUND = {"serve": lambda app: Guard(app, None, 60), "human_eval": lambda app: with_headers(app, read_wording(), {})}


@pytest.mark.parametrize("around", AROUND.values(), ids=AROUND)
def test_a_server_that_ends_says_so(around):
    never = asyncio.Event()

    async def app(scope, receive, send):
        await never.wait()

    async def ask():
        sent = []

        async def send(message):
            sent.append(message)

        scope = {
            "type": "http",
            "method": "GET",
            "path": "/",
            "headers": [(b"host", b"localhost")],
            "query_string": b"",
        }
        task = asyncio.create_task(around(app)(scope, None, send))
        await asyncio.sleep(0)
        task.cancel()
        await task
        return sent

    start, body = asyncio.run(ask())
    assert start["status"] == 503 and b"The server is ending" in body["body"]


@pytest.mark.parametrize(
    ("arguments", "environment", "expected"),
    [
        ([], None, []),
        (["--token", "a"], "b", ["a"]),
        ([], "b", ["b"]),
        (["--token-file", "given"], "b", ["from the file", "for two"]),
    ],
)
def test_where_the_token_comes_from(arguments, environment, expected, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("POLYAGENTS_TOKEN", raising=False)
    if environment:
        monkeypatch.setenv("POLYAGENTS_TOKEN", environment)
    (tmp_path / "given").write_text("from the file\nfor two\n")
    assert [token.secret for token in tokens_of(vars(parser().parse_args(arguments))).current] == expected


def test_a_file_of_tokens_that_cannot_be_read_is_refused(tmp_path):
    (tmp_path / "long").write_text("a" * 100_001)
    for wrong, said in ((tmp_path / "none", "No such"), (tmp_path / "long", "over 100,000"), ("/dev/zero", "a device")):
        with pytest.raises(InputError, match=f"cannot be read .*{said}"):
            tokens_of({"token": None, "token_file": str(wrong)})


# ---- the command -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "serve needs --model-file"),
        (
            ("--candidates-file", "F", "--index-dir", "I"),
            "--index-dir: not allowed with argument --candidates-file",
        ),
        (("--host", "0.0.0.0"), "--host 0.0.0.0 lets other machines in, which needs --token"),
        (("--token", ""), "--token: its value is empty"),
        (("--port", "99999"), "--port: 99999 is too large: at most 65535"),
        (("--host", "192.0.2.1", "--token", "secret"), "192.0.2.1, port 8008 cannot be served"),
        (("--candidates-file", "nothing.txt", "--port", "0"), "nothing.txt cannot be read"),
    ],
)
def test_bad_flags_get_one_sentence(trained, ends_with_2, arguments, said):
    model_file = ("-mf", trained("bi")) if arguments else ()
    (sentence,) = ends_with_2("serve", *model_file, *arguments)
    assert said in sentence


def test_a_port_that_is_taken_is_said_before_the_model_is_loaded(trained, ends_with_2):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        (sentence,) = ends_with_2("serve", "-mf", trained("bi"), "--port", taken.getsockname()[1])
    assert "Address already in use" in sentence and "--port" in sentence


def test_a_port_that_another_process_takes_meanwhile_is_said():
    with listening("127.0.0.1", 0) as first, listening(*first.getsockname()) as second:
        listen(first)
        with pytest.raises(InputError, match=r"cannot be served \(Address already in use\); give another --port"):
            listen(second)


@pytest.mark.slow
def test_the_command_serves_until_ctrl_c(trained, replies):
    """A start from the shell is in test_reload.py."""
    command = ["serve", "-mf", trained("bi"), "--candidates-file", replies, "--port", "0", "--token", "s"]
    with (
        open(os.devnull, "r+") as null,
        forks.Child(forks.COMMAND, *command, stdin=null, stdout=null, stderr=subprocess.PIPE) as process,
    ):
        line = next(line for line in process.stderr if "http://" in line)
        url, _, _ = line.partition("http://")[2].partition("/?token=TOKEN ")  # a pipe is no terminal
        try:
            token = {"Authorization": "Bearer s"}
            answer = httpx2.post(f"http://{url}/rank", json={"context": "hi"}, headers=token, timeout=60)
        finally:
            process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
    assert answer.json()["candidates"]["size"] == 6
    (request, ended) = rest.splitlines()
    assert " info request method=POST path=/rank status=200 ms=" in request and "=hi" not in request
    assert f"request_id={answer.headers['x-request-id']}" in request
    assert process.returncode == 0 and ended == "Ended."
