"""Locks between processes; the system frees those of a killed one."""

import contextlib
import os
import weakref
from collections.abc import Iterator

import filelock

from polyagents.console import say
from polyagents.errors import InputError

PATIENCE = 6  # seconds: the helpers of a killed training notice within five that it has gone
HELD: "weakref.WeakValueDictionary[str, HeldModel]" = weakref.WeakValueDictionary()  # of this process, by absolute path


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


class HeldModel:
    """A model file that this process alone trains, as long as the object lives or until the process ends.

    The lock is a file beside it, `.M.lock`, which goes with the object.
    """

    def __init__(self, file: str):
        path = os.path.join(os.path.dirname(file), f".{os.path.basename(file)}.lock")
        lock = filelock.FileLock(path, thread_local=False)
        try:
            lock.acquire(timeout=PATIENCE)
        except filelock.Timeout as error:
            raise InputError(
                f"{file} is being trained by another process; wait for it to end, or give another --model-file."
            ) from error
        weakref.finalize(self, let_go, lock, os.getpid())


def held_model(file: str) -> HeldModel | None:
    """Be the only process that trains a model file; None where its folder is missing, or not ours to write to.

    Raises:
        InputError: another process trains it.
    """
    file = os.path.abspath(file)
    if not os.path.isdir(os.path.dirname(file)):  # the lock would make it
        return None
    try:
        return HELD.get(file) or HELD.setdefault(file, HeldModel(file))
    except (OSError, NotImplementedError):  # the second of disks that have no locks
        return None


def let_go(lock: filelock.BaseFileLock, process: int) -> None:
    """Remove a lock's file, then release the lock; not in a child that the process has forked."""
    if os.getpid() == process:
        with contextlib.suppress(OSError):
            os.remove(lock.lock_file)
        lock.release()
