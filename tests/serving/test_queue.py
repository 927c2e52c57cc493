"""The queue in front of the model: clients take turns, and whatever a request does, the others are answered."""

import asyncio
import itertools
import threading
import time

import pytest
from stand import HERE, Queue, Stand, echo
from starlette.testclient import TestClient
from tokenizers import Regex
from tokenizers.normalizers import Replace, Sequence

from polyagents import Match
from polyagents.serving.batching import QueueFull, RankingJob
from polyagents.serving.guard import Guard
from polyagents.serving.ranking_app import create_app
from polyagents.serving.served import Served
from polyagents.serving.sources import Sources


class Panic(BaseException):
    """As the tokenizers' Rust raises."""


ERRORS = [
    Panic("unwrap on None"),
    SystemExit(1),
    KeyboardInterrupt(),
    GeneratorExit(),
    asyncio.CancelledError(),
    StopIteration(),
    StopAsyncIteration(),
    MemoryError(),
    RecursionError("maximum recursion depth exceeded"),
    asyncio.TimeoutError(),
    Exception(),
]
ERROR_NAMES = [type(error).__name__ for error in ERRORS]


def failing(error):
    """A model that raises an error for what is ranked with the context `bad`."""

    def rank(contexts, candidates, top_k):
        if "bad" in contexts:
            raise error
        return echo(contexts, candidates, top_k)

    return rank


def job(context, candidates=None):
    return RankingJob(context, candidates, 1)


def queued(model, ask, **limits):
    """What a coroutine returns that asks a queue which has begun."""

    async def run():
        batcher = Queue(model, **limits)
        batcher.start()
        try:
            return await asyncio.wait_for(ask(batcher), 30)
        finally:
            batcher.stop()

    return asyncio.run(run())


async def every(tickets):
    """The results or errors of tickets."""
    return await asyncio.gather(*(ticket.result for ticket in tickets), return_exceptions=True)


# ---- whatever happens ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", ERRORS, ids=ERROR_NAMES)
def test_any_error_is_only_for_the_request_that_caused_it(error):
    async def ask(batcher):
        first, bad, third = await every([batcher.ask(job(context)) for context in ("a", "bad", "c")])
        (later,) = await every([batcher.ask(job("d"))])
        assert batcher.answers
        return [answer.matches[0].text for answer in (first, third, later)], bad

    answered, bad = queued(Stand(failing(error)), ask)
    assert answered == ["a", "c", "d"]
    assert isinstance(bad, Exception) and (isinstance(error, Exception) or type(error).__name__ in str(bad))


@pytest.mark.parametrize("error", ERRORS, ids=ERROR_NAMES)
def test_a_server_answers_after_any_error(error):
    stand = Stand(failing(error))
    encode = stand.encode
    stand.encode = lambda texts, are_contexts: failing(error)(texts, None, 1) and encode(texts, are_contexts)
    asked = [
        ("/rank", {"context": "bad"}),
        ("/chat", {"history": ["bad"]}),
        ("/v2/rerank", {"query": "bad", "documents": ["b"]}),
        ("/v1/embeddings", {"input": "bad", "input_type": "document"}),
    ]
    with TestClient(create_app(stand), HERE, raise_server_exceptions=False) as client:
        for path, body in asked:
            answer = client.post(path, json=body)
            assert answer.status_code == 500 and "The model failed with " in answer.text
            assert client.post("/rank", json={"context": "good"}).json()["matches"][0]["text"] == "good"
            assert client.get("/healthz").status_code == client.get("/readyz").status_code == 200


@pytest.mark.parametrize("error", ERRORS, ids=ERROR_NAMES)
def test_any_error_of_a_check_makes_a_server_unready(error):
    stand = Stand(echo)
    stand.check = lambda: failing(error)(["bad"], None, 1)
    with TestClient(create_app(stand), HERE) as client:
        assert [client.get(path).status_code for path in ("/readyz", "/healthz", "/readyz")] == [503, 200, 503]


@pytest.mark.parametrize("many", [0, 1, 3])
def test_a_wrong_number_of_results_is_an_error(many):
    stand = Stand(lambda contexts, candidates, top_k: [([Match(0, "x", 1.0)], True)] * many)
    answers = queued(stand, lambda batcher: every([batcher.ask(job("a")), batcher.ask(job("b"))]))
    right = many == 1  # each by itself
    assert [isinstance(answer, RuntimeError) for answer in answers] == [not right, not right]


