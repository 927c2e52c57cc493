"""The finished part of a build: files of examples, each of which says where in the source the next one starts.

A part is a line of JSON (`Header`) and then examples in the order of their keys (`example.line_of`). A killed build
finds it again, and so does one after the rest of a source has been downloaded, if the source still begins with the same
bytes.
"""

import contextlib
import itertools
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from polyagents.console import Bar
from polyagents.errors import InputError
from polyagents.files.atomic import TEMPORARY, atomic_write
from polyagents.files.json_files import parse_json

from ..streaming.source import Place, Source

FOLDER = "parts"  # a folder next to the data, removed once they are complete
PART_BYTES = 64_000_000  # bytes of a part, which a kill may lose; 5 million articles make 300 files
PART = re.compile(rf"\d{{6}}\.part({TEMPORARY})?")
QUIET_BYTES = 1_000_000_000  # hashed in a second or two; a longer source gets a progress bar


@dataclass(frozen=True)
class Header:
    """The first line of a part.

    Attributes:
        options: everything except the source that decides its content.
        next: the position in the source at which the next part starts.
        read: bytes of the source that were read for this part and those before.
        sha256: the checksum of these bytes.
        counts: what became of the pages of this part.
        is_last: whether the source has ended.
    """

    options: dict[str, Any]
    next: Place
    read: int
    sha256: str
    counts: dict[str, int]
    is_last: bool


@dataclass(frozen=True)
class Part:
    """A finished part.

    Attributes:
        header: its first line.
    """

    path: str
    header: Header

    def lines(self) -> Iterator[bytes]:
        """Yield its examples, in the order of their keys."""
        with open(self.path, "rb") as file:
            file.readline()
            yield from file


def path_of(folder: str, number: int) -> str:
    """Return the path of a part."""
    return os.path.join(folder, f"{number:06d}.part")


def write_part(folder: str, number: int, header: Header, lines: Iterable[bytes]) -> Part:
    """Write a part atomically.

    Raises:
        InputError: the disk is full, or not ours to write to.
    """
    path = path_of(folder, number)
    with atomic_write(path) as temporary, open(temporary, "wb") as file:
        file.write(json.dumps(asdict(header)).encode() + b"\n")
        file.writelines(sorted(lines))
    return Part(path, header)


def read_part(path: str) -> Part | None:
    """Read the header of a part; None if it does not exist. Parts are never incomplete."""
    try:
        with open(path, "rb") as file:
            fields = parse_json(file.readline())
        return Part(path, Header(**fields | {"next": Place(*fields["next"])}))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise InputError(f"{path} is damaged; delete the folder {os.path.dirname(path)} and build again.") from error


def there(folder: str) -> list[Part]:
    """Return the parts of a folder, in order."""
    found = (read_part(path_of(folder, number)) for number in itertools.count())
    return [part for part in itertools.takewhile(lambda part: part is not None, found) if part is not None]


def finished_parts(folder: str, source: Source, options: dict[str, Any]) -> list[Part]:
    """Return the parts of earlier builds that fit the source, in order, and delete all others.

    The source's checksum is as far as these parts have read it, or farther.

    Args:
        source: the source; its checksum then covers at least what these parts have read.
    """
    found = there(folder)
    end = max((part.header.read for part in found), default=0)
    label = "Looking for what has changed"
    with Bar(total=end, unit="B", unit_scale=True, desc=label, disable=end < QUIET_BYTES) as bar:
        kept = list(itertools.takewhile(lambda part: fits(part.header, source, options, bar), found))
    names = {os.path.basename(part.path) for part in kept}
    for name in set(os.listdir(folder)) - names:
        os.remove(os.path.join(folder, name))
    return kept


def fits(header: Header, source: Source, options: dict[str, Any], bar: Bar) -> bool:
    """Return whether a part was made with these options from the beginning of the source."""
    if header.options != options or not source.hashed <= header.read <= source.size:
        return False
    for count in source.hash_up_to(header.read):
        bar.update(count)
    return source.sha256 == header.sha256


def all_counts(parts: Iterable[Part]) -> Counter[str]:
    """Return what became of all pages."""
    return sum((Counter(part.header.counts) for part in parts), Counter[str]())


def delete_parts(folder: str) -> None:
    """Delete the parts, whose content is now in the data."""
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(folder):
            os.remove(os.path.join(folder, name))
        os.rmdir(folder)
