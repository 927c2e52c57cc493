"""Portions of a source: files that are read together, and what a killed build finds of them later."""

import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass

from polyagents.errors import InputError
from polyagents.files.atomic import write_text
from polyagents.files.hashing import text_key, utf8
from polyagents.files.json_files import read_fields

from ..streaming.runs import Runs
from ..streaming.source import Source
from .comments import Comment
from .pair import Pair, line_of
from .source_files import File, records

FORMAT = 1  # of the data and of the rules by which they are made
PORTION_BYTES = 64_000_000  # bytes of files, or one file: the dumps have one file per month


@dataclass(frozen=True)
class Portion:
    """Files that were read.

    Attributes:
        counts: what became of their lines.
        sha256: the checksum of each file's bytes, by its name.
        comments: names of the runs of comments, in the order of their groups.
        pairs: names of the runs of pairs.
        malformed: the first line that could not be read; "" if there was none.
    """

    counts: dict[str, int]
    sha256: dict[str, str]
    comments: list[str]
    pairs: list[str]
    malformed: str


def portions_of(files: Sequence[File]) -> Iterator[list[File]]:
    """Yield the files in order, small ones together."""
    found: list[File] = []
    size = 0
    for file in files:
        found.append(file)
        size += os.path.getsize(file.path)
        if size >= PORTION_BYTES:
            yield found
            found, size = [], 0
    if found:
        yield found


def stamp(files: Sequence[File]) -> str:
    """Return a key for a source that is too large to be read each time: names, sizes, times of change."""
    known = ((file.name, os.stat(file.path)) for file in files)
    found = [(name, status.st_size, status.st_mtime_ns) for name, status in known]
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()


def read_portion(files: list[File], folder: str, context_lines: int, on_read: Callable[[int], None]) -> Portion:
    """Read files, or find what an earlier build has read of them.

    Raises:
        InputError: a file cannot be used, or is damaged.
    """
    name = text_key(utf8(f"{FORMAT} {context_lines} {stamp(files)}")).hex()
    marker = os.path.join(folder, f"{name}.json")
    finished = read_marker(marker)
    if finished is None:
        finished = _read(files, os.path.join(folder, name), context_lines, on_read)
        write_text(marker, json.dumps(asdict(finished)))
    else:
        on_read(sum(os.path.getsize(file.path) for file in files))
    return finished


def read_marker(path: str) -> Portion | None:
    """Read the marker of a finished portion; None if there is none."""
    try:
        return read_fields(path, Portion)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise InputError(f"{path} is damaged; delete the folder {os.path.dirname(path)} and build again.") from error


def _read(files: list[File], prefix: str, context_lines: int, on_read: Callable[[int], None]) -> Portion:
    counts, sha256, malformed = Counter[str](), dict[str, str](), ""
    comments, pairs = Runs(f"{prefix}-comments"), Runs(f"{prefix}-pairs")
    for file in files:
        source, read = Source([file.path]), 0
        for record, number in records(source, file, context_lines):
            if isinstance(record, Comment):
                comments.add(line_of_comment(record))
            elif isinstance(record, Pair):
                pairs.add(line_of(record))
            elif record == "malformed_lines" and not malformed:
                malformed = f"{file.path}, line {number:,}"
            counts[name_of(record)] += 1
            if source.hashed != read:
                on_read(source.hashed - read)
                read = source.hashed
        on_read(source.hashed - read)
        sha256[file.name] = source.sha256
    comments.write()
    pairs.write()
    return Portion(dict(counts), sha256, comments.names, pairs.names, malformed)


def name_of(record: Comment | Pair | str) -> str:
    """Return the name under which a record is counted."""
    if isinstance(record, str):
        return record
    return "comments" if isinstance(record, Comment) else "pairs"


def line_of_comment(comment: Comment) -> bytes:
    """Return the key of a comment's group, a tab, and the comment as JSON."""
    fields = json.dumps(comment, ensure_ascii=False)
    return f"{text_key(utf8(comment.group)).hex()}\t".encode() + utf8(fields) + b"\n"


def comment_in(line: bytes) -> Comment:
    """Return the comment of such a line."""
    return Comment(*json.loads(line.partition(b"\t")[2]))
