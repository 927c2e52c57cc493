"""Contexts in lines, as `polyagents rank` takes them."""

from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO, NamedTuple

from polyagents.errors import InputError
from polyagents.files.json_files import parse_json
from polyagents.files.lines import lines_of, opened
from polyagents.files.python_arguments import texts_of

ANSWERED = ("candidates", "complete", "error")  # keys of an answer, apart from the context and the line's own


class ContextLine(NamedTuple):
    """A line.

    Attributes:
        number: from 1, blank lines counted.
        context: None if the line has none; then `error` is a sentence.
        fields: the line's other JSON fields, which belong into the answer.
    """

    number: int
    context: str | None
    fields: dict[str, Any]
    error: str = ""


def read_lines(file: BinaryIO, reserved: Sequence[str] = ANSWERED, name: str = "The input") -> Iterator[ContextLine]:
    r"""Read lines; blank ones are skipped, and a line with a reserved key has no context.

    A line is plain text, or a JSON object: `{"context": "hi"}`, or `{"context": ["your persona: i ski .", "hi"]}` for
    turns. A line that is not a JSON object is plain text, whatever it begins with. Bytes that are not UTF-8 become
    U+FFFD.

    Raises:
        InputError: a line is too long (files/lines.py).
    """
    for number, raw in enumerate(lines_of(file, name, is_typed=True), 1):
        if text := raw.decode("utf-8", "replace").strip():
            yield line_of(text, number, reserved)


def line_of(text: str, number: int, reserved: Sequence[str] = ANSWERED) -> ContextLine:
    """Read a line, given without white space around it."""
    try:
        found = parse_json(text) if text.startswith("{") else None
    except ValueError:
        found = None
    if not isinstance(found, dict):
        return ContextLine(number, text, {})
    fields = {name: value for name, value in found.items() if name not in ("context", *reserved)}
    if taken := [name for name in reserved if name in found]:
        return ContextLine(
            number, None, fields, f"The key {taken[0]} is reserved for the answer; give it another name."
        )
    try:
        turns = texts_of(found.get("context"), "context", one=True)
    except InputError as error:
        return ContextLine(number, None, fields, str(error))
    if not turns:
        return ContextLine(number, None, fields, "context has no turns; give at least one.")
    return ContextLine(number, "\n".join(turns), fields)


def read_contexts(path: str) -> list[str]:
    """Read a file with a context in each line; an InputError says which line has none, or that there are no lines."""
    contexts = []
    try:
        with opened(path) as file:
            for line in read_lines(file, name=path):
                if line.context is None:
                    raise InputError(f"Line {line.number} of {path}: {line.error}")
                contexts.append(line.context)
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}); give a file with a context per line.") from error
    if not contexts:
        raise InputError(f"{path} has no contexts; give one per line.")
    return contexts
