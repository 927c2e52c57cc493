"""A time limit for one page: unclosed brackets keep the parser busy for a minute, or for hours."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any, NoReturn

# Of the processor. Ordinary markup takes a second a megabyte (AMD EPYC), and MediaWiki stores no page over two.
SECONDS = 10.0
AGAIN = 0.1  # seconds to the next try: Python drops exceptions in finalisers, such as the parser's nodes have


class TooSlow(Exception):
    """The error for a page that takes too long."""


@contextlib.contextmanager
def time_limit() -> Iterator[None]:
    """Stop the work inside after SECONDS of this process's own time, however busy the machine is.

    That needs a signal, which only the main thread receives, and Windows does not have: there is no limit elsewhere.

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
    """Remove the limit, even if its signal arrives once more; `before` is the previous handler of the signal.

    The system may have sent the signal to a thread that sleeps, which receives it when it wakes up: the previous
    handler would end the process then. Ignoring a signal discards those that are on their way.
    """
    while True:
        try:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            signal.signal(signal.SIGVTALRM, signal.SIG_IGN)
            signal.signal(signal.SIGVTALRM, before)
            return
        except TooSlow:
            continue


def stop(number: int, frame: object) -> NoReturn:
    """Handle the signal."""
    raise TooSlow
