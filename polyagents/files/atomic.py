"""Atomic writes: files and folders that are written completely or not at all."""

import contextlib
import errno
import hashlib
import os
import re
import secrets
import shutil
import socket
from collections.abc import Callable, Iterator

from safetensors import SafetensorError

from polyagents.errors import InputError
from polyagents.files.own_folder import refuse_foreign

MACHINE = hashlib.blake2b(socket.gethostname().encode(), digest_size=3).hexdigest()
# What to change if a file cannot be written.
FOLDER = "give a folder that is there and that you may write to"
WAYS = dict.fromkeys((errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.EROFS), FOLDER)
WAYS |= dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "free some space, and try again")
WAYS[errno.ENAMETOOLONG] = "give a shorter name"
TEMPORARY = r"\.([0-9a-f]{6}-\d+-)?[0-9a-f]{8}\.tmp"  # the end of an unfinished file's name; shorter in 0.1.0


def temporary_name(path: str) -> str:
    """Return a name next to `path` for an unfinished file; it says which process writes, and no two are the same."""
    return f"{path}.{MACHINE}-{os.getpid()}-{secrets.token_hex(4)}.tmp"


def clear_leftovers(path: str) -> None:
    """Remove unfinished files of `path`, or of longer names (`M.opt`), that killed processes of this machine left."""
    folder, name = os.path.split(os.path.abspath(path))
    if not os.path.isdir(folder):
        return
    unfinished = re.compile(rf"{re.escape(name)}(?:\.[\w.]+)?\.{MACHINE}-(\d+)-[0-9a-f]{{8}}\.tmp")
    for found in os.listdir(folder):
        whose = unfinished.fullmatch(found)
        if whose and not is_running(int(whose.group(1))):
            left = os.path.join(folder, found)
            with contextlib.suppress(OSError):  # another process may have removed it
                shutil.rmtree(left) if os.path.isdir(left) else os.remove(left)


def is_running(process: int) -> bool:
    """Tell whether a process of this machine may still be running."""
    if os.name == "nt":  # where asking would end the process
        return True
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        pass  # a process of another user
    return True


def refuse_no_file(path: str) -> None:
    """Refuse a name that no file can have or replace, before there is anything to write.

    Raises:
        InputError: it is empty, or names a folder, a device or a pipe.
    """
    # Renaming over /dev/null would remove it for every process.
    if not os.path.basename(path) or (os.path.exists(path) and not os.path.isfile(path)):
        shown = path or "An empty name"
        raise InputError(f"{shown} is not a file that can be replaced (a folder, device or pipe); give another name.")


@contextlib.contextmanager
def atomic_write(path: str):  # type: ignore[no-untyped-def]
    """Give a temporary name to write to, which replaces `path` once all of it is on the disk.

    Raises:
        InputError: the disk is full, the folder may not be written, or `path` is not a file.
    """
    refuse_no_file(path)
    temporary = temporary_name(path)
    try:
        clear_leftovers(path)
        yield temporary
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~umask())  # safetensors lets only the owner read its files
        os.replace(temporary, path)
        sync_folder(os.path.dirname(os.path.abspath(path)))
    except (OSError, SafetensorError) as error:
        code = re.search(r"code: (\d+)", str(error))  # of safetensors, whose errors have no number
        number = int(code[1]) if code else getattr(error, "errno", None)
        reason = "the disk is full" if number == errno.ENOSPC else getattr(error, "strerror", None) or str(error)
        change = WAYS.get(number or 0, "try again")
        raise InputError(f"{path} cannot be written ({reason}); finished work is kept: {change}.") from error
    finally:
        with contextlib.suppress(OSError):
            os.remove(temporary)


@contextlib.contextmanager
def atomic_folder(folder: str, kind: str, is_own: Callable[[str], bool] = lambda folder: False) -> Iterator[str]:
    """Give a temporary folder whose files are moved to `folder` once all are there, the weights last.

    Args:
        folder: may be missing.
        kind: as for `refuse_foreign`, as is `is_own`.

    Raises:
        InputError: the folder is another's, or cannot be written.
    """
    refuse_foreign(folder, kind, "folder", is_own)
    temporary = temporary_name(os.path.abspath(folder))
    try:
        clear_leftovers(folder)
        yield temporary
        if not os.path.exists(folder):
            os.rename(temporary, folder)
            return
        for name in sorted(os.listdir(temporary), key=lambda name: name.startswith("model")):
            os.replace(os.path.join(temporary, name), os.path.join(folder, name))
    except InputError as error:  # of a file in it
        raise InputError(str(error).replace(temporary, folder)) from error
    except (OSError, SafetensorError) as error:
        raise unwritten(folder, error) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def unwritten(folder: str, error: Exception) -> InputError:
    """Return the error of a folder whose new files could not be written."""
    return InputError(
        f"{folder} cannot be written ({getattr(error, 'strerror', None) or error}); the earlier files are kept."
    )


def sync_folder(folder: str) -> None:
    """Write a folder's names to the disk, since a power failure could lose a name whose file is there."""
    if os.name == "nt":  # which cannot open folders
        return
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def write_text(path: str, text: str) -> None:
    """Write a small file atomically, as UTF-8; raises as `atomic_write` does."""
    with atomic_write(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        file.write(text)


def umask() -> int:
    """Return the rights that this process withholds from its files; reading them means setting them for a moment."""
    os.umask(value := os.umask(0))
    return value
