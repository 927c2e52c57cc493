"""Files and folders that are written whole or not at all."""

import contextlib
import errno
import os
import secrets
import shutil
from collections.abc import Iterator

from safetensors import SafetensorError

from polyagents.errors import InputError


@contextlib.contextmanager
def atomic_write(path: str):  # type: ignore[no-untyped-def]
    """A temporary name to write to, that becomes `path` once all of it is on the disk."""
    temporary = f"{path}.{secrets.token_hex(4)}.tmp"
    try:
        yield temporary
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~umask())  # safetensors writes for the owner alone
        os.replace(temporary, path)
    except (OSError, SafetensorError) as error:
        full = getattr(error, "errno", None) == errno.ENOSPC or "No space left" in str(error)
        reason = "the disk is full" if full else getattr(error, "strerror", None) or str(error)
        raise InputError(
            f"{path} cannot be written ({reason}); what was finished before is kept, and the same command goes on from "
            f"there."
        ) from error
    finally:
        with contextlib.suppress(OSError):
            os.remove(temporary)


@contextlib.contextmanager
def atomic_folder(folder: str) -> Iterator[str]:
    """A temporary folder to write to, whose files go into `folder` once all are there; the weights come last."""
    temporary = f"{os.path.abspath(folder)}.tmp"  # also what a killed process has left
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        yield temporary
        if not os.path.exists(folder):
            os.rename(temporary, folder)
            return
        for name in sorted(os.listdir(temporary), key=lambda name: name.startswith("model")):
            os.replace(os.path.join(temporary, name), os.path.join(folder, name))
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def write_text(path: str, text: str) -> None:
    """Write a small file, whole or not at all."""
    with atomic_write(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        file.write(text)


def umask() -> int:
    """The rights that this process withholds from its files; asking for them means setting them."""
    value = os.umask(0)
    os.umask(value)
    return value
