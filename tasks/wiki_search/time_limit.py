"""A limit to the time of one page: brackets that nobody closed keep the parser busy for a minute, or for hours."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import NoReturn

SECONDS = (
    10.0  # of the processor. Ordinary markup takes 1 s a megabyte (AMD EPYC), and MediaWiki stores no page over 2 MB
)


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
    # And again, and again: Python drops what is raised where an object ends.
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS, SECONDS / 100)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def stop(number: int, frame: object) -> NoReturn:
    """The signal has come."""
    raise TooSlow
