r"""Requests that do not wait for each other: `polyagents serve`, and sentence-transformers behind FastAPI, in one run.

    python -m polyagents.benchmarks.load --backbone MINILM --candidates-file replies.txt --contexts-file contexts.txt \
        --work DIR

Both rank the same candidates with the same encoder, as a bi-encoder. Each server's capacity is measured with clients
that ask again as soon as they have an answer. Then requests arrive at random times (a Poisson process), at parts and
multiples of that rate, whether others are answered or not. A response time begins when the request should be sent.
"""

import argparse
import asyncio
import os
import random
import secrets
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from polyagents.arguments import CommandParser, positive_int
from polyagents.benchmarks.ports import free_port
from polyagents.benchmarks.replicas import NO_LIMITS, requests_of, started
from polyagents.benchmarks.report import publish

SHARES = (0.5, 0.8, 1.2)  # of the capacity
CLIENTS = 32  # that measure it, each with one request at a time
ANSWERING = 120.0  # seconds that a request may take before it counts as lost


def main() -> None:
    """Measure both servers, print a table, and write it to DIR/load.json."""
    parser = CommandParser("python -m polyagents.benchmarks.load", __doc__.split("\n")[0])
    parser.add_argument("--backbone", required=True, help="a sentence-transformers model: a folder")
    parser.add_argument("--candidates-file", required=True)
    parser.add_argument("--contexts-file", required=True, help="contexts, one per line")
    parser.add_argument("--work", required=True, help="folder for logs and figures")
    parser.add_argument("--seconds", type=positive_int, default=40, help="of each rate")
    opt = parser.parse_args()
    bodies = requests_of(opt.contexts_file)
    os.makedirs(opt.work, exist_ok=True)
    rows = [row for server in (ours(opt), fastapi(opt)) for row in measured(server, bodies, opt.seconds)]
    publish({"load": rows}, os.path.join(opt.work, "load.json"))


@dataclass(frozen=True)
class Server:
    """A command that serves `POST /rank` on a port of loopback."""

    name: str
    command: Sequence[str]
    port: int
    environment: dict[str, str]
    log: str

    @property
    def head(self) -> str:
        """The request's headers, up to the length."""
        token = self.environment["POLYAGENTS_TOKEN"]
        head = (
            f"POST /rank HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nConnection: close\r\nAuthorization: Bearer {token}"
        )
        return f"{head}\r\nContent-Type: application/json\r\nContent-Length: "


def ours(opt: argparse.Namespace) -> Server:
    """Return `polyagents serve` over a ranker of the encoder as it is, and an index of the candidates."""
    model, index, port = os.path.join(opt.work, "M"), os.path.join(opt.work, "M.index"), free_port()
    program = [sys.executable, "-m", "polyagents"]
    if not os.path.exists(model):  # of an earlier run
        subprocess.run([*program, "init_model", "--backbone", opt.backbone, "-mf", model], check=True)
    files = ["-mf", model, "--index-dir", index]
    subprocess.run([*program, "index", "build", *files, "--candidates-file", opt.candidates_file], check=True)
    command = [*program, "serve", *files, "--port", str(port), *NO_LIMITS, "--log-level", "warning"]
    environment = {"POLYAGENTS_TOKEN": secrets.token_hex(16)}
    return Server("polyagents serve", command, port, environment, os.path.join(opt.work, "ours.log"))


def fastapi(opt: argparse.Namespace) -> Server:
    """Return sentence-transformers behind FastAPI, as one would write it (`fastapi_peer.py`)."""
    port = free_port()
    app = ["polyagents.benchmarks.fastapi_peer:app", "--factory", "--port", str(port), "--log-level", "warning"]
    environment = {"POLYAGENTS_TOKEN": "", "ENCODER": opt.backbone, "CANDIDATES": opt.candidates_file}
    log = os.path.join(opt.work, "fastapi.log")
    return Server("sentence-transformers, FastAPI", [sys.executable, "-m", "uvicorn", *app], port, environment, log)


