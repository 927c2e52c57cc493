"""The files of a source and their content: Reddit comments or pairs as JSON lines, ParlAI's text format, plain text.

{"id": "c0fbx", "parent_id": "t1_c0faz", "link_id": "t3_91x2k", "author": "a", "body": "It is 9."}      a comment
{"context": ["hi", "hi, how are you?"], "label": "fine"}                                                a pair
text:hi<tab>labels:hi, how are you?<tab>episode_done:True                                     ParlAI's text format
A sentence or an utterance.                                        plain text: a blank line between two documents
"""

import itertools
import os
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from polyagents.console import say
from polyagents.errors import InputError
from polyagents.files.json_files import parse_json

from ..streaming.data_manifest import is_finished
from ..streaming.source import EndsEarly, Place, Source, source_lines
from .comments import Comment, comment_of, one_line
from .pair import Pair

ENDINGS = (".jsonl", ".ndjson", ".json", ".txt")
PACKED = (".zst", ".gz", ".bz2")
TABLES = (".csv", ".tsv", ".parquet")  # whose rows are not lines of a dialogue
PARTS = "unfinished-pairs"  # a folder next to the pairs, removed once they are complete
DUMP = "RC_"  # what the names of Reddit's comment dumps begin with: RC_2016-01.zst

Record = Comment | Pair | str


class File(NamedTuple):
    """A file of a source.

    Attributes:
        path: the path of the file.
        name: its path in the source's folder; the ids of its pairs begin with it.
    """

    path: str
    name: str


def files_below(source: str) -> list[File]:
    """Return the file, or the files below a folder whose names have a known form, in the order of their names.

    Raises:
        InputError: there are none.
    """
    if not os.path.isdir(source):
        if not os.path.isfile(source):
            raise InputError(f"{source} is neither a file nor a folder.")
        if unpacked(source).endswith(TABLES):
            raise InputError(
                f"{source} is a table; read it with -t polyagents.tasks.table --table-path, or, if it is plain text, "
                f"give it a name that ends in .txt."
            )
        return [File(source, os.path.basename(source))]
    every = []
    for folder, below, names in os.walk(source):
        every += [os.path.join(folder, name) for name in names]
        below[:] = [name for name in below if not is_made_here(os.path.join(folder, name))]
    found = sorted(path for path in every if unpacked(path).endswith(ENDINGS) or is_dump(path))
    if not found:
        raise InputError(
            f"{source} holds no file {' '.join(f'*{ending}' for ending in ENDINGS)} or {DUMP}*, packed as "
            f"{' '.join(PACKED)} or not; give a folder that has some, or a file."
        )
    return [File(path, os.path.relpath(path, source)) for path in found]


def is_made_here(folder: str) -> bool:
    """Return whether a folder holds pairs, finished or not: the source may be --datapath, which has such folders."""
    return os.path.exists(os.path.join(folder, PARTS)) or is_finished(folder)


def unpacked(path: str) -> str:
    """Return a path in lower case, without a compression's suffix."""
    base, ending = os.path.splitext(path.lower())
    return base if ending in PACKED else base + ending


def is_dump(path: str) -> bool:
    """Return whether a file is named like Reddit's dumps."""
    return os.path.basename(path).startswith(DUMP)


def records(source: Source, file: File, context_lines: int) -> Iterator[tuple[Record, int]]:
    """Yield the record of each line (the name of a count if it has none), and the line's number.

    A file that was cut off ends with its last whole line, and a warning.

    Raises:
        Damaged: the file is damaged, and not only cut off.
        InputError: it is not text, or cannot be read.
    """
    number = 0
    try:
        for record, number in of_text(texts(source, file), file, context_lines):
            yield record, number
    except EndsEarly as error:
        say(f"{error}: what is before it, to line {number:,}, is used.")
        yield "files_cut_off", number


def texts(source: Source, file: File) -> Iterator[tuple[str, int]]:
    """Yield every line and its number; bytes that are not UTF-8 become U+FFFD, which is said once."""
    named = False
    for number, line in enumerate(source_lines(source, Place()), 1):
        if number == 1 and b"\0" in line.data:
            raise InputError(f"{file.path} is not text; give JSON lines, text or dumps of Reddit's comments.")
        try:
            text = line.data.decode()
        except UnicodeDecodeError:
            text = line.data.decode("utf-8", "replace")
            if not named:
                say(f"{file.path}, line {number:,}: it is not in UTF-8; what cannot be read becomes U+FFFD.")
            named = True
        yield text.removeprefix("\ufeff"), number


