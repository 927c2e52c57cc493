"""The forms that the pages send."""

from dataclasses import dataclass
from typing import Literal, cast
from urllib.parse import parse_qsl

from starlette.requests import Request

from polyagents.errors import InputError
from polyagents.serving.guard import Refused, body, content_type

KIND = "application/x-www-form-urlencoded"
FIELDS = 10  # more than the page sends
REASON = 5_000  # characters
DIGITS = 9  # digits of a number that every database can store


@dataclass(frozen=True)
class SubmittedAnswer:
    """An annotator's answer, as the page sends it.

    Attributes:
        assignment: number of the assignment that was shown.
        reason: may be "".
        seconds: from seeing the pair to the answer; None if the browser has not measured them.
    """

    assignment: int
    choice: Literal["left", "right"]
    reason: str
    seconds: float | None


async def read_fields(request: Request, most: int = FIELDS) -> dict[str, str]:
    """Read the form of a request, whatever is in it, with so many fields at most.

    Raises:
        Refused: it is larger than it may be, and was not read; or no form.
        InputError: it has too many fields.
    """
    if content_type(request.headers) != KIND:
        raise Refused(415, f"This must come as a form ({KIND}); send it with the page.")
    content = (await body(request.scope, request.receive)).decode("utf-8", "replace")
    try:
        return dict(parse_qsl(content, keep_blank_values=True, errors="replace", max_num_fields=most))
    except ValueError as error:
        raise InputError(f"The form has more than {most} fields; send it with the page.") from error


async def read_answer(request: Request) -> SubmittedAnswer:
    """Read an annotator's answer from the form of a request.

    Raises:
        Refused: it is larger than it may be, and was not read; or no form.
        InputError: a field is invalid.
    """
    fields = await read_fields(request)
    if fields.get("choice") not in ("left", "right"):
        raise InputError("No side is chosen; go back and choose one.")
    reason = fields.get("reason", "").replace("\r\n", "\n").strip()
    if len(reason) > REASON:
        raise InputError(f"The reason has {len(reason):,} characters; at most {REASON:,} are kept, so shorten it.")
    choice = cast(Literal["left", "right"], fields["choice"])
    return SubmittedAnswer(whole(fields.get("assignment", "")), choice, reason, measured(fields.get("seconds", "")))


def whole(text: str) -> int:
    """Read a whole number.

    Raises:
        InputError: it is none, or one that nothing here has.
    """
    if not (text.isascii() and text.isdigit() and len(text) <= DIGITS):
        raise InputError(f"{text[:20]!r} is not a number on this page; open your link again.")
    return int(text)


def measured(text: str) -> float | None:
    """Read seconds; None if there are none.

    Raises:
        InputError: they are not a number.
    """
    try:
        return float(text) if text else None
    except ValueError as error:
        raise InputError(f"{text[:20]!r} is not a number of seconds; open your link again.") from error
