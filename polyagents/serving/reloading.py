"""Reloading: another generation is loaded while the present one is served, tried, and put in its place.

It happens when the files have changed, on SIGHUP, and on `POST /admin/reload`. What is refused changes nothing. A
request is answered to its end by the generation that it began with, so no answer mixes two. The old one is released
once its last request has ended.
"""

import asyncio
import contextlib
import gc
import os
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping

from fastapi import FastAPI
from fastapi import Request as HttpRequest
from fastapi.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from polyagents.errors import InputError
from polyagents.faults import users_fault
from polyagents.serving.access_tokens import AccessTokens
from polyagents.serving.guard import adding_headers, header_value
from polyagents.serving.logs import LOG
from polyagents.serving.problems import problem
from polyagents.serving.served import Served
from polyagents.serving.sources import Sources, alias_of
from polyagents.serving.worker_thread import WorkerThread

RELOAD = "/admin/reload"
WATCH_SECONDS = 2.0  # between two looks at the files; a change is loaded if the next look finds no other
RETRY_SECONDS = 60.0  # after which files that were refused are tried again: memory, or an engine, may have been short


class Generations:
    """The generation that is served, and the older ones that still answer requests. For the event loop's thread only.

    Attributes:
        current: answers the requests that come now.
        requests: how many requests each generation is answering.
        since: when the current one was put there, in seconds since 1970.
    """

    def __init__(self, served: Served):
        self.current, self.since = served, time.time()
        self.requests: Counter[Served] = Counter()

    def __len__(self) -> int:
        return len({self.current, *self.requests})

    @contextlib.contextmanager
    def held(self) -> Iterator[Served]:
        """Keep the current generation until the end of the `with`, whatever is served meanwhile."""
        served = self.current
        self.requests[served] += 1
        try:
            yield served
        finally:
            self.requests[served] -= 1
            self._release(served)

    def switch(self, served: Served) -> None:
        """Serve another generation from now on."""
        old, self.current, self.since = self.current, served, time.time()
        self._release(old)

    def _release(self, served: Served) -> None:
        """Close a generation that nobody needs any more, in a thread: it may have gigabytes to give back."""
        if self.requests[served] == 0:
            del self.requests[served]
            if served is not self.current:
                asyncio.get_running_loop().run_in_executor(None, served.close)


class Held:
    """An ASGI application whose requests keep their generation, in `state.served`; headers name it.

    `state.took` is for the seconds of each stage, which the header Server-Timing then has.
    """

    def __init__(self, app: ASGIApp, generations: Generations):
        self.app, self.generations = app, generations

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, with the generation that is current now."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        with self.generations.held() as served:
            took: dict[str, float] = {}
            scope.setdefault("state", {}).update(served=served, took=took)
            headers = {f"Polyagents-{name.title()}": header_value(value) for name, value in served.trace.items()}

            async def timed(message: Message) -> None:
                if took:
                    headers["Server-Timing"] = ", ".join(f"{one};dur={took[one] * 1e3:.1f}" for one in took)
                await answer(message)

            answer = adding_headers(send, headers)
            await self.app(scope, receive, timed)


