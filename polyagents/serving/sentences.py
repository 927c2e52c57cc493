"""The fault of a request, in one sentence: what was given, what is possible."""

import json
from typing import Any

from fastapi.exceptions import RequestValidationError

from polyagents.serving.cohere_messages import RerankRequest
from polyagents.serving.messages import ChatRequest, RankRequest
from polyagents.serving.openai_messages import EmbeddingsRequest
from polyagents.serving.systemone_messages import SystemOneRequest

REQUESTS = (RankRequest, ChatRequest, RerankRequest, EmbeddingsRequest, SystemOneRequest)
FIELDS = {name: field for request in REQUESTS for name, field in request.model_fields.items()}


def sentence_of(error: RequestValidationError) -> str:
    """Describe the fault of a request: the first of its errors."""
    first = error.errors()[0]
    kind, place = first["type"], first["loc"][1:]
    if kind == "json_invalid":
        return f"The body is not JSON ({first['ctx']['error']}, at character {place[0]})."
    name = place[0] if place else None
    if kind == "extra_forbidden":
        return f"There is no field {ascii(name)[:40]}; /docs lists the fields."
    if name not in FIELDS:
        return f"The body must be a JSON object; given: {shortened(first['input'])}. /docs has examples."
    what = "it is missing" if kind == "missing" and len(place) == 1 else f"given: {shortened(first['input'])}"
    return f"{name} must be {FIELDS[str(name)].description}; {what}."


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
