"""One ranker and several threads, or an event loop: everybody gets what one thread gets."""

import asyncio
import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import engines
import numpy as np
import pytest
import torch

from polyagents import InputError, Ranker
from polyagents.properties import cached_property
from polyagents.ranking import ranking_model
from polyagents.text import tokenizer

THREADS = 6
REPLIES = [f"i have {n} {what}" for n in ("two", "ten", "no") for what in ("dogs", "cats", "jobs", "cars")]
CONTEXTS = [f"do you have {what} ?" for what in ("a dog", "a cat", "a job", "a car", "two dogs", "ten cats")]


@pytest.fixture(scope="module", params=["bi", "poly", "uni", "cross"])
def ranker(request, trained):
    return Ranker.load(trained(request.param))


@pytest.fixture
def restless(monkeypatch):
    """Threads take turns all the time, and what is remembered is forgotten with every call."""
    monkeypatch.setattr(ranking_model, "CACHED_BYTES", 0)
    monkeypatch.setattr(tokenizer, "REMEMBERED_BYTES", 0)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def at_once(work, times):
    """Results of `work(n)` for n below `times`, from threads that begin at the same moment."""
    start = threading.Barrier(THREADS)

    def of_thread(thread):
        start.wait()
        return {n: work(n) for n in range(thread, times, THREADS)}

    with ThreadPoolExecutor(THREADS) as threads:
        parts = list(threads.map(of_thread, range(THREADS)))
    return [next(part[n] for part in parts if n in part) for n in range(times)]


@pytest.mark.slow
def test_threads_score_as_one(ranker, restless):
    def scores(n):
        shift = n % len(REPLIES)  # other candidates, in another order, for everybody
        return ranker.score(CONTEXTS[n % len(CONTEXTS)], [*REPLIES[shift:], *REPLIES[:shift], f"the {n}th"])

    alone = [scores(n) for n in range(36)]
    np.testing.assert_allclose(at_once(scores, 36), alone, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("index_type", ["exact", "hnsw", "ivfpq"])
def test_threads_search_as_one(trained, tmp_path, restless, index_type):
    ranker, file = Ranker.load(trained("poly")), tmp_path / "replies.txt"
    file.write_text("\n".join(f"{reply} and {n}" for n in range(40) for reply in REPLIES))
    index = ranker.index(file, tmp_path / "replies.index", stored_as="fp32")
    if index_type != "exact":
        ranker.approximate(index, index_type, CONTEXTS)

    def best(n):  # lists of several lengths, which must not become each other's
        return ranker.search([CONTEXTS[n % len(CONTEXTS)]], index, top_k=(1, 5, 60)[n % 3])

    alone = [best(n) for n in range(36)]
    for (matches, complete), (expected, expected_complete) in zip(at_once(best, 36), alone, strict=True):
        assert complete == expected_complete
        assert [match.score for match in matches[0]] == pytest.approx([m.score for m in expected[0]], abs=1e-4)
        assert [match.index for match in matches[0]][:1] == [match.index for match in expected[0]][:1]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["milvus-lite", "pgvector"])
def test_threads_search_an_engine_as_one(trained, tmp_path, kind, request):
    socket = request.getfixturevalue("postgres_socket") if kind == "pgvector" else None
    ranker = Ranker.load(trained("poly"))
    with engines.running(kind, tmp_path, socket) as address:
        index = ranker.index_in_engine([*REPLIES, "hello"], address.format(name="replies"), "exact")

        def best(n):
            return ranker.rank(CONTEXTS[n % len(CONTEXTS)], index, top_k=(1, 5)[n % 2])

        alone = [best(n) for n in range(24)]
        for matches, expected in zip(at_once(best, 24), alone, strict=True):
            assert [match.score for match in matches] == pytest.approx([m.score for m in expected], abs=1e-4)
            assert {match.text for match in matches} <= {*REPLIES, "hello"}
        index.engine.close()


def test_cached_properties_of_other_objects_do_not_wait_for_each_other():
    class Slow:
        def __init__(self, wait):
            self.wait = wait

        @cached_property
        def value(self):
            self.wait()
            return object()

    other_is_done, same = threading.Event(), threading.Barrier(2)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(lambda: Slow(lambda: other_is_done.wait(20) or pytest.fail("it waited")).value)
        Slow(lambda: None).value, other_is_done.set()
        first.result()
        one = Slow(lambda: same.wait(20))  # two threads that ask at once compute both, and get the same
        assert len({*threads.map(lambda _: one.value, range(2)), one.value}) == 1


def test_an_event_loop_ranks_in_threads(ranker):
    async def ranked():
        return await asyncio.gather(*(asyncio.to_thread(ranker.rank, context, REPLIES, 3) for context in CONTEXTS))

    for ours, alone in zip(asyncio.run(ranked()), ranker.rank(CONTEXTS, REPLIES, 3), strict=True):
        assert [match.score for match in ours] == pytest.approx([match.score for match in alone], abs=1e-4)


@pytest.mark.skipif(not hasattr(os, "register_at_fork"), reason="no fork on this system")
@pytest.mark.parametrize(
    ("loads", "begin", "ends_with"),
    [
        (True, lambda: None, 2),  # it would wait for ever
        (True, lambda: torch.set_num_threads(1), 0),
        (False, lambda: None, 0),  # it loads a model of its own
    ],
)
def test_a_forked_process_ranks_or_says_why_not(loads, begin, ends_with, trained):
    texts, file, ends = [f"{reply} {n}" for n in range(20) for reply in REPLIES], trained("bi"), []

    def work():
        ranker = Ranker.load(file) if loads else None
        if (child := os.fork()) == 0:
            try:
                begin()
                (ranker or Ranker.load(file)).rank("hi", texts)
                os._exit(0)
            except InputError:
                os._exit(2)
            finally:
                os._exit(3)
        ends.append(child)

    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        thread = threading.Thread(target=work)  # whose threads nobody else computes with
        thread.start()
        thread.join()
    finally:
        torch.set_num_threads(threads)
    until = time.monotonic() + 20
    while (found := os.waitpid(ends[0], os.WNOHANG))[0] == 0 and time.monotonic() < until:
        time.sleep(0.01)
    if found[0] == 0:
        os.kill(ends[0], signal.SIGKILL)
        os.waitpid(ends[0], 0)
    assert found[0] and os.waitstatus_to_exitcode(found[1]) == ends_with
