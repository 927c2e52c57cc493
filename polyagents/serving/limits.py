"""Limits: how much one client, and all of them together, may ask of the server."""

import threading
import time
from collections.abc import Callable

# Chosen here: far above what people and evaluation scripts send, far below what would block everybody else.
BODY_BYTES = 1_000_000
BODY_SECONDS = 10.0  # in which a body must have arrived
CONTEXT_CHARACTERS = 20_000  # all turns together; the model reads the last --text-truncate tokens of them
TURNS = 200
CANDIDATES = 1_000  # that a request brings; those that the server was started with are not limited
CANDIDATE_CHARACTERS = 2_000
DOCUMENT_CHARACTERS = 20_000  # of one to rerank or encode: what others split texts into is longer than a reply
TOP_K = 100
REQUESTS_PER_MINUTE = 600
WAITING = 256  # requests that may wait for the model
TOGETHER = 32  # that are ranked at once
CONNECTIONS = 1_000
SILENT_CONNECTIONS = 500  # that have sent no request yet; the oldest is closed where one more comes
HEADER_SECONDS = 10.0  # in which the headers of a request must have arrived
CLIENTS = 10_000  # that are kept in mind before idle ones are forgotten


class Rate:
    """Requests per minute of each client: at first a minute's worth at once, then one at a time. Thread-safe."""

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic):
        self.pause, self.clock = 60 / per_minute, clock
        self.used_until: dict[str, float] = {}
        self.lock = threading.Lock()

    def wait(self, client: str) -> float:
        """Return the seconds until a client may ask again; 0 if it may now, which counts this request."""
        with self.lock:
            now = self.clock()
            used = max(self.used_until.get(client, now), now) + self.pause
            if used - now > 60 + self.pause / 2:  # the half: sums of floats
                return used - now - 60
            if len(self.used_until) >= CLIENTS:
                self.used_until = {name: until for name, until in self.used_until.items() if until > now}
            self.used_until[client] = used
            return 0.0
