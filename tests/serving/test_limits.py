"""Every limit of `serve` is where it is said to be: what reaches it is accepted, and one more is not."""

import asyncio
import contextlib
import fractions
import itertools
import random

import pytest
from stand import HERE, Queue, Stand, echo
from starlette.testclient import TestClient

from polyagents.errors import InputError
from polyagents.ranking.pieces import finished, pieces
from polyagents.serving import guard, observing
from polyagents.serving.access_tokens import MOST, AccessTokens
from polyagents.serving.batching import QueueFull, RankingJob
from polyagents.serving.http_server import server_of
from polyagents.serving.limits import Rate
from polyagents.serving.observing import Readiness
from polyagents.serving.ranking_app import create_app
from polyagents.serving.sources import Sources


@pytest.fixture(scope="module")
def client():
    with TestClient(create_app(Stand(echo), per_minute=10**6, texts_per_minute=10**9), HERE) as client:
        yield client


# ---- what a request may contain --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "body", "most"),
    [
        ("/rank", lambda n: {"context": "a" * n}, 20_000),
        ("/rank", lambda n: {"context": ["a"] * n}, 200),
        ("/rank", lambda n: {"context": ["a" * (n - 1), "b"]}, 20_000),
        ("/rank", lambda n: {"context": "a", "candidates": ["b"] * n}, 1_000),
        ("/rank", lambda n: {"context": "a", "candidates": ["b" * n]}, 2_000),
        ("/rank", lambda n: {"context": "a", "top_k": n}, 100),
        ("/chat", lambda n: {"history": ["a"] * n}, 200),
        ("/chat", lambda n: {"history": ["a" * (n - 1), "b"]}, 20_000),
        ("/chat", lambda n: {"history": ["a"], "persona": ["b"] * n}, 200),
        ("/chat", lambda n: {"history": ["a"], "persona": ["b" * (n - 1), "c"]}, 20_000),
        ("/chat", lambda n: {"history": ["a"], "top_k": n}, 100),
        ("/v1/rerank", lambda n: {"query": "a" * n, "documents": ["b"]}, 20_000),
        ("/v2/rerank", lambda n: {"query": "a", "documents": ["b"] * n}, 1_000),
        ("/v2/rerank", lambda n: {"query": "a", "documents": ["b" * n]}, 20_000),
        ("/v1/rerank", lambda n: {"query": "a", "documents": [{"text": "b" * n}]}, 20_000),
        ("/v1/embeddings", lambda n: {"input": ["a"] * n, "input_type": "query"}, 1_000),
        ("/v1/embeddings", lambda n: {"input": "a" * n, "input_type": "query"}, 20_000),
        ("/v1/embeddings", lambda n: {"input": ["a" * n], "input_type": "document"}, 20_000),
    ],
)
def test_as_much_as_is_said_and_no_more(client, path, body, most):
    assert client.post(path, json=body(most)).status_code == 200
    assert client.post(path, json=body(most + 1)).status_code == 422


@pytest.mark.parametrize("announced", [True, False])
def test_a_body_has_a_million_bytes(client, announced):
    def sent(size):
        content = b'{"context": "a"' + b" " * (size - 16) + b"}"
        given = content if announced else iter([content[:999_000], content[999_000:]])
        return client.post("/rank", content=given, headers={"Content-Type": "application/json"}).status_code

    assert (sent(1_000_000), sent(1_000_001)) == (200, 413)


def test_a_body_has_ten_seconds(client, monkeypatch):
    seconds = []
    monkeypatch.setattr(guard.asyncio, "wait_for", lambda given, limit: seconds.append(limit) or given)
    assert client.post("/rank", json={"context": "a"}).status_code == 200
    assert seconds == [10.0]


# ---- how often -------------------------------------------------------------------------------------------------------


def test_a_client_that_was_idle_may_not_use_more_than_a_minutes_worth():
    now = [0.0]
    rate = Rate(3, clock=lambda: now[0])
    for idle in (0.0, 1_000.0, 1e6, 59.0, 61.0):
        now[0] += idle
        at_once = [rate.wait("a") for _ in range(4)]
        spare = 3 if idle != 59.0 else 2  # a third of a minute was not long enough ago
        assert at_once[:spare] == [0] * spare and at_once[spare] > 0


@pytest.mark.parametrize("per_minute", [1, 7, 600])
@pytest.mark.parametrize("most", [1, 20])
def test_what_a_client_uses_comes_back_evenly(per_minute, most):
    """Compared with a bucket of exact fractions, which is full at first and may be overdrawn by a full one only."""
    draw, now, level = random.Random(per_minute), fractions.Fraction(0), fractions.Fraction(per_minute)
    rate = Rate(per_minute, clock=lambda: float(now))
    for _ in range(2_000):
        amount, passed = draw.randint(1, most), fractions.Fraction(draw.choice([0, 0, 1, 7, 1_000]), per_minute)
        now, level = now + passed, min(level + passed * per_minute / 60, fractions.Fraction(per_minute))
        lacks = min(amount, per_minute) - level
        wait = rate.wait("a", amount)
        assert wait == pytest.approx(float(max(lacks, 0) * 60 / per_minute), abs=1e-6)
        level -= amount if not wait else 0


