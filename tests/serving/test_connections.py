"""Connections whose clients send nothing, or read nothing: they are closed, and everybody else is served."""

import asyncio
import contextlib
import socket
import time

import httpx2
import pytest
from stand import Stand, echo
from uvicorn import Config
from uvicorn.server import ServerState
from web import raw, running, unread

from polyagents.human_eval.web.shared_pages import application
from polyagents.serving import patient_protocol
from polyagents.serving.http_server import server_of
from polyagents.serving.patient_protocol import IDLE, PatientProtocol
from polyagents.serving.ranking_app import create_app


def is_closed(opened):
    """Whether the other side has closed a connection; what it has sent is read."""
    opened.settimeout(10)
    try:
        while opened.recv(65_536):
            pass
    except ConnectionResetError:
        pass
    except TimeoutError:
        return False
    return True


@pytest.fixture
def connections(monkeypatch):
    """All connections that servers of this process have had, and those that are open."""
    every, still_open = [], set()

    class Noted(PatientProtocol):
        def connection_made(self, transport):
            every.append(self)
            still_open.add(self)
            super().connection_made(transport)

        def connection_lost(self, exc):
            still_open.discard(self)
            super().connection_lost(exc)

    monkeypatch.setattr(patient_protocol, "PatientProtocol", Noted)
    return every, still_open


def wait_until(reached):
    """Wait until something holds, for 20 s at most."""
    end = time.monotonic() + 20
    while not reached():
        assert time.monotonic() < end
        time.sleep(0.005)


def get(url, path):
    return f"GET {path} HTTP/1.1\r\nHost: {url[7:]}\r\n\r\n".encode()