class Reloader:
    """Loads another generation while the present one is served, and puts it in its place, or else refuses it.

    Attributes:
        generations: of the server that runs.
        is_loading: whether one is being loaded.
        results: how many were served, and how many were refused.
        refused: the stamps of the files that were refused last; None if these are no longer there.
        seconds: how long the last one took to load.
    """

    generations: Generations

    def __init__(self, sources: Sources, tokens: AccessTokens | None = None):
        self.sources, self.tokens = sources, tokens or AccessTokens()
        self.is_loading, self.seconds = False, 0.0
        self.results = {"done": 0, "refused": 0}
        self.refused: Mapping[str, object] | None = None
        self._tried, self._said = 0.0, ""
        self._lock, self._thread = asyncio.Lock(), WorkerThread("reload")
        self._next: asyncio.Task[bool] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def state(self) -> str:
        """What /readyz says: loading, refused, or current."""
        return "loading" if self.is_loading else "refused" if self.is_refused else "current"

    @property
    def is_refused(self) -> bool:
        """Whether newer files of the generation, or of the tokens, were refused."""
        return self.refused is not None or bool(self.tokens.refused)

    def reload(self) -> "asyncio.Task[bool]":
        """Load what the files hold now; the result is whether it is served. Who asks before it begins shares it."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_task(self._reload())
        return self._next

    async def _reload(self) -> bool:
        await asyncio.to_thread(self.tokens.renew)
        async with self._lock:
            self._next, self.is_loading, self._tried = None, True, time.monotonic()
            begin, stamps = time.perf_counter(), None
            try:
                stamps = await self._thread.do(self.stamps)
                found = await self._thread.do(self.sources.load_after, self.generations.current)
            except Exception as error:
                self.results["refused"] += 1
                self.refused = stamps or {}
                self._say(error)
                return False
            finally:
                self.is_loading = False
            self.generations.switch(found)
            self.results["done"] += 1
            self.refused, self._said, self.seconds = None, "", time.perf_counter() - begin
            LOG.info(
                "Another generation is served", extra={"fields": {**found.trace, "seconds": round(self.seconds, 2)}}
            )
            return True

    def _say(self, error: Exception) -> None:
        """Log why a generation was refused, once if it is refused again and again."""
        reason = users_fault(error) or f"{type(error).__name__}: {error}"
        if reason != self._said:
            known = isinstance(error, InputError)
            LOG.error("A new generation was refused, the old one stays: %s", reason, exc_info=None if known else error)
        self._said = reason

    def stamps(self) -> dict[str, object]:
        """Return the state of all that the current generation was loaded from."""
        return self.sources.stamps() | alias_of(self.generations.current)

    async def watch(self) -> None:
        """Look at the files until cancelled, and reload if they have changed and are not just being written."""
        before: Mapping[str, object] | None = None
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            try:
                with self.generations.held():
                    seen = await self._thread.do(self.stamps)
            except Exception:  # an engine is away, which /readyz says
                continue
            was_tried = seen == self.refused and time.monotonic() - self._tried < RETRY_SECONDS
            if seen == self.generations.current.stamps:  # which may have come during the look
                self.refused, self._said = None, ""
            elif seen == before and not was_tried and not self.is_loading:
                await self.reload()
            before = seen

    async def watch_tokens(self) -> None:
        """Look at the file of tokens until cancelled; a generation that is being loaded delays no change of it."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            await asyncio.to_thread(self.tokens.renew, at_once=False)

    @contextlib.asynccontextmanager
    async def running(self, generations: Generations) -> AsyncIterator[None]:
        """Watch until the end of the `with`, and switch generations."""
        self.generations, self._loop = generations, asyncio.get_running_loop()
        watching = [asyncio.create_task(self.watch()), asyncio.create_task(self.watch_tokens())]
        try:
            yield
        finally:
            self._loop = None
            for task in watching:
                task.cancel()
            self._thread.end()

    def reload_soon(self) -> None:
        """Reload, if the server runs; for other threads and signals."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self.reload)


def add_reload(app: FastAPI, reloader: Reloader) -> None:
    """Add `POST /admin/reload`, which answers when the other generation is served, or was refused."""

    @app.post(RELOAD, include_in_schema=False)
    async def reload(http: HttpRequest) -> Response:
        if await asyncio.shield(reloader.reload()) and not reloader.is_refused:  # goes on if the client goes
            seconds = round(reloader.seconds, 2)
            return JSONResponse({"status": "done", "seconds": seconds, **reloader.generations.current.trace})
        refusal = "The new generation or tokens were refused, and the old ones stay; the server's log says why."
        return problem(http.url.path, refusal, 409)


def freeze() -> None:
    """Exempt all objects that there are from garbage collection, for the rest of the process.

    A reload makes many objects, which starts a collection of all generations; collecting PyTorch's own objects stopped
    every request for half a second (benchmarks/reloading.py). A generation that is released needs no collector.
    """
    gc.collect()
    gc.freeze()


def on_hangup(reload: Callable[[], None]) -> None:
    """Reload on SIGHUP. If its terminal has been closed, the process ends, as it would without us (and nohup)."""
    if not hasattr(signal, "SIGHUP"):  # Windows
        return
    had_terminal, is_ignored = has_terminal(), signal.getsignal(signal.SIGHUP) == signal.SIG_IGN

    def hangup(*_: object) -> None:
        if not had_terminal or has_terminal():
            reload()
        elif not is_ignored:
            signal.raise_signal(signal.SIGTERM)

    signal.signal(signal.SIGHUP, hangup)


def has_terminal() -> bool:
    """Return whether the process has a terminal that can send it signals."""
    try:
        os.close(os.open(os.ctermid(), os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True
