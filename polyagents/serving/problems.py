"""An error as JSON: one sentence, where the clients of its path look for it."""

from collections.abc import Mapping
from typing import Any

from starlette.responses import JSONResponse, Response

from polyagents.errors import InputError
from polyagents.serving.paths import EMBEDDINGS, RERANK_V1, RERANK_V2


class Unanswerable(InputError):
    """A request that cannot be answered, with the sentence that its client gets; other errors may name files."""


def problem(path: str, sentence: str, status: int, headers: Mapping[str, str] | None = None) -> Response:
    """Answer a request for a path with an error.

    Args:
        path: the path of the request, which decides the shape.
    """
    return JSONResponse(shaped(path, sentence, status), status, headers)


def shaped(path: str, sentence: str, status: int) -> dict[str, Any]:
    """Return the body of an error in the shape of its path: OpenAI's clients would show nothing of {"error": sentence}.

    Args:
        path: the path of the request.
    """
    if path in (RERANK_V1, RERANK_V2):
        return {"message": sentence}
    if path == EMBEDDINGS:
        kind = "server_error" if status >= 500 else "invalid_request_error"
        return {"error": {"message": sentence, "type": kind, "param": None, "code": None}}
    return {"error": sentence}