def measured(server: Server, bodies: Sequence[bytes], seconds: int) -> list[dict[str, Any]]:
    """Start a server, and measure its capacity and each rate; return a row for each."""
    rows: list[dict[str, Any]] = []
    with started(server.name, server.command, server.port, server.log, server.environment):
        capacity = asyncio.run(closed(server, bodies, seconds / 2))
        for share in SHARES:
            load = asyncio.run(opened(server, bodies, arrivals(share * capacity, seconds, len(rows))))
            rows.append({"server": server.name, "capacity/s": round(capacity, 1), "of it": share} | figures(load))
    return rows


@dataclass(frozen=True)
class Answer:
    """A request's fate: status (0: none), whether it says when to ask again, and milliseconds since its arrival."""

    status: int
    retry_after: bool
    ms: float


def arrivals(rate: float, seconds: float, seed: int) -> list[float]:
    """Draw the seconds at which requests arrive, at a mean rate, independently of each other."""
    draw, at, found = random.Random(seed), 0.0, []
    while (at := at + draw.expovariate(rate)) < seconds:
        found.append(at)
    return found


async def closed(server: Server, bodies: Sequence[bytes], seconds: float) -> float:
    """Return how many requests a second are answered if CLIENTS always wait for one."""
    await asked(server, bodies[0], time.perf_counter())  # the first call loads what is loaded late
    begin = time.perf_counter()

    async def client(number: int) -> int:
        answered = 0
        while time.perf_counter() < begin + seconds:
            found = await asked(server, bodies[number % len(bodies)], time.perf_counter())
            answered += found.status == 200
            number += CLIENTS
        return answered

    answered = sum(await asyncio.gather(*map(client, range(CLIENTS))))
    return answered / (time.perf_counter() - begin)


async def opened(server: Server, bodies: Sequence[bytes], times: Sequence[float]) -> list[Answer]:
    """Send a request at each of these times, whatever became of the others; return all that became of them."""
    begin, tasks = time.perf_counter(), []
    for number, at in enumerate(times):
        await asyncio.sleep(max(begin + at - time.perf_counter(), 0))
        tasks.append(asyncio.create_task(asked(server, bodies[number % len(bodies)], begin + at)))
    return await asyncio.gather(*tasks)


async def asked(server: Server, body: bytes, arrived: float) -> Answer:
    """Send one request, on a connection of its own."""
    try:
        answer = await asyncio.wait_for(
            exchange(server.port, f"{server.head}{len(body)}\r\n\r\n".encode() + body), ANSWERING
        )
        head = answer.partition(b"\r\n\r\n")[0].lower()
        status = int(head.split(maxsplit=2)[1])
    except (OSError, asyncio.TimeoutError, IndexError, ValueError):
        return Answer(0, False, (time.perf_counter() - arrived) * 1e3)
    return Answer(status, b"\r\nretry-after:" in head, (time.perf_counter() - arrived) * 1e3)


async def exchange(port: int, request: bytes) -> bytes:
    """Return all that a server sends after a request, until it ends the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        return await reader.read()
    finally:
        writer.close()


def figures(load: Sequence[Answer]) -> dict[str, Any]:
    """Return counts and percentiles; refused is 503 with Retry-After, and lost is everything else that is not 200."""
    answered = [one.ms for one in load if one.status == 200]
    refused = [one.ms for one in load if one.status == 503 and one.retry_after]
    found: dict[str, Any] = {"sent": len(load), "answered": len(answered), "refused": len(refused)}
    found["lost"] = len(load) - len(answered) - len(refused)
    for name, times, percent in (("p50 ms", answered, 50), ("p99 ms", answered, 99), ("p99 ms to refuse", refused, 99)):
        found[name] = round(float(np.percentile(times, percent))) if times else None
    return found


if __name__ == "__main__":
    main()
