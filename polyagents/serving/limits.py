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
QUESTIONS = 128  # about one state; LiteLLM allows as many
DOCUMENT_CHARACTERS = 20_000  # of one to rerank or encode: what others split texts into is longer than a reply
FILTERED, VALUES = 32, 1_000  # fields of a filter, and values of one of them
TOP_K = 100
REQUESTS_PER_MINUTE = 600
TEXTS_PER_MINUTE = 60_000  # a hundred of each of these requests
WAITING = 256  # requests that may wait for the model
TOGETHER = 32  # that are ranked at once
PIECE_CHUNKS = 2  # of the encoder, some tenths of a second; then it is another client's turn
STUCK_SECONDS = 300.0  # of one piece, after which a probe says that the server answers nobody
CONNECTIONS = 1_000
IDLE_CONNECTIONS = 500  # whose client is to send or to read something; the oldest is closed if one more comes
HEADER_SECONDS = 10.0  # in which the headers of a request must have arrived
PIPELINED = 16  # requests in a row that came before the answer to the one before them; one more is not answered
UNREAD_SECONDS = 10.0  # in which some of an answer must have been read
CLIENTS = 10_000  # that are kept in mind before idle ones are forgotten


class Rate:
    """What each client may use per minute: a minute's worth at first, which refills evenly. Thread-safe."""

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic):
        self.pause, self.clock = 60 / per_minute, clock
        self.used_until: dict[str, float] = {}
        self.lock = threading.Lock()

    def wait(self, client: str, amount: int = 1) -> float:
        """Return the seconds until a client may use an amount; 0 if it may now, which counts it.

        More than a minute's worth may be used by a client that has used nothing for as long.
        """
        with self.lock:
            now, cost = self.clock(), amount * self.pause
            used = max(self.used_until.get(client, now), now)
            wait = used - now - max(60 - cost, 0)
            if wait > 1e-6:  # sums of floats
                return wait
            if len(self.used_until) >= CLIENTS:
                self.used_until = {name: until for name, until in self.used_until.items() if until > now}
            self.used_until[client] = used + cost
            return 0.0
