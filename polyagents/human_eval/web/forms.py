"""The forms that the pages send."""

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

from starlette.requests import Request

from polyagents.errors import InputError
from polyagents.files.hashing import fingerprint
from polyagents.serving.guard import Refused, body, content_type

KIND = "application/x-www-form-urlencoded"
FIELDS = 10  # more than the page sends
DIGITS = 9  # digits of a number that every database can store


async def read_form(request: Request, most: int = FIELDS) -> dict[str, str]:
    """Read the form of a request, with so many fields at most; Refused says if it is too large, or no form."""
    if content_type(request.headers) != KIND:
        raise Refused(415, f"This must come as a form ({KIND}); send it with the page.")
    content = (await body(request.scope, request.receive)).decode("utf-8", "replace")
    try:
        return dict(parse_qsl(content, keep_blank_values=True, errors="replace", max_num_fields=most))
    except ValueError as error:
        raise InputError(f"The form has more than {most} fields; send it with the page.") from error


def mark_of(asked: Any) -> str:
    """Return the mark of what a page asks, which its form sends back."""
    return fingerprint([json.dumps(asked)])


def whole(text: str) -> int:
    """Read a whole number; an InputError says if it is none, or one that nothing here has."""
    if not (text.isascii() and text.isdigit() and len(text) <= DIGITS):
        raise InputError(f"{text[:20]!r} is not a number on this page; open your link again.")
    return int(text)


def text_field(fields: Mapping[str, str], name: str) -> str:
    """Return what a person has written in a field, with the line ends of Unix."""
    return fields.get(name, "").replace("\r\n", "\n").strip()


def seconds_in(text: str) -> float | None:
    """Read seconds; None if the browser has not measured them; an InputError says if they are not a number."""
    try:
        return float(text) if text else None
    except ValueError as error:
        raise InputError(f"{text[:20]!r} is not a number of seconds; open your link again.") from error
