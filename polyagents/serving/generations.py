"""Generations: what is served now takes the place of what was served before, between two requests.

A request is answered to its end by the generation that it began with, so no answer mixes two. The old one is released
once its last request has ended.
"""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Iterator, Mapping

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from polyagents.serving.guard import adding_headers, header_value
from polyagents.serving.served import Served


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
            headers = headers_of(served.trace)

            async def timed(message: Message) -> None:
                if took:
                    headers["Server-Timing"] = ", ".join(f"{one};dur={took[one] * 1e3:.1f}" for one in took)
                await answer(message)

            answer = adding_headers(send, headers)
            await self.app(scope, receive, timed)


def headers_of(trace: Mapping[str, str]) -> dict[str, str]:
    """Return `Polyagents-Model` and so on; characters that a header cannot have are percent-encoded."""
    return {f"Polyagents-{name.title()}": header_value(value) for name, value in trace.items()}