@pytest.mark.parametrize("how", ["cancelled", "an error of what counts"])
def test_a_worker_that_ends_is_started_again(how):
    def counts(stage, jobs, seconds):
        if how != "cancelled":
            raise Panic

    async def ask(batcher):
        first = batcher.ask(job("a"))
        if how == "cancelled":
            await asyncio.sleep(0)
            batcher.worker.cancel()
        (answer,) = await every([first])
        (second,) = await every([batcher.ask(job("b"))])
        return answer, second.matches[0].text, batcher.answers

    answer, second, answers = queued(Stand(echo), ask, answered=counts)
    assert second == "b" and answers
    assert isinstance(answer, RuntimeError) if how == "cancelled" else answer.matches[0].text == "a"


def test_probes_say_that_nobody_is_answered(monkeypatch):
    monkeypatch.setattr("polyagents.serving.batching.STUCK_SECONDS", 0.01)

    def slow(contexts, candidates, top_k):
        began.set()
        assert go_on.wait(30)
        return echo(contexts, candidates, top_k)

    began, go_on = threading.Event(), threading.Event()
    with TestClient(create_app(Stand(slow)), HERE) as client:
        probes = ["/healthz", "/readyz"]
        assert [client.get(path).status_code for path in probes] == [200, 200]
        asking = threading.Thread(target=client.post, args=("/rank",), kwargs={"json": {"context": "a"}})
        asking.start()
        assert began.wait(30)
        time.sleep(0.02)
        stuck = [client.get(path) for path in probes]
        go_on.set()
        asking.join()
        assert [answer.status_code for answer in stuck] == [503, 503] and "does not answer" in stuck[0].text
        assert [client.get(path).status_code for path in probes] == [200, 200]
    with TestClient(create_app(Stand(echo)), HERE) as client:
        pass
    assert [client.get(path).status_code for path in probes] == [503, 503]  # its worker has been stopped


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bi", "cross"])
def test_a_panic_of_the_tokenizer_is_only_for_the_request_that_caused_it(trained, kind, replies, monkeypatch):
    monkeypatch.setenv("RUST_BACKTRACE", "0")  # printing one takes a second
    served = Sources(trained(kind), str(replies)).read()
    compiled = served.ranker.model.tokenizer.compiled
    compiled.normalizer = Sequence([Replace(Regex("(z|z)+$"), "")])
    bad = "z" * 40 + "!"
    with TestClient(create_app(served), HERE) as client:
        assert client.post("/rank", json={"context": "hello"}).status_code == 200
        for path, body in (
            ("/rank", {"context": "hi", "candidates": ["a", bad, "b"]}),
            ("/chat", {"history": ["hi", bad]}),
        ):
            answer = client.post(path, json=body)
            assert answer.status_code == 422 and "tokenizer fails on 'zzz" in answer.text, answer.text
            assert client.post("/rank", json={"context": f"hello {path}"}).status_code == 200
        assert client.get("/healthz").status_code == 200


# ---- turns -----------------------------------------------------------------------------------------------------------


def order_of(asked, **limits):
    """The first candidates of the model's pieces, in order, where all is asked for at once: (client, candidates)."""
    done = []

    def rank(contexts, candidates, top_k):
        done.append(candidates[0])
        return echo(contexts, candidates, top_k)

    async def ask(batcher):
        await every([batcher.ask(job("?", tuple(candidates)), client) for client, candidates in asked])

    queued(Stand(rank, piece=250), ask, **limits)
    return done


def texts(name, many):
    return [f"{name}{number}" for number in range(many)]


def test_others_are_answered_between_the_pieces_of_a_long_job():
    asked = [("A", texts(f"a{request}-", 1_000)) for request in range(60)] + [("B", ["b"]), ("C", ["c"])]
    order = order_of(asked)
    assert order[:4] == ["a0-0", "b", "c", "a0-0"] and len(order) == 60 * 4 + 2


