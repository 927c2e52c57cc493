"""Requests drawn by schemathesis from what the pages take, in OpenAPI's words: every answer is a page, no fault.

The pages are for people, so the description is the test's own; the server has none to serve.
"""

import pytest
import schemathesis
from chatting import Echo, app_of, shop_of
from crowd import store_of
from drawing import budget
from evaluation import evaluation
from hypothesis import given
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import content_type_conformance, status_code_conformance
from web import running

from polyagents.human_eval.web import shared_pages
from polyagents.human_eval.web.annotation_app import create_app
from polyagents.human_eval.web.questions import PRESETS

ORGANISER = "the-organiser"
NUMBER = {"type": "integer", "minimum": 0, "maximum": 3}
CHAT = {"type": "integer", "minimum": 1, "maximum": 2}
RATING = {"type": "integer", "minimum": 1, "maximum": 5}
# Path -> the fields of its form, None where it is only looked at; and the statuses of its answers.
# ..._ACCEPTED: a form that the page takes as its first, so that one gets through whatever is drawn.
ANNOTATION = {
    "/annotate/{token}": ({"assignment": NUMBER, "choice": {"enum": ["left", "right"]}, "reason": {"type": "string"},
                           "seconds": {"type": "number", "minimum": 0}}, (303, 404, 413, 415, 422)),
    "/annotate/{token}/{place}": (None, (200, 404, 409, 422)),
    "/progress/{token}": (None, (200, 404)),
}  # fmt: skip
ANNOTATION_ACCEPTED = "/annotate/{token}", {"assignment": 1, "choice": "left", "reason": "", "seconds": 1}
CHATS = {
    "/annotate/{token}": (None, (200, 404)),
    "/annotate/{token}/say": ({"chat": CHAT, "place": NUMBER, "text": {"type": "string"}}, (303, 404, 413, 415, 422)),
    "/annotate/{token}/rate": ({"chat": CHAT, "place": NUMBER, "rating": {"enum": ["good", "bad"]}},
                               (303, 404, 413, 415, 422)),
    "/annotate/{token}/finish": ({"chat": CHAT, "rating": RATING}, (303, 404, 413, 415, 422)),
    "/progress/{token}": (None, (200, 404)),
}  # fmt: skip
STAGE = {"enum": ["consent", "screening", "instructions", "work", "complete"]}
STUDY = {
    "/annotate/{token}": ({"assignment": NUMBER, "choice": {"enum": ["left", "right"]}},
                          (303, 404, 409, 413, 415, 422)),
    "/annotate/{token}/step": ({"stage": STAGE, "agree": {"enum": ["yes", "no"]}, "answer0": {"enum": ["yes", "no"]}},
                               (303, 404, 409, 413, 415, 422)),
    "/annotate/{token}/{place}": (None, (200, 404, 409, 422)),
    "/progress/{token}": (None, (200, 404)),
}  # fmt: skip
STUDY_ACCEPTED = "/annotate/{token}/step", {"stage": "consent", "agree": "yes"}
CHATS_ACCEPTED = "/annotate/{token}/say", {"chat": 1, "place": 0, "text": "hello"}


def described(pages, tokens):
    """The pages as OpenAPI has them; right tokens are those of people, wrong ones come with the negative mode."""
    paths = {}
    for path, (fields, statuses) in pages.items():
        known = [ORGANISER] if path.startswith("/progress") else [*tokens]
        parameters = {"token": {"type": "string", "enum": known}, "place": NUMBER}
        page = {"text/html": {"schema": {"type": "string"}}, "text/plain": {"schema": {"type": "string"}}}
        operation = {
            "parameters": [
                {"name": name, "in": "path", "required": True, "schema": schema}
                for name, schema in parameters.items()
                if f"{{{name}}}" in path
            ],
            "responses": {
                str(status): {"description": ""} | ({} if status == 303 else {"content": page}) for status in statuses
            },
        }
        if fields:
            form = {"type": "object", "properties": fields, "required": [*fields], "additionalProperties": False}
            operation["requestBody"] = {
                "required": True, "content": {"application/x-www-form-urlencoded": {"schema": form}}
            }  # fmt: skip
        paths[path] = {"post" if fields else "get": operation}
    return {"openapi": "3.1.0", "info": {"title": "pages", "version": "1"}, "paths": paths}


@pytest.fixture
def annotation(tmp_path):
    """The annotation page: its application, its pages, a form it takes, the people's tokens, all judgements."""
    store, tokens = evaluation(str(tmp_path / "s.db"), 3, ("ada", "bob"))
    for token in tokens:  # an answer needs a question
        store.next_assignment(token)
    yield create_app(store, PRESETS["engaging"], ORGANISER), ANNOTATION, ANNOTATION_ACCEPTED, tokens, store.judgements
    store.close()


@pytest.fixture
def chats(tmp_path):
    """The chats, likewise."""
    made, tokens = shop_of(str(tmp_path / "s.db"))
    for token in tokens:  # a message needs a chat
        made.current(token)
    yield app_of(made, Echo), CHATS, CHATS_ACCEPTED, tokens, list
    made.store.close()


@pytest.fixture
def study(tmp_path):
    """A study with three people, likewise."""
    store = store_of(str(tmp_path / "s.db"), checks=1)
    tokens = [store.places.arrive(f"{number:024x}", f"{number + 9:024x}") for number in range(3)]
    yield create_app(store, PRESETS["engaging"], ORGANISER), STUDY, STUDY_ACCEPTED, tokens, store.judgements
    store.close()


@pytest.mark.slow
@pytest.mark.parametrize("examples", [25, pytest.param(500, marks=pytest.mark.release)])
@pytest.mark.parametrize("server", ["annotation", "chats", "study"])
def test_every_answer_is_a_page(server, examples, request, monkeypatch):
    monkeypatch.setattr(shared_pages, "REQUESTS_PER_MINUTE", 10**9)
    app, pages, (form_path, form), tokens, judged = request.getfixturevalue(server)
    statuses = set()
    with running(app) as url:
        schema = schemathesis.openapi.from_dict(described(pages, tokens))
        schema.config.update(base_url=url)
        operations = [schema[path]["POST" if fields else "GET"] for path, (fields, _) in pages.items()]
        cases = st.one_of(*(one.as_strategy(generation_mode=mode) for one in operations for mode in GenerationMode))

        @budget(examples * len(operations))
        @given(cases)
        def check(case):
            response = case.call(allow_redirects=False)
            statuses.add(response.status_code)
            case.validate_response(response, checks=[content_type_conformance, status_code_conformance])

        accepted = schema[form_path]["POST"].Case(
            path_parameters={"token": tokens[0]}, body=form, media_type="application/x-www-form-urlencoded"
        )
        assert accepted.call(allow_redirects=False).status_code == 303
        check()
    assert {200, 404, 422} <= statuses
    assert len(judged()) == len({(one.annotator, one.pair) for one in judged()})
