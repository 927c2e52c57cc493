"""HTTP connections that may not keep others waiting: one that sends no request is closed, the oldest first."""

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from polyagents.serving.limits import HEADER_SECONDS, SILENT_CONNECTIONS

SILENT: "dict[PatientProtocol, asyncio.TimerHandle]" = {}  # of all connections of this process, oldest first


class PatientProtocol(H11Protocol):
    """uvicorn's protocol, which waits for ever for the first request of a connection, and for the rest of any.

    A connection is silent from its beginning, and from the end of each answer, until all headers of its next request
    are there. Silent ones are closed after HEADER_SECONDS; where there are more than SILENT_CONNECTIONS, the oldest is
    closed at once, so that whoever opens thousands and says nothing closes his own, and everybody else gets in.

    Attributes:
        answered: the request that was answered last.
    """

    answered: Any = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """asyncio: somebody has opened a connection."""
        super().connection_made(transport)
        self.begin_silence()

    def connection_lost(self, exc: Exception | None) -> None:
        """asyncio: the connection is closed."""
        self.end_silence()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """H11Protocol: take what has come."""
        super().handle_events()
        if self.cycle is not None and self.cycle is not self.answered:
            self.end_silence()

    def on_response_complete(self) -> None:
        """H11Protocol: an answer is sent."""
        self.answered = self.cycle
        self.begin_silence()
        super().on_response_complete()  # which takes the next request where it is there already

    def begin_silence(self) -> None:
        """Wait for a request, but not for ever."""
        self.end_silence()
        if self.transport.is_closing():
            return
        SILENT[self] = self.loop.call_later(HEADER_SECONDS, self.give_up)
        if len(SILENT) > SILENT_CONNECTIONS:
            next(iter(SILENT)).give_up()

    def end_silence(self) -> None:
        """A request is there, or the connection is not any more."""
        if timer := SILENT.pop(self, None):
            timer.cancel()

    def give_up(self) -> None:
        """Close a connection that sends nothing."""
        self.end_silence()
        self.transport.close()