def test_default_rates():
    app = create_app(Stand(echo))
    texts = app.app.app.app.state.answering.rate
    for rate, amounts in ((app.app.rate, [1] * 600), (app.app.refusals, [1] * 600), (texts, [1_000] * 60)):
        rate.clock = lambda: 0.0
        assert not any(rate.wait("a", amount) for amount in amounts)
        assert rate.wait("a") > 0 and not rate.wait("b")


@pytest.mark.parametrize(("clients", "kept"), [(9_999, 10_000), (10_000, 2)])
def test_ten_thousand_clients_are_kept_in_mind_and_of_those_only_idle_ones_forgotten(clients, kept):
    now = [0.0]
    rate = Rate(60, clock=lambda: now[0])
    for client in range(clients):
        assert not rate.wait(str(client), 60 if client == 7 else 1)
    now[0] = 59.0
    assert not rate.wait("new") and len(rate.used_until) == kept
    assert rate.wait("7", 60) > 0


def test_a_file_of_tokens_has_so_many_characters(tmp_path):
    for more in (0, 1):
        (tmp_path / "tokens").write_text("a" * (100_000 + more))
        with pytest.raises(InputError) if more else contextlib.nullcontext():
            (token,) = AccessTokens(path=str(tmp_path / "tokens")).current
            assert len(token.secret) == MOST


# ---- the queue -------------------------------------------------------------------------------------------------------


def test_256_requests_wait_and_32_are_ranked_together():
    async def ask():
        batcher = Queue(Stand(echo))
        tickets = [batcher.ask(RankingJob("a", None, 1)) for _ in range(256)]
        with pytest.raises(QueueFull):
            batcher.ask(RankingJob("a", None, 1))
        batcher.start()
        results = await asyncio.gather(*(ticket.result for ticket in tickets))
        batcher.stop()
        return [len(list(same)) for _, same in itertools.groupby(result.together for result in results)], results

    _, results = asyncio.run(ask())
    assert {result.together for result in results} == {32}


@pytest.mark.parametrize(("seconds", "answers"), [(0, True), (299, True), (301, False)])
def test_a_call_is_stuck_after_five_minutes(seconds, answers, monkeypatch):
    async def ask():
        batcher = Queue(Stand(echo))
        batcher.start()
        monkeypatch.setattr("polyagents.serving.batching.time.monotonic", lambda: 1_000.0 + seconds)
        batcher.busy_since = 1_000.0
        answered = batcher.answers
        batcher.stop()
        return answered

    assert asyncio.run(ask()) is answers


@pytest.mark.parametrize(
    ("lengths", "tokens", "sizes"),
    [
        ([50, 50], 100, [2]),
        ([50, 51], 100, [1, 1]),
        ([500, 3, 500], 100, [1, 1, 1]),
        ([30, 90, 30, 40, 10], 100, [3, 1, 1]),
        ([10] * 10 + [1], 100, [10, 1]),
        ([], 100, []),
    ],
)
def test_a_piece_has_as_many_tokens_as_fit(lengths, tokens, sizes):
    found = pieces(lengths, tokens)
    assert sorted(place for piece in found for place in piece) == list(range(len(lengths)))
    assert [len(piece) for piece in found] == sizes
    assert all(len(piece) == 1 or sum(lengths[place] for place in piece) <= tokens for piece in found)


def test_a_turn_is_two_chunks_of_the_encoder(trained, replies):
    served = Sources(trained("bi"), str(replies)).read()
    assert served.piece_tokens == 2 * 2_048 and served.reads == 1
    assert served.document_tokens == served.ranker.model.settings.label_truncate
    lengths = {1: 0, 304: 0, 305: 1, 430: 1, 431: 2}  # characters -> class: half an octave each, from 256 on
    assert {size: served.length_class("a" * size) for size in lengths} == lengths


def test_a_joint_model_reads_every_candidate_each_time(trained, replies):
    assert Sources(trained("cross"), str(replies)).read().reads == 6


@pytest.mark.parametrize(("said", "wanted"), [(6, 16), (7, 32), (22, 32), (200, 224)])
def test_what_a_chat_asks_for_is_a_multiple_of_16(said, wanted):
    asked = []

    def rank(contexts, candidates, top_k):
        asked.append(top_k)
        return echo(contexts, candidates, top_k)

    with TestClient(create_app(Stand(rank)), HERE) as client:
        history = [str(number) for number in range(said)]
        assert client.post("/chat", json={"history": history, "top_k": 10}).status_code == 200
    assert asked == [wanted]


def test_a_check_is_for_a_second(monkeypatch):
    now, checked = [1_000.0], []
    monkeypatch.setattr(observing.time, "monotonic", lambda: now[0])

    async def ask():
        readiness = Readiness()
        for moment in (1_000.0, 1_000.95, 1_001.0, 1_001.95, 1_002.05):
            now[0] = moment
            assert await readiness.asked(lambda: checked.append(now[0]))

    asyncio.run(ask())
    assert checked == [1_000.0, 1_001.0, 1_002.05]


def test_a_server_takes_1000_connections_and_ends_within_5_seconds():
    config = server_of(None).config
    assert (config.limit_concurrency, config.timeout_graceful_shutdown) == (1_000, 5)
    assert not config.proxy_headers and not config.server_header and not config.access_log


def test_all_pieces_are_finished():
    def steps():
        yield
        yield
        return 3

    assert finished(steps()) == 3
