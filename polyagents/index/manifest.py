"""The manifest of a candidate store's folder, and a check that its files are unchanged."""

import contextlib
import itertools
import json
import os
import re
import shutil
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from safetensors import SafetensorError

from polyagents.errors import InputError
from polyagents.files.atomic import TEMPORARY, write_text
from polyagents.files.json_files import fields_of_json, fits, read_json
from polyagents.files.locks import exclusive_folder
from polyagents.files.own_folder import LOCK
from polyagents.index.filters import KINDS, NAME
from polyagents.index.shard import Shard
from polyagents.index.stored_vectors import STORED_AS

FORMAT = "polyagents-candidates-1"
MANIFEST = "manifest.json"
VERIFIED = "verified.json"
# What a store may remove from its folder; anything else there is not ours.
SHARD_NAME = r"\d{6}-[0-9a-f]{16}\.safetensors"
UNFINISHED = rf"({SHARD_NAME}|[a-z]+-[0-9a-f]{{16}}\.faiss|(manifest|shortlist|verified)\.json){TEMPORARY}"
OURS = re.compile(f"{SHARD_NAME}|{UNFINISHED}")


def is_index(folder: str) -> bool:
    """Tell whether a folder is a store, damaged or not, or the rest of a killed build."""
    try:
        found = read_json(os.path.join(folder, MANIFEST))
    except (OSError, ValueError):
        found = None
    names = set(os.listdir(folder)) - {LOCK, VERIFIED}
    says_so = isinstance(found, dict) and found.get("format") == FORMAT
    return says_so or any(re.fullmatch(SHARD_NAME, name) for name in names) or all(map(OURS.fullmatch, names))


def index_folder(folder: str, flag: str = "--index-dir") -> contextlib.AbstractContextManager[None]:
    """Lock the folder of a store, as `exclusive_folder` does; it is created if it is missing."""
    return exclusive_folder(folder, "index build", flag, is_index)


@dataclass(frozen=True)
class Manifest:
    """The contents of a store.

    Attributes:
        model: the fingerprint of all that determines the vectors but the texts.
        source: SHA-256 of the candidates file; None once candidates were added or deleted.
        stored_as: bf16, fp32 or int8.
        shards: name and number of candidates of each.
        deleted: indices of deleted candidates, ascending.
        generation: how often the folder's manifest was written before and with this one; 0 in 0.1.0's.
        fields: name and kind of each declared field; None for plain lines, which have no ids either.
    """

    model: str
    source: str | None
    stored_as: str
    shards: list[tuple[str, int]]
    deleted: list[int] = field(default_factory=list)
    format: str = FORMAT
    generation: int = 0
    fields: dict[str, str] | None = None

    @classmethod
    def read(cls, folder: str) -> "Manifest | None":
        """Read a folder's manifest; None if there is none, or a damaged one.

        Raises:
            InputError: it may not be read, or another version of polyagents wrote it.
        """
        path = os.path.join(folder, MANIFEST)
        try:
            found = read_json(path)
            refuse_other_format(path, found)
            manifest = fields_of_json(found, cls)
            return replace(manifest, shards=[(name, count) for name, count in manifest.shards]).checked()
        except InputError:
            raise
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return None
        except OSError as error:
            raise InputError(
                f"{path} cannot be read ({error.strerror}); let this user read its folder's files, or give another."
            ) from error

    @staticmethod
    def written(folder: str) -> tuple[int, int] | None:
        """Return another value each time that the manifest is replaced; None if there is none."""
        try:
            found = os.stat(os.path.join(folder, MANIFEST))
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns

    def checked(self) -> "Manifest | None":
        """Return the manifest if it names shards of its folder, each once, and candidates in them; otherwise None."""
        names, counts = [name for name, _ in self.shards], [count for _, count in self.shards]
        named = all(re.fullmatch(SHARD_NAME, name) for name in names) and len({*names}) == len(names) > 0
        gone = [-1, *self.deleted, sum(counts)]
        ordered = all(one < other for one, other in itertools.pairwise(gone))
        some = len(self.deleted) < sum(counts)
        known = all(NAME.fullmatch(name) and kind in KINDS for name, kind in (self.fields or {}).items())
        fine = known and self.format == FORMAT and self.stored_as in STORED_AS and min(counts, default=0) > 0
        return self if named and ordered and some and fine else None

    def commit(self, folder: str) -> None:
        """Replace the folder's manifest atomically by the next generation; shards that it does not name are removed."""
        # The new shards have just been written or read whole: no need to read them again.
        names = [name for name, _ in self.shards]
        remember(folder, names)
        before = Manifest.read(folder)
        generation = 1 + (0 if before is None else before.generation)
        # Without fields as before there were any, so that earlier versions read the index of plain lines.
        known = {name: value for name, value in asdict(self).items() if name != "fields" or value is not None}
        write_text(os.path.join(folder, MANIFEST), json.dumps(known | {"generation": generation}))
        for name in set(os.listdir(folder)) - set(names):
            path = os.path.join(folder, name)
            if OURS.fullmatch(name) and os.path.isdir(path):  # an unfinished shard of a machine that was lost
                shutil.rmtree(path, ignore_errors=True)
            elif OURS.fullmatch(name):
                with contextlib.suppress(FileNotFoundError):  # a reader's `verified.json` that is finished by now
                    os.remove(path)

    def open_shards(self, folder: str) -> list[Shard]:
        """Map all shards into memory; an InputError says if a shard is missing, truncated or changed."""
        shards = []
        for name, count in self.shards:
            path = os.path.join(folder, name)
            try:
                shard = Shard(path)
            except FileNotFoundError as error:
                raise damaged_shard(path, "is missing") from error
            except (OSError, SafetensorError) as error:
                raise damaged_shard(path, "is truncated or unreadable") from error
            if len(shard) != count:
                raise damaged_shard(path, f"holds {len(shard)} candidates, not {count}")
            shards.append(shard)
            if (shard.columns and shard.columns.fields) != self.fields:
                raise damaged_shard(path, "has other fields than the index")
            if shard.columns is not None and self.fields is not None:
                shard.columns.fields = self.fields  # in the order in which they were declared
            if shard.form != (self.stored_as, shards[0].form[1]):
                raise damaged_shard(
                    path, f"holds vectors of another form than {self.stored_as} of width {shards[0].form[1]}"
                )
        check_unchanged(folder, shards)
        return shards


