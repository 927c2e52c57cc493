"""A thread that makes one call after the other, whatever they raise."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class WorkerThread:
    """A separate thread for an event loop, which waits for its results."""

    def __init__(self, name: str):
        self.pool = ThreadPoolExecutor(1, name)

    def do(
        self, call: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> "asyncio.Future[Result]":
        """Call something in the thread, after the calls that it was given before."""
        return asyncio.get_running_loop().run_in_executor(self.pool, lambda: contained(call, *args, **kwargs))

    def end(self) -> None:
        """Accept no more calls."""
        self.pool.shutdown(wait=False, cancel_futures=True)


def contained(call: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
    """Call something, and turn every other exception into an ordinary error.

    asyncio never delivers a StopIteration of a thread, takes its CancelledError as meant for whoever waits, and ends
    the event loop at SystemExit and KeyboardInterrupt; a panic in Rust passes `except Exception`.
    """
    try:
        return call(*args, **kwargs)
    except BaseException as error:
        if isinstance(error, Exception) and not isinstance(error, StopIteration):
            raise
        raise RuntimeError(f"{type(error).__name__}: {error}") from error
