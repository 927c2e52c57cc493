"""Locks between processes; the system releases a killed process's locks."""

import contextlib
import os
import weakref
from collections.abc import Callable, Iterator

import filelock

from polyagents.console import say
from polyagents.errors import InputError
from polyagents.files.json_files import read_json
from polyagents.files.own_folder import LOCK, refuse_foreign, unwritable

OWN_FIELDS = {".opt": "model", ".trainstats": "total_epochs"}  # in each of such files, ours and ParlAI's
PATIENCE = 6  # seconds: the helpers of a killed training notice within five that it has gone
# The locks of this process, by absolute path.
LOCKS: "weakref.WeakValueDictionary[str, ModelLock]" = weakref.WeakValueDictionary()


@contextlib.contextmanager
def exclusive_folder(folder: str, kind: str, flag: str, is_own: Callable[[str], bool]) -> Iterator[None]:
    """Lock a folder for its only builder until the end of the `with`; wait for another one to end.

    Args:
        folder: created if it is missing.
        kind: as for `refuse_foreign`, as are `flag` and `is_own`.

    Raises:
        InputError: the folder is another's, or may not be written.
    """
    refuse_foreign(folder, kind, flag, is_own)
    try:
        os.makedirs(folder, exist_ok=True)
        lock = lock_file(os.path.join(folder, LOCK), f"{folder} is being built")
    except OSError as error:
        raise unwritable(folder, flag, error) from error
    with lock:
        yield


def lock_file(path: str, busy: str) -> contextlib.AbstractContextManager[filelock.BaseFileLock]:
    """Lock a file, in a folder that exists, until the end of the `with`.

    Args:
        busy: what another process that has the lock is doing; said while this one waits.

    Raises:
        OSError: the file cannot be written.
    """
    lock = filelock.FileLock(path)
    try:
        return lock.acquire(timeout=0)
    except filelock.Timeout:
        say(f"{busy} by another process; waiting for it to end.")
        return lock.acquire()


class ModelLock:
    """A lock on a model file for the process that trains it, until the object is deleted or the process ends.

    It is a file next to the model, `.M.lock`, which is removed together with the object.
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
        weakref.finalize(self, release, lock, os.getpid())


def lock_model(file: str) -> ModelLock | None:
    """Lock a model file for training; return None if its folder is missing or may not be written.

    Raises:
        InputError: another process trains it, or training would overwrite another's file next to it.
    """
    file = os.path.abspath(file)
    for part, field in OWN_FIELDS.items():
        if os.path.lexists(f"{file}{part}"):
            try:
                found = read_json(f"{file}{part}")
            except (OSError, ValueError):
                found = None
            if not isinstance(found, dict) or field not in found:
                raise InputError(
                    f"{file}{part} is not of a model, and training would overwrite it; give another --model-file."
                )
    if not os.path.isdir(os.path.dirname(file)):  # the lock would create it
        return None
    try:
        return LOCKS.get(file) or LOCKS.setdefault(file, ModelLock(file))
    except (OSError, NotImplementedError):  # NotImplementedError: the disk supports no locks
        return None


def release(lock: filelock.BaseFileLock, process: int) -> None:
    """Remove a lock's file, then release the lock, unless this is a child forked by the `process` that acquired it."""
    if os.getpid() == process:
        with contextlib.suppress(OSError):
            os.remove(lock.lock_file)
        lock.release()
