"""Files of conversations in any of the formats, recognised by their content."""

import codecs
import dataclasses
import functools
import os
from collections.abc import Callable, Iterator
from typing import Any

from polyagents.errors import InputError
from polyagents.files import json_files
from polyagents.files.lines import opened
from polyagents.human_eval.conversations import make_conversation
from polyagents.human_eval.formats import acute_eval_format, label_studio_project, parlai_format, potato_project
from polyagents.human_eval.formats.parlai_format import TEXT_FIELDS, Malformed
from polyagents.human_eval.records import HUMAN, Conversation, ConversationPair, ToolAnswer

Part = tuple[str, Callable[[], Any]]
"""Where in a file a part is, and the function that parses it or raises."""


@dataclasses.dataclass
class FileContents:
    """What is in a file."""

    conversations: list[Conversation] = dataclasses.field(default_factory=list)  # that could be read, in order
    pairs: list[ConversationPair] = dataclasses.field(default_factory=list)  # of them, if the file has pairings
    malformed: list[tuple[str, str]] = dataclasses.field(default_factory=list)  # position and reason of what is skipped
    answers: list[ToolAnswer] = dataclasses.field(default_factory=list)  # that another tool has kept


def read_file(path: str, model: str | None = None) -> FileContents:
    """Read a file in any of the formats; an InputError says if it cannot be opened, or is too large.

    Args:
        path: a file of ParlAI's conversations (JSON lines), its older logs (one JSON list), its text format, or
            ACUTE-Eval's pairings (JSON lines, or one JSON object), the folder of a project of Potato, or Label Studio's
            JSON export.
        model: a name for the one model in a log that replaces the log's own: ParlAI's older logs name the class of the
            agent, which two models may share.
    """
    found, places = FileContents(), parlai_format.places_of(path)
    if os.path.isdir(path):
        for where, read in potato_project.answers_by_file(path):
            try:
                found.answers += read()
            except (ArithmeticError, ValueError) as error:
                found.malformed.append((where, reason(error)))
        return found
    try:
        with opened(path) as file:
            content = file.read(json_files.LARGEST + 1)
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}); give files of conversations.") from error
    if len(content) > json_files.LARGEST:
        raise InputError(f"{path} is larger than {json_files.LARGEST:,} bytes; divide it.")
    for where, parse in parts_of_file(content):
        try:
            add_part(found, parse(), places, path, model)
        except (ArithmeticError, ValueError, RecursionError) as error:
            found.malformed.append((where, reason(error)))
    return found


def add_part(found: FileContents, entry: Any, places: parlai_format.Places, path: str, model: str | None) -> None:
    """Add a dialogue or pairing to the contents."""
    if isinstance(entry, list):
        found.conversations.append(renamed(parlai_format.read_exchanges(entry, places, path), model))
    elif isinstance(entry, dict) and "dialog" in entry:
        found.conversations.append(renamed(parlai_format.read_line(entry, places, path), model))
    elif isinstance(entry, dict) and "dialogue_dicts" in entry:
        if model is not None:
            raise Malformed("it names two models, and --model-name can name only one")
        conversations, pair = acute_eval_format.read_pairing(entry, path)
        found.conversations += conversations
        found.pairs.append(pair)
    elif isinstance(entry, dict) and "annotations" in entry:
        found.answers += label_studio_project.read_task(entry)
    else:
        raise Malformed("it has neither a dialog, nor dialogue_dicts, nor annotations")


def renamed(conversation: Conversation, model: str | None) -> Conversation:
    """Return the same conversation, with another name of its one model; with more or fewer it is Malformed."""
    if model is None:
        return conversation
    old = set(conversation.models.values()) - {HUMAN}
    if len(old) != 1:
        raise Malformed(f"it has {len(old)} models, and --model-name can name only one")
    models = {speaker: HUMAN if who == HUMAN else model for speaker, who in conversation.models.items()}
    turns = [(turn.speaker, turn.text) for turn in conversation.turns]
    return make_conversation(turns, models, conversation.context, conversation.source)


def reason(error: Exception) -> str:
    """Describe the fault of a part."""
    if isinstance(error, Malformed):
        return str(error)
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8"
    return str(error) if str(error) == json_files.TOO_DEEP else "it is not JSON"


def parts_of_file(content: bytes) -> Iterator[Part]:
    """Divide a file into parts, not parsed yet: of ParlAI's text, of one JSON value, or of JSON lines."""
    content = content.removeprefix(codecs.BOM_UTF8)
    lines = content.split(b"\n")  # not by splitlines, which divides at other characters, too
    first = next((line.strip() for line in lines if line.strip()), b"")
    if first.startswith(tuple(field.encode() for field in TEXT_FIELDS)):
        yield from dialogues_of_text(lines)
        return
    try:
        whole = json_files.parse_json(content)
    except ValueError:
        whole = None
    if isinstance(whole, list):
        for number, dialogue in enumerate(whole, 1):
            if dialogue != []:  # ParlAI's older logger ends with one
                yield f"dialogue {number}", functools.partial(lambda parsed: parsed, dialogue)
    elif isinstance(whole, dict):
        yield "line 1", lambda: whole
    else:
        for number, line in enumerate(lines, 1):
            if line.strip():
                yield f"line {number}", functools.partial(parse_line, line)


def parse_line(line: bytes) -> Any:
    """Parse a line; bytes that are not UTF-8 raise an error of their own."""
    return json_files.parse_json(line.decode("utf-8"))


def dialogues_of_text(lines: list[bytes]) -> Iterator[Part]:
    """Divide ParlAI's text format into dialogues: each ends with a blank line, or a line that says so."""
    dialogue: list[tuple[int, bytes]] = []
    for number, line in enumerate([*lines, b""], 1):
        if line.strip():
            dialogue.append((number, line))
        if dialogue and (not line.strip() or line.rstrip().endswith(b"episode_done:True")):
            yield f"line {dialogue[0][0]}", functools.partial(parse_text, dialogue)
            dialogue = []


def parse_text(dialogue: list[tuple[int, bytes]]) -> list[Any]:
    """Read the exchanges of a dialogue; a broken line spoils it, as the turns around it would not fit together."""
    exchanges = []
    for number, line in dialogue:
        try:
            exchanges.append(parlai_format.read_text_line(line.decode("utf-8").rstrip("\r")))
        except ValueError as error:
            raise Malformed(f"the dialogue that begins there is broken in line {number}: {reason(error)}") from error
    return exchanges
