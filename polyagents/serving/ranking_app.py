"""The application: a chat page, the endpoints, and a page that describes them."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from fastapi import FastAPI
from fastapi import Request as HttpRequest
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, Response
from fastapi.staticfiles import StaticFiles
from jinja2 import Environment, FileSystemLoader, select_autoescape
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.types import ASGIApp

from polyagents.index.engines.engine import EngineError
from polyagents.serving.answering import Answering, failure
from polyagents.serving.batching import Batcher, QueueFull
from polyagents.serving.endpoints import EXAMPLES, add_compatible_endpoints, add_endpoints
from polyagents.serving.generations import Generations, Held
from polyagents.serving.guard import Guard, Refused
from polyagents.serving.limits import REQUESTS_PER_MINUTE, TEXTS_PER_MINUTE, TOGETHER, WAITING
from polyagents.serving.observing import HEALTH, METRICS, READY, Figures, Observed, add_probes
from polyagents.serving.problems import EMBEDDINGS, RERANK_V1, RERANK_V2, SYSTEM_ONE, Unanswerable, problem, shaped
from polyagents.serving.reloading import RELOAD, Reloader, add_reload
from polyagents.serving.sentences import sentence_of
from polyagents.serving.served import Served
from polyagents.serving.tokens import MAY_ADMINISTER, MAY_READ_METRICS, Tokens
from polyagents.text.tokenizer import UnencodableText

HERE = Path(__file__).parent
PAGES = Environment(
    loader=FileSystemLoader(HERE / "templates"), autoescape=select_autoescape(), trim_blocks=True, lstrip_blocks=True
)


def create_app(
    served: Served,
    token: Tokens | str | None = None,
    per_minute: int = REQUESTS_PER_MINUTE,
    together: int = TOGETHER,
    waiting: int = WAITING,
    texts_per_minute: int = TEXTS_PER_MINUTE,
    reloader: Reloader | None = None,
) -> ASGIApp:
    """Make an ASGI application that serves one model.

    Args:
        token: what every request must bring, or several, as in a file of tokens; None lets in all that is addressed to
            this machine itself.
        per_minute: how many requests one client may send.
        together: how many requests are ranked at once, at most.
        waiting: how many requests may wait for the model.
        texts_per_minute: how many texts the model reads for one client.
        reloader: replaces `served`, which was loaded from its sources, when these change; None serves it to the end.
    """
    generations = Generations(served)
    figures = Figures(lambda: batcher.waiting, generations, reloader)
    batcher = Batcher(together, waiting, figures.answered)

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        batcher.start()
        async with contextlib.AsyncExitStack() as running:
            running.callback(batcher.stop)
            if reloader is not None:
                await running.enter_async_context(reloader.running(generations))
            yield

    app = FastAPI(
        title=f"polyagents: {served.model}",
        description="The best of many candidates for a context.",
        version="1",
        lifespan=lifespan,
        docs_url=None,  # FastAPI's pages load scripts from elsewhere
        redoc_url=None,
    )
    add_error_handlers(app)
    add_pages(app)
    answering = Answering(batcher, texts_per_minute)
    app.state.answering, app.state.reloader = answering, reloader
    add_endpoints(app, answering)
    add_compatible_endpoints(app, answering)
    add_probes(app, figures, lambda: batcher.answers)
    if reloader is not None:
        add_reload(app, reloader)
    app.mount("/static", StaticFiles(directory=HERE / "static"))
    scopes = {METRICS: MAY_READ_METRICS, RELOAD: MAY_ADMINISTER}
    guard = Guard(Held(app, generations), token, per_minute, open_to_all=(HEALTH, READY), scopes=scopes)
    return Observed(guard, figures)


def add_pages(app: FastAPI) -> None:
    """Add the chat and the description of the endpoints; neither page loads anything from elsewhere."""
    chat = PAGES.get_template("chat.html")

    @app.get("/", include_in_schema=False)
    async def page(request: HttpRequest) -> HTMLResponse:
        served = request.state.served
        return HTMLResponse(chat.render(served=served, size=served.size))

    @app.get("/docs", include_in_schema=False)
    async def docs(request: HttpRequest) -> HTMLResponse:
        address, served = str(request.base_url).rstrip("/"), request.state.served
        shown = {"api": app.openapi(), "address": address, "examples": EXAMPLES, "error_of": shaped, "served": served}
        return HTMLResponse(PAGES.get_template("docs.html").render(shown))


def add_error_handlers(app: FastAPI) -> None:
    """Answer every error with one sentence in JSON; the server keeps running after each."""

    @app.exception_handler(RequestValidationError)
    async def invalid(request: HttpRequest, error: RequestValidationError) -> Response:
        return problem(request.url.path, sentence_of(error), 422)

    @app.exception_handler(StarletteHTTPException)
    async def refused(request: HttpRequest, error: StarletteHTTPException) -> Response:
        sentences = {
            400: "The body cannot be read as JSON.",
            404: "There is no such page; there are /, /docs, /openapi.json, /healthz, /readyz, /metrics, and for POST "
            f"/rank, /chat, {RERANK_V1}, {RERANK_V2}, {EMBEDDINGS} and {SYSTEM_ONE}.",
            405: f"{request.method} is not possible here; /docs says what is.",
        }
        sentence = sentences.get(error.status_code, error.detail)
        return problem(request.url.path, sentence, error.status_code, error.headers)

    @app.exception_handler(Refused)
    async def too_much(request: HttpRequest, error: Refused) -> Response:
        return error.response(request.url.path)

    @app.exception_handler(QueueFull)
    @app.exception_handler(Unanswerable)
    @app.exception_handler(UnencodableText)
    @app.exception_handler(EngineError)
    @app.exception_handler(Exception)  # raised again after the answer, and logged by uvicorn
    async def failed(request: HttpRequest, error: Exception) -> Response:
        status, sentence = failure(error)
        busy = {"Retry-After": "1"} if isinstance(error, QueueFull) else None
        return problem(request.url.path, sentence, status, busy)