def test_long_jobs_of_several_clients_take_turns_piece_by_piece():
    asked = [(client, texts(client, 500)) for client in "AAB"]
    asked[1] = ("A", texts("second", 500))
    assert order_of(asked) == ["A0", "B0", "A0", "B0", "second0", "second0"]


def test_whoever_comes_while_another_ones_piece_is_computed_is_next():
    order, later = [], []

    def rank(contexts, candidates, top_k):
        order.append(contexts[0])
        if contexts[0] == "a0":
            loop.call_soon_threadsafe(lambda: later.append(batchers[0].ask(job("b", ("y",)), "B")))
            time.sleep(0.05)
        return echo(contexts, candidates, top_k)

    batchers = []

    async def ask(batcher):
        nonlocal loop
        loop = asyncio.get_running_loop()
        batchers.append(batcher)
        await every([batcher.ask(job(f"a{number}", (str(number),)), "A") for number in range(3)])
        await every(later)

    loop = None
    queued(Stand(rank), ask)
    assert order == ["a0", "b", "a1", "a2"]


def test_a_client_that_always_asks_again_holds_up_nobody():
    """B and C have one request at a time, A has many: each has its turn."""
    order = []

    def rank(contexts, candidates, top_k):
        order.append(candidates[0][0])
        return echo(contexts, candidates, top_k)

    async def ask(batcher):
        async def again(client):
            for number in range(4):
                await batcher.ask(job("?", (f"{client}{number}",)), client).result

        many = [batcher.ask(job("?", (f"a{number}",)), "a") for number in range(4)]
        await asyncio.gather(again("b"), again("c"), every(many))

    queued(Stand(rank), ask)
    assert sorted(order[:3]) == sorted(order[3:6]) == ["a", "b", "c"]


def test_what_is_alike_is_ranked_together_whoever_asks_and_each_clients_oldest_first():
    async def ask(batcher):
        tickets = [batcher.ask(job(f"a{number}"), "A") for number in range(5)] + [batcher.ask(job("b"), "B")]
        return [answer.together for answer in await every(tickets)]

    assert queued(Stand(echo), ask, together=3) == [3, 3, 3, 3, 3, 3]
    order = []

    def rank(contexts, candidates, top_k):
        order.append(contexts)
        return echo(contexts, candidates, top_k)

    queued(Stand(rank), ask, together=3)
    assert order == [["a0", "b", "a1"], ["a2", "a3", "a4"]]


def test_a_full_queue_takes_the_newest_of_whoever_has_most():
    async def ask(batcher):
        greedy = [batcher.ask(job(f"a{number}"), "A") for number in range(4)]
        with pytest.raises(QueueFull):
            batcher.ask(job("a4"), "A")
        other = [batcher.ask(job(f"b{number}"), "B") for number in range(2)]  # now both have two
        with pytest.raises(QueueFull):
            batcher.ask(job("b2"), "B")
        return await every(greedy), await every(other)

    greedy, other = queued(Stand(echo), ask, waiting=4)
    assert [isinstance(answer, QueueFull) for answer in greedy] == [False, False, True, True]
    assert [answer.matches[0].text for answer in other] == ["b0", "b1"]


