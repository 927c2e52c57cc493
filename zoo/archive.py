"""An archive of models, from its URL to its folder: resumable, checked, and unpacked as a whole or not at all.

<datapath>/models/NAME.tgz.part           the downloaded part, with NAME.tgz.part.json, which says of which file
<datapath>/models/NAME.tgz                the whole archive, until it is unpacked; or put there by the user
<datapath>/models/FOLDER.unpacking/       becomes FOLDER when it is complete
<datapath>/models/polyagents-archives.json    SHA-256 of every archive that was unpacked
"""

import contextlib
import lzma
import os
import secrets
import shutil
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any
from urllib.parse import urlsplit

from polyagents.console import say
from polyagents.errors import InputError
from polyagents.files.hashing import file_digest
from polyagents.files.json_files import fits, read_json
from polyagents.files.locks import lock_file
from polyagents.zoo.datapath import is_built, mark_built, models_folder
from polyagents.zoo.download import download, write_json
from polyagents.zoo.models import MODELS, Archive

SUMS = "polyagents-archives.json"
# The limits of an archive of models; the published one has forty members.
MEMBERS, NAME_BYTES, LEVELS, HEADER_BYTES = 10_000, 1_000, 30, 1_000_000
LINKS_AND_FOLDERS = (tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE)
# The errors of Python's readers for a damaged archive.
DAMAGED = (
    *(tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, OSError, ValueError, OverflowError, RecursionError),
    *(AttributeError, IndexError, KeyError, TypeError),
)


class WrongArchiveError(InputError):
    """The error for an archive that cannot become right: it is removed."""


def fetch(archive: Archive, datapath: str) -> str:
    """Download and unpack an archive; processes that start together download it once.

    Returns:
        The folder that holds its content.

    Raises:
        InputError: it cannot be downloaded, or is not what it should be. The disk then holds only what a later call
            resumes.
    """
    folder = os.path.join(models_folder(datapath), archive.folder)
    if not is_built(folder, archive.version):
        try:
            models, name = os.path.split(folder)
            os.makedirs(models, exist_ok=True)
            with lock_file(os.path.join(models, f".{name}.lock"), f"{folder} is being downloaded"):
                if not is_built(folder, archive.version):
                    obtain(archive, folder)
        except OSError as error:
            raise InputError(
                f"{error.filename or os.path.dirname(folder)} cannot be read or written ({error.strerror or error}); "
                f"make room there, or give another folder with --datapath."
            ) from error
    write_missing_options(folder)
    return folder


def obtain(archive: Archive, folder: str) -> None:
    """Download, check, unpack, and move into place."""
    models = os.path.dirname(folder)
    path = os.path.join(models, os.path.basename(urlsplit(archive.url).path))  # where a user may have put it
    temporary, sums = f"{folder}.unpacking", os.path.join(models, SUMS)
    sum_key = f"{archive.url} {archive.version}"  # the address may stay the same
    expected, who_says = archive.sha256, "polyagents/zoo/models.py"
    if expected is None:
        expected, who_says = read_sums(sums).get(sum_key), sums
    if not os.path.exists(path):
        download(archive.url, path)
    try:
        found = file_digest(path)
        if expected not in (None, found):
            raise WrongArchiveError(
                f"{path} has SHA-256 {found[:12]}... where {who_says} says {str(expected)[:12]}..., so it was removed "
                f"and nothing was unpacked; run the same command again for a new download, and if it differs again, "
                f"trust neither file."
            )
        shutil.rmtree(temporary, ignore_errors=True)  # of a process that was killed
        unpack(path, temporary)
        if archive.sha256 is None:  # recorded only now: the sum of a damaged archive would refuse every good one
            write_json(sums, read_sums(sums) | {sum_key: found})
            say(
                f"SHA-256 of {archive.url}: {found}; nobody has published one, so it is kept in {sums}, and a later "
                f"download must be the same."
            )
        mark_built(temporary, archive.version)
        replace_folder(temporary, folder)
    except WrongArchiveError:
        os.remove(path)
        raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    os.remove(path)


def replace_folder(new: str, folder: str) -> None:
    """Move a complete folder to where an older one may be.

    One that ParlAI has marked as its own goes, as it does with ParlAI. Any other may hold what the user put there.
    """
    with contextlib.suppress(OSError):
        os.rmdir(folder)  # an empty one
    old = f"{folder}.old-{secrets.token_hex(2)}"
    there = os.path.lexists(folder)
    if there:
        os.rename(folder, old)
    os.rename(new, folder)
    if there and is_built(old):
        shutil.rmtree(old, ignore_errors=True)
    elif there:
        say(f"{folder} was there, but not as a finished download; it is now {old}.")


