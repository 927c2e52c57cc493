"""Requests drawn from /openapi.json, by schemathesis: the server answers each as the description says."""

import pytest
import schemathesis
from drawing import budget
from hypothesis import given
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance
from stand import REPLIES, WIDTH, Stand
from web import running

from polyagents import Match
from polyagents.serving.limits import BODY_BYTES, CONTEXT_CHARACTERS
from polyagents.serving.ranking_app import create_app


def rank(contexts, candidates, top_k):
    """A model that finds the first candidates best."""
    matches = [Match(place, text, 1.0 - place) for place, text in enumerate(candidates or REPLIES)]
    return [(matches[:top_k], True) for _ in contexts]


@pytest.fixture(scope="module")
def description():
    """/openapi.json of a running server that has no limit of its own to requests."""
    with running(create_app(Stand(rank), per_minute=10**9, texts_per_minute=10**9)) as url:
        yield schemathesis.openapi.from_url(f"{url}/openapi.json")


def cannot_be_described(body):
    """Whether a request is refused for what the description has no words for.

    That is a filter's fields, a blank last turn, the turns' sum, the width of this model's vectors, and what it reads
    of documents.
    """
    if body.get("filter") or body.get("rank_fields") or (body.get("max_tokens_per_doc") or 72) < 72:
        return True
    if body.get("dimensions") not in (None, WIDTH):
        return True
    for name in ("context", "history", "persona", "query"):
        turns = body.get(name, ["-"])
        turns = [turns] if isinstance(turns, str) else turns
        if sum(map(len, turns)) > CONTEXT_CHARACTERS or (name != "persona" and not turns[-1].strip()):
            return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize("examples", [20, pytest.param(1_000, marks=pytest.mark.release)])
@pytest.mark.parametrize("mode", GenerationMode)
@pytest.mark.parametrize("path", ["/rank", "/chat", "/v1/rerank", "/v2/rerank", "/v1/embeddings"])
def test_every_answer_is_as_described(path, mode, examples, description):
    statuses = set()

    @budget(examples)
    @given(description[path]["POST"].as_strategy(generation_mode=mode))
    def check(case):
        response = case.call()
        if len(response.request.body or b"") > BODY_BYTES:  # which the description cannot say either
            assert response.status_code == 413
            return
        statuses.add(response.status_code)
        case.validate_response(response, excluded_checks=[positive_data_acceptance])
        if mode is GenerationMode.POSITIVE and response.status_code != 200:
            assert response.status_code == 422 and cannot_be_described(case.body)

    check()
    assert statuses <= ({200, 422} if mode is GenerationMode.POSITIVE else {400, 415, 422})
