"""What clients see while one of two replicas ends: `polyagents serve` twice over one index, behind HAProxy.

    polyagents index build -mf M --candidates-file replies.txt --index-url URL
    python -m polyagents.benchmarks.replicas -mf M --index-url URL --contexts-file contexts.txt --work DIR

Clients ask `POST /rank` of the proxy again as soon as they have an answer. After a third of the time one replica is
killed (SIGKILL), after two thirds it is started again; then everything is repeated with SIGTERM, on which a server
answers the requests that it is working on. HAProxy runs with deploy/haproxy.cfg, as it is. An answer is right if its
best candidate is the one that a replica gave before there was any load. Clients, proxy, replicas and often the engine
share the machine.
"""

import argparse
import bisect
import contextlib
import http.client
import itertools
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from prometheus_client.parser import text_string_to_metric_families

from polyagents.arguments import positive_int
from polyagents.benchmarks.clients import Clients
from polyagents.benchmarks.indexed import context_parser
from polyagents.benchmarks.ports import answers, free_port
from polyagents.benchmarks.report import publish
from polyagents.benchmarks.serving import UNLIMITED
from polyagents.console import say
from polyagents.errors import InputError
from polyagents.files.context_lines import read_contexts
from polyagents.serving.observing import READY

Row = dict[str, Any]
CONFIGURATION = Path(__file__).resolve().parent.parent / "deploy" / "haproxy.cfg"
NO_LIMITS = ("--requests-per-minute", str(UNLIMITED), "--texts-per-minute", str(UNLIMITED))
LOADING = 300.0  # seconds in which a replica must be ready
ANSWERING = 60.0  # seconds that a client waits for an answer before it counts as lost; the proxy gives up sooner
ENDINGS = (signal.SIGKILL, signal.SIGTERM)
SENT_AGAIN = "haproxy_backend_redispatch_warnings_total"  # every retry of deploy/haproxy.cfg goes to the other replica


def main() -> None:
    """Measure, print a table, and write it to DIR/replicas.json."""
    parser = context_parser("replicas", __doc__.split("\n")[0])
    place = parser.add_mutually_exclusive_group(required=True)
    place.add_argument("--index-url", help="its candidates, in an engine that several may ask")
    place.add_argument("--index-dir", help="its candidates, in a folder that both map")
    parser.add_argument("--work", required=True, help="folder for logs and figures, created if it is missing")
    parser.add_argument("--clients", type=positive_int, default=8, help="requests at a time")
    parser.add_argument("--seconds", type=positive_int, default=30, help="of a run, without a replica's loading")
    opt = parser.parse_args()
    try:
        rows = measured(opt)
    except InputError as error:
        parser.exit(2, f"{parser.prog}: {error}\n")
    publish({"replicas": rows}, os.path.join(opt.work, "replicas.json"))


def measured(opt: argparse.Namespace) -> list[Row]:
    """Do a run for each way to end a replica, each with its own replicas and proxy.

    Raises:
        InputError: there is no HAProxy here, the contexts cannot be read, or a replica cannot serve.
    """
    program, bodies = haproxy(), requests_of(opt.contexts_file)
    os.makedirs(opt.work, exist_ok=True)
    rows: list[Row] = []
    for ending in ENDINGS:
        with contextlib.ExitStack() as running:
            replicas = running.enter_context(two_replicas(opt, ending.name))
            questions = Questions(bodies, [replicas[0].best(body) for body in bodies])
            log = os.path.join(opt.work, f"{ending.name}-proxy.log")
            proxy = running.enter_context(proxy_for(program, replicas, log))
            rows += run(ending, replicas[0], proxy, questions, opt)
    return rows


def requests_of(path: str) -> list[bytes]:
    """Return the bodies of requests with the contexts of a file."""
    return [json.dumps({"context": context}).encode() for context in read_contexts(path)]


def run(
    ending: signal.Signals, replica: "Replica", proxy: "Proxy", questions: "Questions", opt: argparse.Namespace
) -> list[Row]:
    """Let clients ask both replicas while one ends and comes back; return a row for each phase.

    Args:
        ending: the signal that ends the replica.
    """
    load = Load(proxy.port, questions, opt.clients, replica.token)
    part = opt.seconds / 3
    phases = [Phase("both", proxy.retries())]
    with load:
        time.sleep(part)
        phases.append(Phase("one gone", proxy.retries()))
        took = replica.end(ending)
        time.sleep(max(part - took, 0))
        phases.append(Phase("one loading", proxy.retries()))
        replica.start()
        replica.wait()
        phases.append(Phase("both again", proxy.retries()))
        time.sleep(part)
    phases.append(Phase("", proxy.retries()))
    say(f"{ending.name}: the replica had ended after {took:.2f} s. Lost: {load.lost() or 'nothing'}.")
    return [{"one ends by": ending.name} | row for row in rows_of(phases, load.asked)]


# ---- what is counted -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Questions:
    """The requests of clients: their bodies, and for each the number of the best candidate."""

    bodies: Sequence[bytes]
    best: Sequence[int | None]


