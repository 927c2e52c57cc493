"""Contexts in a stream of lines, as `polyagents rank` takes them."""

from collections.abc import Iterator
from typing import TextIO

from polyagents.errors import InputError
from polyagents.files.json_files import fits, parse_json


def read_contexts(lines: TextIO) -> Iterator[str]:
    r"""Read the contexts of a stream, one a line; blank lines are skipped.

    A line is plain text, or JSON: `{"context": "hi"}`, or `{"context": ["your persona: i ski .", "hi"]}` for turns.

    Raises:
        InputError: a line is JSON but no context; the message has its number.
    """
    for number, line in enumerate(lines, 1):
        line = line.strip()
        if not line.startswith("{"):
            if line:
                yield line
            continue
        try:
            found = parse_json(line)
            if not fits(found, dict[str, str | list[str]]):
                raise ValueError("other fields than texts and lists of texts")
            context = found["context"]
        except (ValueError, KeyError) as error:
            raise InputError(
                f'Line {number} of the input is no context: give plain text, or JSON such as {{"context": "hi"}} or '
                f'{{"context": ["first turn", "second turn"]}}.'
            ) from error
        yield context if isinstance(context, str) else "\n".join(context)
