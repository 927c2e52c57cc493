"""A limit to the time of one page: brackets that nobody closed keep the parser busy for a minute, or for hours."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any, NoReturn

# Of the processor. Ordinary markup takes a second a megabyte (AMD EPYC), and MediaWiki stores no page over two.
SECONDS = 10.0
AGAIN = 0.1  # seconds to the next try: Python drops what is raised while an object ends, as nodes of the parser do


class TooSlow(Exception):
    """A page has taken longer than it may."""


@contextlib.contextmanager
def time_limit() -> Iterator[None]:
    """Stop what is done inside after SECONDS of this process's own work, however busy the machine is.

    That takes a signal, which only the main thread gets, and Windows does not have: there is no limit elsewhere.

    Raises:
        TooSlow: it was stopped.
    """
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS, AGAIN)
    try:
        yield
    finally:
        end(before)


def end(before: Any) -> None:
    """Take the limit away, whenever its signal may come once more; `before` is what the signal did."""
    while True:
        try:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            signal.signal(signal.SIGVTALRM, before)
            return
        except TooSlow:
            continue


def stop(number: int, frame: object) -> NoReturn:
    """The signal has come."""
    raise TooSlow