@dataclass(frozen=True)
class TimedRequest:
    """One request of a client.

    Attributes:
        ms: milliseconds from the request to the end of its answer.
        status: the status of the answer, or the name of the client's error.
        right: whether its best candidate is the expected one.
    """

    ended: float
    ms: float
    status: int | str
    right: bool


@dataclass(frozen=True)
class Phase:
    """The beginning of a phase.

    Attributes:
        retries: retries of the proxy until then.
    """

    name: str
    retries: int
    begin: float = field(default_factory=time.perf_counter)


def rows_of(phases: Sequence[Phase], asked: Sequence[TimedRequest]) -> list[Row]:
    """Make a row for each phase but the last, which is the end; a request counts in the phase of its answer."""
    begins = [phase.begin for phase in phases]
    within: list[list[TimedRequest]] = [[] for _ in phases[1:]]
    for one in asked:
        within[min(bisect.bisect_right(begins, one.ended), len(within)) - 1].append(one)
    return [
        {"phase": phase.name}
        | figures(ended, after.begin - phase.begin)
        | {"sent again by the proxy": after.retries - phase.retries}
        for (phase, after), ended in zip(itertools.pairwise(phases), within, strict=True)
    ]


def figures(asked: Sequence[TimedRequest], seconds: float) -> Row:
    """Compute the figures of one phase."""
    answered = [one for one in asked if one.status == 200]
    times = [one.ms for one in answered]
    percentiles = [round(float(each), 1) for each in np.percentile(times, (50, 95, 99))] if times else [None] * 3
    return (
        {"s": round(seconds, 1), "answers/s": round(len(answered) / seconds, 1)}
        | dict(zip(("p50 ms", "p95 ms", "p99 ms"), percentiles, strict=True))
        | {"sent": len(asked), "answered": len(answered), "lost": len(asked) - len(answered)}
        | {"wrong": sum(not one.right for one in answered)}
    )


class Load(Clients):
    """Clients that ask the proxy, each on one connection, while this context is active."""

    def __init__(self, port: int, questions: Questions, clients: int, token: str):
        self.port, self.questions, self.headers = port, questions, headers(token)
        self.asked: list[TimedRequest] = []
        super().__init__(self.client, ((number,) for number in range(clients)))

    def client(self, number: int) -> None:
        """Send one request after the other, starting at the client's number; a lost one is not sent again."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=ANSWERING)
        count = len(self.questions.bodies)
        start = number * count // len(self.threads)
        for place in itertools.cycle([*range(start, count), *range(start)]):
            if self.over.is_set():
                break
            begin = time.perf_counter()
            status, best = self.ask(connection, self.questions.bodies[place])
            ended = time.perf_counter()
            self.asked.append(TimedRequest(ended, (ended - begin) * 1e3, status, best == self.questions.best[place]))
        connection.close()

    def ask(self, connection: http.client.HTTPConnection, body: bytes) -> tuple[int | str, int | None]:
        """Send one request; return status and best candidate of the answer."""
        try:
            connection.request("POST", "/rank", body, self.headers)
            answer = connection.getresponse()
            content = answer.read()
        except (OSError, http.client.HTTPException) as error:
            connection.close()  # the next request opens it again
            return type(error).__name__, None
        return answer.status, best_of(content) if answer.status == 200 else None

    def lost(self) -> str:
        """Describe the errors that clients got, and how often."""
        statuses = [one.status for one in self.asked if one.status != 200]
        return ", ".join(f"{statuses.count(status)} times {status}" for status in dict.fromkeys(statuses))


def best_of(content: bytes) -> int | None:
    """Return the number of the best candidate of an answer; None if it has none."""
    matches = json.loads(content)["matches"]
    return matches[0]["index"] if matches else None


def headers(token: str) -> dict[str, str]:
    """Return the headers of every request."""
    return {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}


# ---- processes of this machine ---------------------------------------------------------------------------------------


class Replica:
    """A process of `polyagents serve`, which can be ended and started again.

    Args:
        opt: model file, index URL or folder, and the folder for its log.
        token: what every request must send.
    """

    def __init__(self, opt: argparse.Namespace, name: str, token: str):
        self.port, self.log, self.token = free_port(), os.path.join(opt.work, f"{name}.log"), token
        self.command = [sys.executable, "-m", "polyagents", "serve", "-mf", opt.model_file]
        self.command += ["--index-url", opt.index_url] if opt.index_url else ["--index-dir", opt.index_dir]
        self.command += ["--port", str(self.port), *NO_LIMITS]
        self.environment = {
            **os.environ,
            "POLYAGENTS_TOKEN": token,
        }  # a token on the command line would be visible in a list of processes
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, without waiting until it is ready."""
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log, env=self.environment)

    def wait(self) -> None:
        """Wait until it is ready.

        Raises:
            InputError: it ends, or is not ready within LOADING seconds.
        """
        deadline = time.monotonic() + LOADING
        while not self.is_ready():
            if self.process is None or self.process.poll() is not None or time.monotonic() > deadline:
                raise InputError(f"A replica cannot serve: {last_line(self.log) or f'{self.log} is empty'}")
            time.sleep(0.2)

    def is_ready(self) -> bool:
        """Return whether it and its engine answer."""
        with contextlib.suppress(OSError, http.client.HTTPException):
            return get(self.port, READY)[0] == 200
        return False

    def best(self, body: bytes) -> int | None:
        """Return the best candidate's number, without the proxy.

        Raises:
            InputError: it refuses the context.
        """
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=ANSWERING)
        with contextlib.closing(connection):
            connection.request("POST", "/rank", body, headers(self.token))
            answer = connection.getresponse()
            content = answer.read()
        if answer.status != 200:
            raise InputError(f"A replica does not rank a context of --contexts-file: {json.loads(content)['error']}")
        return best_of(content)

    def end(self, how: signal.Signals) -> float:
        """Send it a signal, and return the seconds until it had ended."""
        begin = time.perf_counter()
        if self.process is not None:
            self.process.send_signal(how)  # does nothing if it has already ended
            self.process.wait()
        return time.perf_counter() - begin


