"""HTTP connections that cannot block others: one whose client neither sends nor reads is closed, the oldest first."""

import asyncio
from typing import Any

from h11 import DONE
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol

from polyagents.serving.limits import HEADER_SECONDS, IDLE_CONNECTIONS, PIPELINED, UNREAD_SECONDS

IDLE: "dict[PatientProtocol, asyncio.TimerHandle]" = {}  # of all connections of this process, oldest first


class OneAtATime(FlowControl):
    """uvicorn's flow control, which would read on while a request is being answered, to notice that its client goes.

    If a further request has come, which waits, it `holds`: nothing more is read.
    """

    holds = False

    def resume_reading(self) -> None:
        """Read on, unless enough has been read."""
        if not self.holds:
            super().resume_reading()


class PatientProtocol(H11Protocol):
    """uvicorn's protocol with limits; the original waits forever for a client that does not send, or does not read.

    A connection is idle from its beginning, and from the end of each answer, until all headers of its next request have
    arrived; it is closed after HEADER_SECONDS. It is idle, too, while an answer waits for a client that does not read;
    it is closed if nothing more is read of it for UNREAD_SECONDS. If there are more than IDLE_CONNECTIONS, the oldest
    is closed at once, so a client that opens thousands of them closes its own, and everybody else is served.

    One request is answered at a time: the next is looked at once the answer to the last has been read, so the memory
    that a connection takes is one answer's. After PIPELINED that came too early in a row, the connection is
    closed: no usual client sends even one, and as many more would keep the server busy.

    Attributes:
        answered: the request that was answered last.
        unread: bytes of answers that wait for the client, when its time limit began; 0 if it is to send.
        pipelined: how many requests in a row came before the answer to the one before them.
    """

    flow: OneAtATime
    answered: Any = None
    unread = pipelined = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """asyncio: somebody has opened a connection."""
        super().connection_made(transport)
        self.flow = OneAtATime(transport)
        transport.set_write_buffer_limits(0)  # pause_writing is called for the first byte that has to wait
        self.begin_idling()

    def connection_lost(self, exc: Exception | None) -> None:
        """asyncio: the connection is closed."""
        self.end_idling()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """H11Protocol: process the received data."""
        super().handle_events()
        self.flow.holds = self.flow.read_paused and self.conn.their_state is DONE and self.conn.trailing_data[0] != b""
        if self.cycle is not None and self.cycle is not self.answered and not self.unread:
            self.end_idling()

    def _unsupported_upgrade_warning(self) -> None:
        """H11Protocol: a client offers another protocol, as Java's does with each connection; HTTP/1.1 goes on.

        The original writes to the log that a library should be installed, which would not change anything.
        """

    def pause_writing(self) -> None:
        """asyncio: the client does not read as fast as it is answered."""
        super().pause_writing()
        self.begin_idling()

    def resume_writing(self) -> None:
        """asyncio: the client has read everything."""
        super().resume_writing()
        self.end_idling()
        if self.cycle is not None and self.cycle is self.answered:
            self.next_request()

    def on_response_complete(self) -> None:
        """H11Protocol: an answer is written."""
        self.answered = self.cycle
        if not self.flow.write_paused:
            self.next_request()

    def next_request(self) -> None:
        """Wait for the next request, or handle it if it has already arrived."""
        self.pipelined = self.pipelined + 1 if self.flow.holds else 0
        if self.pipelined > PIPELINED:
            self.close()
            return
        self.begin_idling()
        self.flow.holds = False
        super().on_response_complete()

    def begin_idling(self) -> None:
        """Start the time limit for the client, which is to read or to send something."""
        self.end_idling()
        self.unread = self.transport.get_write_buffer_size()
        if self.transport.is_closing() and not self.unread:
            return
        self.limit()
        if len(IDLE) > IDLE_CONNECTIONS:
            next(iter(IDLE)).close()

    def limit(self) -> None:
        """Set the timer, without a change to the order of connections."""
        IDLE[self] = self.loop.call_later(UNREAD_SECONDS if self.unread else HEADER_SECONDS, self.check)

    def end_idling(self) -> None:
        """End the time limit: the client has sent or read what it was to, or the connection is closed."""
        self.unread = 0
        if timer := IDLE.pop(self, None):
            timer.cancel()

    def check(self) -> None:
        """Close the connection if its client has done nothing, and wait on while it reads."""
        waits = self.transport.get_write_buffer_size()
        if not 0 < waits < self.unread:
            self.close()
            return
        self.unread = waits
        self.limit()

    def close(self) -> None:
        """Close the connection, whatever waits to be read."""
        self.end_idling()
        self.transport.abort()
