"""HTTP connections that cannot block others: one that sends no request is closed, the oldest first."""

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from polyagents.serving.limits import HEADER_SECONDS, SILENT_CONNECTIONS

SILENT: "dict[PatientProtocol, asyncio.TimerHandle]" = {}  # of all connections of this process, oldest first


class PatientProtocol(H11Protocol):
    """uvicorn's protocol with limits; the original waits forever for the first request of a connection.

    A connection is silent from its beginning, and from the end of each answer, until all headers of its next request
    have arrived. Silent ones are closed after HEADER_SECONDS. If there are more than SILENT_CONNECTIONS, the oldest is
    closed at once, so a client that opens thousands of them closes its own, and everybody else is served.

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
        """H11Protocol: process the received data."""
        super().handle_events()
        if self.cycle is not None and self.cycle is not self.answered:
            self.end_silence()

    def on_response_complete(self) -> None:
        """H11Protocol: an answer is sent."""
        self.answered = self.cycle
        self.begin_silence()
        super().on_response_complete()  # handles the next request if it has already arrived

    def begin_silence(self) -> None:
        """Start the time limit for the next request."""
        self.end_silence()
        if self.transport.is_closing():
            return
        SILENT[self] = self.loop.call_later(HEADER_SECONDS, self.give_up)
        if len(SILENT) > SILENT_CONNECTIONS:
            next(iter(SILENT)).give_up()

    def end_silence(self) -> None:
        """End the time limit: a request has arrived, or the connection is closed."""
        if timer := SILENT.pop(self, None):
            timer.cancel()

    def give_up(self) -> None:
        """Close a connection that sends nothing."""
        self.end_silence()
        self.transport.close()