@contextlib.contextmanager
def two_replicas(opt: argparse.Namespace, name: str) -> Iterator[list[Replica]]:
    """Start two replicas, and kill them at the end.

    Args:
        name: the beginning of their logs' names.

    Raises:
        InputError: one cannot serve.
    """
    token = secrets.token_hex(16)
    replicas = [Replica(opt, f"{name}-replica-{number}", token) for number in (1, 2)]
    try:
        for replica in replicas:
            replica.start()
        for replica in replicas:
            replica.wait()
        yield replicas
    finally:
        for replica in replicas:
            replica.end(signal.SIGKILL)


@dataclass(frozen=True)
class Proxy:
    """A running HAProxy: its ports for clients, for Prometheus, and for commands."""

    port: int
    figures: int
    commands: int

    def retries(self) -> int:
        """Return how many requests it has sent again, to the other replica."""
        return self.figure(SENT_AGAIN)

    def figure(self, name: str, **labels: str) -> int:
        """Return the sum of a figure's samples that have these labels."""
        families = text_string_to_metric_families(get(self.figures, "/metrics")[1].decode())
        samples = [sample for family in families for sample in family.samples if sample.name == name]
        return int(sum(one.value for one in samples if labels.items() <= one.labels.items()))

    def command(self, line: str) -> str:
        """Send a command of HAProxy's runtime API; return its answer, which is empty if a server was set."""
        with socket.create_connection(("127.0.0.1", self.commands), ANSWERING) as connection:
            connection.sendall(f"{line}\n".encode())
            with connection.makefile(encoding="utf-8") as answer:
                return answer.read().strip()


@contextlib.contextmanager
def proxy_for(program: str, replicas: Sequence[Replica], log: str) -> Iterator[Proxy]:
    """Start HAProxy in front of two replicas, with deploy/haproxy.cfg.

    Args:
        program: the path of HAProxy.

    Raises:
        InputError: it does not start.
    """
    proxy = Proxy(free_port(), free_port(), free_port())
    environment = {
        "COMMANDS": f"ipv4@127.0.0.1:{proxy.commands}",
        "LISTEN": f"127.0.0.1:{proxy.port}",
        "FIGURES": f"127.0.0.1:{proxy.figures}",
        "REQUESTS_PER_MINUTE": str(UNLIMITED),
        **{f"REPLICA_{number}": f"127.0.0.1:{replica.port}" for number, replica in enumerate(replicas, 1)},
    }
    with started("HAProxy", [program, "-db", "-f", str(CONFIGURATION)], proxy.port, log, environment):
        yield proxy


@contextlib.contextmanager
def started(name: str, command: Sequence[str], port: int, log: str, environment: Mapping[str, str]) -> Iterator[None]:
    """Run a server until the end of the `with`, which begins when it accepts connections.

    Args:
        port: that it listens at, on loopback.
        environment: variables that it gets beside ours.

    Raises:
        InputError: it ends, or accepts no connection within LOADING seconds.
    """
    with open(log, "wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env={**os.environ, **environment})
    try:
        deadline = time.monotonic() + LOADING
        while not answers(port):
            if process.poll() is not None or time.monotonic() > deadline:
                raise InputError(f"{name} does not start: {last_line(log)}")
            time.sleep(0.05)
        yield
    finally:
        process.kill()
        process.wait()


def haproxy() -> str:
    """Find the program.

    Raises:
        InputError: there is none, or not the checkout that has its configuration.
    """
    if not CONFIGURATION.exists():
        raise InputError(f"There is no {CONFIGURATION}; run this in a checkout of polyagents.")
    found = shutil.which("haproxy")
    if found is None:
        raise InputError("There is no haproxy on PATH; install HAProxy 2.6 or newer (apt-get install haproxy).")
    return found


def get(port: int, path: str) -> tuple[int, bytes]:
    """Return status and content of a page on loopback.

    Args:
        path: the path.
    """
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWERING)) as connection:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()


def last_line(path: str) -> str:
    """Return the last line of a log."""
    lines = Path(path).read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1] if lines else ""


if __name__ == "__main__":
    main()
