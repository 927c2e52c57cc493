"""The common parts of all pages of human evaluation: templates, errors, headers, access.

Every page works without JavaScript. The token in a link is all that a visitor needs and all that protects it, so no
page names it to another site, and nothing is cached.
"""

import hmac
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, select_autoescape
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from polyagents.console import duration
from polyagents.errors import InputError
from polyagents.human_eval.records import ANNOTATE_PATH, PROGRESS_PATH
from polyagents.human_eval.storage.database import StorageFault
from polyagents.human_eval.storage.evaluation_store import EvaluationStore
from polyagents.human_eval.storage.places import NoPlace, NotNow
from polyagents.human_eval.web.forms import FIELDS, read_form
from polyagents.human_eval.web.wording import Wording, read_wording
from polyagents.serving import guard
from polyagents.serving.limits import REQUESTS_PER_MINUTE, Rate

HERE, SHARED = Path(__file__).parent, Path(guard.__file__).parent  # it looks as `polyagents serve` does
PAGES = Environment(
    loader=FileSystemLoader([HERE / "templates", SHARED / "templates"]),
    autoescape=select_autoescape(),
    trim_blocks=True,
    lstrip_blocks=True,
)
PAGES.globals["style"] = "human_eval.css"  # on top of the style that it shares
FAILED = "This did not work here; try again in a while."
POLICY = "Content-Security-Policy"
HEADERS = guard.HEADERS | {POLICY: guard.HEADERS[POLICY].replace("form-action 'none'", "form-action 'self'")}


def application(
    routes: Sequence[BaseRoute], texts: Wording | None = None, headers: Mapping[str, str] = HEADERS
) -> ASGIApp:
    """Make an ASGI application with these pages, whose errors are pages, too; no texts are English."""
    app = Starlette(
        routes=[
            *routes,
            Mount("/static", StaticFiles(directory=HERE / "static", packages=[("polyagents.serving", "static")])),
        ],
        exception_handlers={
            HTTPException: lambda request, error: sorry(request, error.status_code, error.detail, error.headers),
            guard.Refused: lambda request, error: sorry(request, error.status, error.sentence, error.headers),
            InputError: lambda request, error: sorry(request, 422, str(error)),
            NoPlace: lambda request, error: sorry(request, 409, str(error)),
            NotNow: lambda request, _: RedirectResponse(request.state.link, 303),
            StorageFault: failed,
            Exception: lambda request, _: sorry(request, 500, FAILED),  # raised again once answered; uvicorn logs it
        },
    )
    app.router.redirect_slashes = False
    # People are distinguished by their links, not by addresses: behind a proxy, all have the same address.
    app.state.of_people, app.state.of_strangers = Rate(REQUESTS_PER_MINUTE), Rate(REQUESTS_PER_MINUTE)
    app.state.texts = texts or read_wording()
    return with_headers(app, app.state.texts, headers)


def known_token(store: EvaluationStore, request: Request) -> str:
    """Return the token of a link, if it is known (else 404), and count the request, which may be one too many (429)."""
    try:
        token = store.annotator(request.path_params["token"]).token
    except StorageFault:  # an InputError, too, but not caused by the request
        raise
    except InputError as error:
        count_stranger(request)
        raise HTTPException(404, str(error)) from error
    request.state.link = ANNOTATE_PATH + token
    guard.count_use(request.app.state.of_people, token, instead="")
    return token


def form_route(
    path: str,
    store: EvaluationStore,
    act: Callable[[str, Mapping[str, str]], str | None],
    asked: str,
    most: int = FIELDS,
) -> Route:
    """Make the route of a form: it is read, `act` does what it asks for, and the browser is led back to the link.

    Args:
        act: takes the token and the fields; returns the place on the page, such as #reply-1, if there is one. What it
            stores is on the disk before the browser is answered, and the same form again changes nothing.
        asked: what the page asks, by `mark_of`; a form with another mark is refused.
    """

    async def answer(request: Request) -> Response:
        token = await run_in_threadpool(known_token, store, request)
        fields = await read_form(request, most)
        if fields.get("asked", asked) != asked:  # the page was open while the server was started again
            raise InputError("What is asked has changed since this page was opened; open your link again.")
        place = await run_in_threadpool(act, token, fields)
        return RedirectResponse(f"{request.state.link}{place or ''}", 303)

    return Route(path, answer, methods=["POST"])


def organiser_route(
    store: EvaluationStore, organiser: str, template: str, figures: Callable[[], Mapping[str, Any]]
) -> Route:
    """Make the route of the organiser's page, which refuses everybody without its link, as `known_token` does."""

    def show(request: Request) -> Response:
        if not hmac.compare_digest(request.path_params["token"].encode(), organiser.encode()):
            count_stranger(request)
            raise HTTPException(
                404, "This is not the organiser's link; the command that serves these pages prints it when it starts."
            )
        guard.count_use(request.app.state.of_people, organiser, instead="")
        places = store.places and store.places.taken()
        return page(request, template, places=places, links=ANNOTATE_PATH, ago=ago, **figures())

    return Route(PROGRESS_PATH + "{token}", show)


def count_stranger(request: Request) -> None:
    """Count a request with a link that nobody has."""
    guard.count_use(request.app.state.of_strangers, guard.client_address(request.scope), instead="")


def failed(request: Request, error: Exception) -> Response:
    """Render the page for a failure of the database; the organiser finds the reason in the log."""
    logging.getLogger("uvicorn.error").error("%s", error)
    return sorry(request, 503, FAILED, {"Retry-After": "10"})


def page(request: Request, template: str, status: int = 200, headers: Any = None, **values: Any) -> Response:
    """Render a page of a template, in the application's language."""
    return rendered(request.app.state.texts, template, status, headers, **values)


def rendered(texts: Wording, template: str, status: int, headers: Any = None, **values: Any) -> Response:
    """Render a page of a template."""
    return HTMLResponse(PAGES.get_template(template).render(values, say=texts, lang=texts.lang), status, headers)


def sorry(request: Request, status: int, sentence: str, headers: Any = None) -> Response:
    """Render a page with one sentence about the fault, and a link back."""
    sentences = {"Not Found": "There is no such page.", "Method Not Allowed": "This page accepts no such request."}
    link = getattr(request.state, "link", None)
    return page(request, "sorry.html", status, headers, sentence=sentences.get(sentence, sentence), link=link)


def ago(moment: str | None) -> str:
    """Say how long a moment (UTC in ISO 8601) is past."""
    if moment is None:
        return "–"
    passed = datetime.now(timezone.utc) - datetime.fromisoformat(moment)
    return f"{duration(max(passed.total_seconds(), 0))} ago"


def with_headers(app: ASGIApp, texts: Wording, headers: Mapping[str, str]) -> ASGIApp:
    """Wrap an application: add headers to its responses, and answer if the server ends before it does."""
    sentence = "The server is ending; open your link again when it is back."
    ended = rendered(texts, "sorry.html", 503, sentence=sentence, link=None)

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        await guard.answer_or(ended, app, scope, receive, guard.adding_headers(send, headers))

    return wrapped