def test_a_long_job_whose_client_has_gone_is_not_gone_on_with():
    done = []

    def rank(contexts, candidates, top_k):
        done.append(candidates[0])
        if candidates[0] == "a0":
            loop.call_soon_threadsafe(tickets[0].result.cancel)
            time.sleep(0.05)
        return echo(contexts, candidates, top_k)

    tickets, loop = [], None

    async def ask(batcher):
        nonlocal loop
        loop = asyncio.get_running_loop()
        tickets.append(batcher.ask(job("?", tuple(texts("a", 1_000))), "A"))
        tickets.append(batcher.ask(job("?", ("b",)), "B"))
        await every(tickets[1:])
        await every([batcher.ask(job("?", ("c",)), "C")])

    queued(Stand(rank, piece=100), ask)
    assert done == ["a0", "b", "c"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bi", "poly", "uni", "cross"])
def test_pieces_change_no_answer(trained, kind, replies, monkeypatch):
    served = Sources(trained(kind), str(replies)).read()
    words = ["so", "you", "like", "red", "blue", "hi", "bye"]
    distinct = [" ".join(some) for length in (1, 2, 3) for some in itertools.permutations(words, length)]
    candidates = tuple(distinct[place % 90 * 2] for place in range(120))  # of 1 to 3 words, some twice
    contexts = ["hi !", "do you like red ?\nyes"]

    def pieces_and_result(steps):
        count = 0
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return count, end.value
            count += 1

    expected = served.ranker.rank(contexts, candidates, top_k=120)
    fresh = Sources(trained(kind), str(replies)).read()  # with empty caches
    monkeypatch.setattr(Served, "piece_tokens", 100)
    count, found = pieces_and_result(fresh.rank(contexts, candidates, 120))
    assert count > 1
    for (matches, complete), right in zip(found, expected, strict=True):
        assert complete and [match.index for match in matches] == [match.index for match in right]
        assert [match.score for match in matches] == pytest.approx([match.score for match in right], abs=1e-4)
    if kind == "bi":
        for are_contexts in (True, False):
            count, encoding = pieces_and_result(fresh.encode(candidates, are_contexts))
            with monkeypatch.context() as patched:
                patched.setattr(Served, "piece_tokens", 10**9)
                once, whole = pieces_and_result(served.encode(candidates, are_contexts))
            assert (count > 1, once) == (True, 1) and encoding.tokens == whole.tokens
            assert encoding.vectors == pytest.approx(whole.vectors, abs=1e-5)


# ---- shares ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "body", "texts"),
    [
        ("/v1/rerank", {"query": "a", "documents": ["b"] * 100}, 100),
        ("/v2/rerank", {"query": "a", "documents": ["b"] * 100}, 100),
        ("/v1/embeddings", {"input": ["b"] * 50, "input_type": "document"}, 50),
        ("/v1/embeddings", {"input": "b", "input_type": "query"}, 1),
        ("/rank", {"context": ["a", "b"], "candidates": ["b"] * 20}, 20),
        ("/rank", {"context": "a"}, 7),
        ("/chat", {"history": ["a"]}, 7),
    ],
)
def test_a_client_has_so_many_texts_a_minute(path, body, texts):
    stand = Stand(echo)
    stand.reads = 7  # texts for a request without candidates
    app = create_app(stand, texts_per_minute=2 * texts)
    rate = app.app.app.app.state.answering.rate
    rate.clock = lambda: 0.0
    with TestClient(app, HERE) as client:
        answers = [client.post(path, json=body) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert answers[2].headers["retry-after"] == "30"
    assert "Too many texts; ask again in 30 s, or start the server with more --texts-per-minute." in answers[2].text


def test_a_client_is_its_token_if_there_are_several_and_else_its_address():
    def client_of(token, given, address):
        guard = Guard(None, token, 60)
        scope = {"path": "/rank", "method": "POST", "query_string": b"", "client": (address, 1)}
        headers = [(b"host", b"localhost"), (b"authorization", b"Bearer " + given)]
        guard.check(scope := scope | {"headers": headers})
        return scope["state"]["client"]

    assert client_of(None, b"x", "1.1.1.1") == client_of("one", b"one", "1.1.1.1") == "1.1.1.1"
    several = "one\n\n two \n"
    proxied = [client_of(several, token, "1.1.1.1") for token in (b"one", b"two", b"one")]
    assert proxied[0] == proxied[2] != proxied[1]
    assert client_of(several, b"two", "2.2.2.2") == proxied[1]
    assert (
        client_of("one\nlab ask,admin two", b"two", "1.1.1.1") == client_of("lab ask two", b"two", "2.2.2.2") == "lab"
    )


def test_each_of_several_tokens_has_its_own_rate_and_cookie():
    with TestClient(create_app(Stand(echo), "one\ntwo", per_minute=2), HERE) as client:
        bearer = [{"Authorization": f"Bearer {token}"} for token in ("one", "two", "three", "")]
        assert [client.get("/", headers=bearer[0]).status_code for _ in range(3)] == [200, 200, 429]
        assert [client.get("/", headers=headers).status_code for headers in bearer[1:]] == [200, 401, 401]
        assert client.get("/", params={"token": "two"}).status_code == 200
        assert client.get("/").status_code == 429  # by the cookie of the second token
