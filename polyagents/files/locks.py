"""Locks between processes; the system frees those of a killed one."""

import contextlib
import os
from collections.abc import Iterator

import filelock

from polyagents.console import say
from polyagents.errors import InputError


@contextlib.contextmanager
def exclusive_folder(folder: str, flag: str = "--index-dir") -> Iterator[None]:
    """Be the only builder in a folder; wait for another one to end. The system frees the lock of a killed process."""
    try:
        os.makedirs(folder, exist_ok=True)
        lock = lock_file(os.path.join(folder, ".lock"), f"{folder} is being built")
    except OSError as error:
        raise InputError(
            f"{folder} cannot be written to ({error.strerror}); give a folder of your own with {flag}."
        ) from error
    with lock:
        yield


def lock_file(path: str, busy: str) -> contextlib.AbstractContextManager[filelock.BaseFileLock]:
    """A lock file that nobody else holds from now on; it is released at the end of its `with`.

    Args:
        path: of the file, in a folder that exists.
        busy: what another process that holds it is doing, for whoever waits.

    Raises:
        OSError: the file cannot be written.
    """
    lock = filelock.FileLock(path)
    try:
        return lock.acquire(timeout=0)
    except filelock.Timeout:
        say(f"{busy} by another process; waiting for it to end.")
        return lock.acquire()
