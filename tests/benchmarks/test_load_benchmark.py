"""The load test of benchmarks/load.py: what it sends, and what it counts."""

import asyncio
import itertools
import time

import pytest

from polyagents.benchmarks.load import Answer, Server, arrivals, asked, figures, opened


def test_requests_arrive_at_the_rate_at_random():
    times = arrivals(50, 200, seed=1)
    assert times == sorted(times) == arrivals(50, 200, seed=1) != arrivals(50, 200, seed=2)
    assert len(times) == pytest.approx(50 * 200, rel=0.03) and times[-1] < 200
    gaps = [after - before for before, after in itertools.pairwise(times)]
    assert sum(gap > 1 / 50 for gap in gaps) / len(gaps) == pytest.approx(0.368, abs=0.02)  # exponential: 1 / e


def test_what_is_sent_is_answered_refused_or_lost():
    answers = [Answer(200, False, ms) for ms in (10.0, 20.0, 30.0)]
    answers += [Answer(503, True, 5.0), Answer(503, False, 1.0), Answer(0, False, 9.0), Answer(500, False, 2.0)]
    assert figures(answers) == {"sent": 7, "answered": 3, "refused": 1, "lost": 3,
                                "p50 ms": 20, "p99 ms": 30, "p99 ms to refuse": 5}  # fmt: skip
    assert figures([])["p50 ms"] is None


def test_no_request_waits_for_another_and_the_wait_counts():
    """A server that answers nobody before the last request is there; then it refuses every third, and drops one."""
    everybody, count = asyncio.Event(), 9

    async def answer(reader, writer):
        nonlocal count
        await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(2)
        count -= 1
        number = count
        if not count:
            everybody.set()
        await everybody.wait()
        status = b"503 Busy\r\nRetry-After: 1" if number % 3 == 0 else b"200 OK"
        if number != 4:
            writer.write(b"HTTP/1.1 " + status + b"\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    async def run():
        listener = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        server = Server("stub", (), port, {"POLYAGENTS_TOKEN": "t"}, "")
        found = await opened(server, [b"{}"], [0.01 * number for number in range(9)])
        listener.close()
        return found, await asked(server, b"{}", time.perf_counter())

    found, away = asyncio.run(run())
    assert figures(found)["sent"] == 9 and figures(found)["refused"] == 3 and figures(found)["lost"] == 1
    assert away.status == 0
    assert found[0].ms > found[-1].ms > 0  # the first one waited for the last
