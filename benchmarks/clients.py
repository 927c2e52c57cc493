"""Clients of a server: threads that ask again and again until they are told that it is over."""

import threading
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

Self = TypeVar("Self", bound="Clients")


class Clients:
    """Threads that each call a function while this context is active; its end sets `over`, and waits for them.

    Args:
        work: returns soon after `over` is set.
        arguments: of each thread.
    """

    def __init__(self, work: Callable[..., None], arguments: Iterable[tuple[Any, ...]]):
        self.over = threading.Event()
        self.threads = [threading.Thread(target=work, args=one) for one in arguments]

    def __enter__(self: Self) -> Self:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        for thread in self.threads:
            thread.join()