async def large(scope, receive, send):
    """An application whose answers are larger than what the kernel keeps of them."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"200000")]})
    await send({"type": "http.response.body", "body": b"a" * 200_000})


APPS = {
    "serve": lambda: (create_app(Stand(echo), per_minute=10**6), ["/openapi.json", "/healthz", "/static/chat.js", "/"]),
    "with a token": lambda: (create_app(Stand(echo), "secret", per_minute=10**6), ["/healthz", "/readyz", "/"]),
    "human_eval": lambda: (application([]), ["/", "/static/page.css"]),
    "large answers": lambda: (large, ["/"]),
}


# ---- silent ones -----------------------------------------------------------------------------------------------------


def test_connections_that_say_nothing_keep_nobody_waiting(monkeypatch):
    monkeypatch.setattr(patient_protocol, "IDLE_CONNECTIONS", 20)
    with running(create_app(Stand(echo))) as url, contextlib.ExitStack() as stack:
        port = int(url.rsplit(":", 1)[1])
        silent = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(60)]
        for number, opened in enumerate(silent):
            if number % 2:
                with contextlib.suppress(OSError):  # it may be closed already
                    opened.sendall(b"GET / HT")  # nor do those who begin
        assert httpx2.post(f"{url}/rank", json={"context": "a"}, timeout=5).status_code == 200
        assert [is_closed(opened) for opened in silent[:40]] == [True] * 40


@pytest.mark.slow
def test_a_request_that_never_comes_is_given_up(monkeypatch):
    monkeypatch.setattr(patient_protocol, "HEADER_SECONDS", 0.1)
    with running(create_app(Stand(echo))) as url:
        for begun in (b"", get(url, "/")[:-2], get(url, "/docs") + b"G"):
            with unread(url, begun) as opened:
                assert is_closed(opened)  # after an answer, where a whole request was sent


# ---- unread ones -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kind", APPS)
def test_answers_that_nobody_reads_are_given_up(kind, monkeypatch, connections):
    monkeypatch.setattr(patient_protocol, "UNREAD_SECONDS", 0.1)
    monkeypatch.setattr(patient_protocol, "HEADER_SECONDS", 30.0)
    monkeypatch.setattr(patient_protocol, "PIPELINED", 1_000)
    app, paths = APPS[kind]()
    with running(app, buffer=2_048) as url, contextlib.ExitStack() as stack:
        opened = [stack.enter_context(unread(url, get(url, path) * 400)) for path in paths]
        every, still_open = connections
        wait_until(lambda: len(every) == len(opened) and not still_open)


@pytest.mark.parametrize("kind", APPS)
def test_answers_that_nobody_reads_take_no_more_than_their_share_of_connections(kind, monkeypatch, connections):
    monkeypatch.setattr(patient_protocol, "IDLE_CONNECTIONS", 5)
    monkeypatch.setattr(patient_protocol, "PIPELINED", 1_000)
    app, paths = APPS[kind]()
    with running(app, buffer=2_048) as url, contextlib.ExitStack() as stack:
        opened = [stack.enter_context(unread(url, get(url, path) * 400)) for path in paths * (12 // len(paths))]
        every, still_open = connections
        wait_until(lambda: len(every) == len(opened) and len(still_open) == 5)
        assert httpx2.get(url + paths[0], timeout=10).status_code in (200, 404)


@pytest.mark.slow
def test_a_client_that_reads_slowly_gets_its_answers(monkeypatch):
    monkeypatch.setattr(patient_protocol, "UNREAD_SECONDS", 1.0)
    monkeypatch.setattr(patient_protocol, "HEADER_SECONDS", 0.05)
    with running(large, buffer=2_048) as url, unread(url, get(url, "/")) as opened:
        read, begin = 0, time.monotonic()
        opened.settimeout(10)
        while part := opened.recv(4_096):
            read += len(part)
            time.sleep(0.002)
        assert read > 200_000 and time.monotonic() - begin > 0.1
    assert not IDLE


@pytest.mark.parametrize(("many", "answered"), [(1, 1), (17, 17), (18, 17), (400, 17)])
def test_sixteen_requests_may_come_before_the_answers(many, answered):
    with running(create_app(Stand(echo))) as url, unread(url, get(url, "/healthz") * many) as opened:
        opened.settimeout(10)

        def read(answers):
            said = b""
            while said.count(b'"status":"ok"') < answers:
                said += opened.recv(65_536)
            return said.count(b'"status":"ok"') == answers

        assert read(answered)
        if many > answered:
            assert is_closed(opened)
        else:
            opened.sendall(get(url, "/healthz") * 3)  # an answer was waited for
            assert read(3)


def test_requests_are_answered_one_at_a_time_and_nothing_is_read_while_some_wait():
    async def app(scope, receive, send):
        asked.append(scope["path"])
        listening = asyncio.ensure_future(receive())  # as for a client that goes
        if scope["path"] == "/0":
            await go_on.wait()
        listening.cancel()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    asked = []

    async def ask():
        nonlocal go_on
        go_on = asyncio.Event()
        protocol = PatientProtocol(Config(app, log_level="critical"), ServerState(), {})
        transport = Transport()
        protocol.connection_made(transport)
        requests = [f"GET /{number} HTTP/1.1\r\nHost: a\r\n\r\n".encode() for number in range(5)]
        protocol.data_received(requests[0] + requests[1])
        for _ in range(5):
            await asyncio.sleep(0)
        assert asked == ["/0"] and not transport.reads
        go_on.set()
        for _ in range(50):
            await asyncio.sleep(0)
        assert asked == ["/0", "/1"] and transport.reads
        transport.waits = 10  # the client reads no more
        protocol.pause_writing()
        protocol.data_received(requests[2] + requests[3])
        for _ in range(50):
            await asyncio.sleep(0)
        blocked = list(asked)
        transport.waits = 0
        protocol.resume_writing()
        for _ in range(50):
            await asyncio.sleep(0)
        protocol.connection_lost(None)
        return blocked

    go_on = None
    blocked = asyncio.run(ask())
    assert blocked == ["/0", "/1", "/2"] and asked == ["/0", "/1", "/2", "/3"]


# ---- how long, and how many ------------------------------------------------------------------------------------------


class Transport(asyncio.Transport):
    """A connection without a network: what waits to be read, and whether it is open."""

    def __init__(self):
        super().__init__()
        self.waits, self.open, self.reads = 0, True, True

    def get_write_buffer_size(self):
        return self.waits

    def set_write_buffer_limits(self, high=None, low=None):
        assert high == 0

    def is_closing(self):
        return not self.open

    def abort(self):
        self.open = False

    close = abort

    def write(self, data):
        pass

    def pause_reading(self):
        self.reads = False

    def resume_reading(self):
        self.reads = True


class Clock:
    """Instead of an event loop: what is to be called, after how many seconds."""

    def __init__(self):
        self.now, self.calls = 0.0, []

    def call_later(self, delay, call):
        timer = asyncio.TimerHandle(self.now + delay, call, (), self)
        self.calls.append(timer)
        return timer

    def _timer_handle_cancelled(self, timer):
        pass

    def get_debug(self):
        return False

    def pass_to(self, now):
        self.now = now
        for timer in [timer for timer in self.calls if timer.when() <= now]:
            self.calls.remove(timer)
            if not timer.cancelled():
                timer._callback()


@pytest.fixture
def connect():
    """Makes connections that an event loop knows of only by its clock."""
    clock, made, config = Clock(), [], Config(large, log_level="critical")

    def one():
        made.append(PatientProtocol(config, ServerState(), {}, _loop=clock))
        made[-1].connection_made(Transport())
        return made[-1]

    one.clock = clock
    yield one
    for protocol in made:
        protocol.end_idling()


def test_a_connection_may_say_nothing_for_ten_seconds(connect):
    one = connect()
    connect.clock.pass_to(9.9)
    assert one.transport.open
    connect.clock.pass_to(10.0)
    assert not one.transport.open


def test_an_answer_may_go_unread_for_ten_seconds_each_time(connect):
    one = connect()
    one.transport.waits = 100
    one.pause_writing()
    connect.clock.pass_to(9.9)
    one.transport.waits = 99  # it reads something
    for now in (10.0, 19.9):
        connect.clock.pass_to(now)
        assert one.transport.open
    connect.clock.pass_to(20.0)
    assert not one.transport.open


def test_500_connections_may_idle_and_the_oldest_goes_first(connect):
    first, second, *others = [connect() for _ in range(500)]
    second.transport.waits = 1  # it has become the newest
    second.pause_writing()
    assert all(protocol.transport.open for protocol in (first, second, *others))
    connect()
    assert not first.transport.open and second.transport.open
    connect()
    assert not others[0].transport.open and second.transport.open


@pytest.mark.parametrize("protocol", ["h2c", "websocket"])
def test_another_protocol_that_a_client_offers_is_ignored(protocol, capsys):
    offer = f"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n\r\n"
    with running(create_app(Stand(echo))) as url:
        status, _ = raw(url, offer.encode())
    assert status == 200 and capsys.readouterr().err == ""


def test_a_server_takes_1000_connections_at_once():
    assert server_of(large).config.limit_concurrency == 1_000