def read_sums(path: str) -> dict[str, str]:
    """Read the sums of earlier archives."""
    try:
        sums = read_json(path)
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise InputError(f"{path} is damaged: no JSON; remove it, and sums are recorded again.") from error
    if not fits(sums, dict[str, str]):
        raise InputError(f"{path} is damaged: no sums by address; remove it, and sums are recorded again.")
    known: dict[str, str] = sums
    return known


# ---- unpacking -------------------------------------------------------------------------------------------------------


def unpack(path: str, folder: str) -> None:
    """Unpack an archive into a new folder.

    Raises:
        WrongArchiveError: it is damaged, or holds more than files of its own folder; nothing is written then.
    """
    # Python before 3.10.12 and 3.11.4 has no filters. Our check comes first anyway: its sentence names the member.
    safe: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
    check_archive(path)
    say(f"Unpacking {path}.")
    os.mkdir(folder)
    with reading(path) as archive:
        archive.extractall(folder, **safe)


def check_archive(path: str) -> None:
    """Check all of an archive, and every member, before anything is written."""
    files, folders = set[PurePosixPath](), set[PurePosixPath]()
    with reading(path) as archive:
        for number, member in enumerate(archive):
            name = PurePosixPath(member.name)
            why = "is one member too many" if number >= MEMBERS else objection(member)
            if why is None and (name in files | folders if member.isfile() else name in files):
                why = "is there twice"
            if why is None and files & {*name.parents}:
                why = "is below a file"
            if why:
                raise WrongArchiveError(
                    f"{path} holds {shown(member.name)}, which {why}; it was removed and nothing was unpacked. No "
                    f"archive of models needs that: do not trust its source."
                )
            folders |= {*name.parents}
            (files if member.isfile() else folders).add(name)
        while archive.fileobj is not None and archive.fileobj.read(1 << 20):
            pass  # to the end, where gzip keeps its own checksum
    if not files:
        raise WrongArchiveError(f"{path} holds no files, so it was removed; run the same command again.")


def shown(name: str) -> str:
    """Return a member's name as an error message can show it."""
    return repr(name if len(name) <= 100 else f"{name[:97]}...")


def objection(member: tarfile.TarInfo) -> str | None:
    """Return why a member of an archive is not unpacked; None if it may be."""
    if "\0" in member.name or len(os.fsencode(member.name)) > NAME_BYTES or member.name.count("/") > LEVELS:
        return "has an invalid name"
    if max(map(len, map(os.fsencode, member.name.split("/")))) > 255:
        return "has an invalid name"
    if not 0 <= member.mtime < 2**40:
        return "has an invalid modification time"
    if member.issparse():
        return "is a file with holes"
    windows = PureWindowsPath(member.name)  # knows both kinds of slash
    if windows.anchor or PurePosixPath(member.name).is_absolute():
        return "is a path from the root of the disk"
    if ".." in windows.parts:
        return "leads out of its folder"
    if member.issym() or member.islnk():
        return "is a link"
    return None if member.isfile() or member.isdir() else "is neither file nor folder"


class Member(tarfile.TarInfo):
    """A member whose headers are read only if they are as small as a file's.

    Python's class would read gigabytes as well.
    """

    def _proc_member(self, tar: tarfile.TarFile) -> Any:  # the hook that tarfile.py names for subclasses
        if self.type not in (*tarfile.REGULAR_TYPES, *LINKS_AND_FOLDERS) and self.size > HEADER_BYTES:
            raise tarfile.ReadError("a header that is too large")
        return super()._proc_member(tar)  # type: ignore[misc]


@contextlib.contextmanager
def reading(path: str) -> Iterator[tarfile.TarFile]:
    """Open an archive; errors that show that it is damaged become one sentence."""
    try:
        with tarfile.open(path, tarinfo=Member) as archive:
            yield archive
    except InputError:
        raise
    except DAMAGED as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # an error of the disk; gzip's own errors have no number
        raise WrongArchiveError(
            f"{path} is not an archive, cut short or damaged, so it was removed and nothing was unpacked; run the same "
            f"command again for a new download."
        ) from error


# ---- options ---------------------------------------------------------------------------------------------------------


def write_missing_options(folder: str) -> None:
    """Write the published options for every model of the zoo in a folder that has no `model.opt`.

    ParlAI loads no model without them. A folder that is not writable stays as it is: loading says what is missing.
    """
    for entry in MODELS:
        file = os.path.join(os.path.dirname(folder), *entry.name.split("/"))
        if os.path.dirname(os.path.dirname(file)) != folder or not os.path.exists(file):
            continue
        if not os.path.exists(f"{file}.opt") and os.access(os.path.dirname(file), os.W_OK):
            write_json(f"{file}.opt", {"model": entry.agent, **entry.options})
