"""Errors as JSON: one sentence each, in the field in which the clients of a path look for it."""

import json
from collections.abc import Mapping
from typing import Any

from starlette.responses import JSONResponse, Response

from polyagents.errors import InputError

# Paths in other companies' shapes, whose clients read answers and errors in that shape.
RERANK_V1, RERANK_V2 = "/v1/rerank", "/v2/rerank"  # Cohere's
EMBEDDINGS = "/v1/embeddings"  # OpenAI's
SYSTEM_ONE, MODELS = "/v1/systemone", "/v1/models"  # TypeSafe's


class Unanswerable(InputError):
    """A request that cannot be answered, with the sentence that its client gets; other errors may name files."""


def problem(path: str, sentence: str, status: int, headers: Mapping[str, str] | None = None) -> Response:
    """Answer a request with an error, in the shape that its path has."""
    return JSONResponse(shaped(path, sentence, status), status, headers)


def shaped(path: str, sentence: str, status: int) -> dict[str, Any]:
    """Return an error's body in the shape of its path: OpenAI's clients would show nothing of {"error": sentence}."""
    if path in (RERANK_V1, RERANK_V2):
        return {"message": sentence}
    if path == EMBEDDINGS:
        kind = "server_error" if status >= 500 else "invalid_request_error"
        return {"error": {"message": sentence, "type": kind, "param": None, "code": None}}
    return {"error": sentence}


def shortened(value: Any) -> str:
    """Describe a value, short, and safe to send back."""
    if isinstance(value, str):
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            return "a text with half a surrogate pair, which is not a character"
        return f"a text of {len(value):,} characters"
    if isinstance(value, (list, dict)):
        return f"{'a list' if isinstance(value, list) else 'an object'} of {len(value):,}"
    return json.dumps(value)[:40]  # a number, true, false or null