def of_text(numbered: Iterator[tuple[str, int]], file: File, context_lines: int) -> Iterator[tuple[Record, int]]:
    """Yield the records of lines in the format that the first non-empty line has.

    Raises:
        InputError: it is one JSON array.
    """
    first = next((line for line in numbered if line[0].strip()), None)
    if first is None:
        return
    every = itertools.chain([first], numbered)
    if is_json(first[0], file.path):
        if first[0].lstrip().startswith("["):
            raise InputError(f"{file.path} is a JSON array; give one object per line.")
        yield from of_json(every, file.name)
    elif is_parlai(first[0]):
        yield from of_parlai(every, file.name)
    else:
        yield from of_plain(every, file.name, context_lines)


def is_json(text: str, path: str) -> bool:
    """Return whether the lines of a file are JSON, by its name or by the first of them."""
    if unpacked(path).endswith((".jsonl", ".ndjson", ".json")) or is_dump(path):
        return True
    return text.startswith("{") and isinstance(parsed(text), dict)


def is_parlai(text: str) -> bool:
    """Return whether a line is in ParlAI's text format, in which fields such as an id may come before the text."""
    fields = text.split("\t")
    return len(fields) > 1 and any(field.startswith("text:") for field in fields)


def parsed(text: str) -> Any:
    """Parse a line of JSON; None if it is not JSON."""
    try:
        return parse_json(text)
    except ValueError:
        return None


def of_json(numbered: Iterable[tuple[str, int]], name: str) -> Iterator[tuple[Record, int]]:
    """Yield comments and pairs of JSON lines."""
    for text, number in numbered:
        if not text.strip():
            continue
        fields = parsed(text)
        if not isinstance(fields, dict):
            yield "malformed_lines", number
        elif "context" in fields:
            yield given_pair(fields, f"{name}:{number}"), number
        else:
            yield comment_of(fields), number


def given_pair(fields: dict[str, Any], id: str) -> Pair | str:
    """Read a pair; pairs of one thread have their first utterance in common.

    Args:
        fields: {"context": text or list of texts, "label": text}.
    """
    context, label = fields["context"], fields.get("label")
    turns = context.split("\n") if isinstance(context, str) else context
    if not isinstance(turns, list) or not isinstance(label, str) or not all(isinstance(turn, str) for turn in turns):
        return "malformed_lines"
    turns = [line for turn in turns if (line := one_line(turn))]
    if not turns or not one_line(label):
        return "empty"
    return Pair(f"first\n{turns[0]}", id, "\n".join(turns), one_line(label))


def of_parlai(numbered: Iterable[tuple[str, int]], name: str) -> Iterator[tuple[Record, int]]:
    """Yield the pairs of ParlAI's text format, one message per line; the context is the episode so far."""
    turns: list[str] = []
    thread = ""
    for text, number in numbered:
        if not text.strip():
            continue
        message = parlai_message(text)
        if message is None:
            yield "malformed_lines", number
            continue
        thread = thread if turns else f"{name}:{number}"
        turns += [line for part in message["text"].split("\n") if (line := one_line(part))]
        labels = message.get("labels") or message.get("eval_labels") or ()
        label = one_line(labels if isinstance(labels, str) else next(iter(labels), ""))
        yield Pair(thread, f"{name}:{number}", "\n".join(turns), label) if turns and label else "empty", number
        turns = [] if message.get("episode_done") else [*turns, *filter(None, [label])]


def parlai_message(text: str) -> dict[str, Any] | None:
    """Parse a line of ParlAI's text format; None if it is in another one."""
    from parlai.utils.misc import str_to_msg  # only this format needs ParlAI

    try:
        message: dict[str, Any] = str_to_msg(text)
    except (ValueError, SyntaxError):
        return None
    return message if isinstance(message.get("text"), str) else None


def of_plain(numbered: Iterable[tuple[str, int]], name: str, context_lines: int) -> Iterator[tuple[Record, int]]:
    """Yield the pairs of each line and the next one within a document."""
    turns = deque[str](maxlen=context_lines)
    thread = ""
    for text, number in numbered:
        line = one_line(text)
        if not line:
            turns.clear()
            continue
        if turns:
            yield Pair(thread, f"{name}:{number}", "\n".join(turns), line), number
        else:
            thread = f"{name}:{number}"
        turns.append(line)