def refuse_other_format(path: str, found: Any) -> None:
    """Refuse, with an InputError, the manifest of another version: a build would replace an index that is whole."""
    name = found.get("format") if isinstance(found, dict) else None
    if isinstance(name, str) and name != FORMAT and re.fullmatch(r"polyagents-candidates-\d+", name):
        raise InputError(
            f"{path} is in the format {name}, and this version of polyagents reads {FORMAT}; use the "
            "version that wrote it, or another folder; one that a command made by itself, M.NAME.index, may be deleted."
        )


def damaged_shard(path: str, what: str) -> InputError:
    """Build the error for a shard that cannot be used; `what` follows its path."""
    return InputError(
        f"{path} {what}; run polyagents index build with the same candidates file to rebuild that part (if candidates "
        f"were added or deleted since, build into another folder, or restore the file from a backup)."
    )


def check_unchanged(folder: str, shards: Iterable[Shard]) -> None:
    """Refuse, with an InputError, shards that are missing or not as they were written.

    Reading all of a large store takes minutes. So the size and time of change of a file that was read completely once
    are remembered, as git does for its working tree, and it is read again only when these differ.
    """
    known = verified(folder)
    unknown = []
    for shard in shards:
        try:
            if known.get(shard.name) != stamp(shard.path):
                unknown.append(shard)
        except OSError as error:
            raise damaged_shard(shard.path, "is missing") from error
    for shard in unknown:
        if not shard.is_whole():
            raise damaged_shard(shard.path, "was changed or damaged after it was written")
    if unknown:
        # The folder may not be written, or a builder has replaced them: they are read again next time.
        with contextlib.suppress(InputError, OSError):
            remember(folder, [shard.name for shard in shards])


def verified(folder: str) -> dict[str, list[int]]:
    """Return the size and time of change of each file that was read completely, as they were then."""
    try:
        known: Any = read_json(os.path.join(folder, VERIFIED))
    except (OSError, ValueError):
        return {}
    return known if fits(known, dict[str, list[int]]) else {}


def remember(folder: str, names: Iterable[str]) -> None:
    """Record that these shards are complete; an InputError says if the folder may not be written."""
    stamps = {name: stamp(os.path.join(folder, name)) for name in names}
    write_text(os.path.join(folder, VERIFIED), json.dumps(stamps))


def stamp(path: str) -> list[int]:
    """Return size in bytes and time of change in nanoseconds."""
    found = os.stat(path)
    return [found.st_size, found.st_mtime_ns]
