"""The application: a chat page, the endpoints, and a page that describes them.

Endpoints are POST /rank and /chat; in others' shapes /v1/rerank, /v2/rerank, /v1/embeddings, /v1/systemone.
"""

import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi import Request as HttpRequest
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, Response, StreamingResponse
from fastapi.routing import APIRoute
from fastapi.staticfiles import StaticFiles
from jinja2 import Environment, FileSystemLoader, select_autoescape
from pydantic import BaseModel
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.types import ASGIApp

from polyagents.files.json_files import json_fault, parse_json
from polyagents.index.engines.engine import EngineError
from polyagents.index.filters import FilterError
from polyagents.serving.access_tokens import MAY_ADMINISTER, MAY_READ_METRICS, AccessTokens
from polyagents.serving.answering import Answering, PendingReply, failure
from polyagents.serving.batching import Batcher, QueueFull
from polyagents.serving.cohere_messages import CohereProblem, RerankRequest, RerankResponse
from polyagents.serving.guard import Guard, Refused
from polyagents.serving.limits import REQUESTS_PER_MINUTE, TEXTS_PER_MINUTE, TOGETHER, WAITING
from polyagents.serving.messages import ChatRequest, ChatResponse, Problem, RankRequest, RankResponse
from polyagents.serving.observing import HEALTH, METRICS, READY, Observed, ServerFigures, add_probes
from polyagents.serving.openai_messages import EmbeddingsRequest, EmbeddingsResponse, OpenAIProblem
from polyagents.serving.problems import (
    EMBEDDINGS,
    MODELS,
    RERANK_V1,
    RERANK_V2,
    SYSTEM_ONE,
    Unanswerable,
    problem,
    shaped,
    shortened,
)
from polyagents.serving.reloading import RELOAD, Generations, Held, Reloader, add_reload
from polyagents.serving.served import Served
from polyagents.serving.systemone_messages import ModelMetadata, Models, SystemOneRequest, SystemOneResponse
from polyagents.text.tokenizer import UnencodableText

HERE = Path(__file__).parent
PAGES = Environment(
    loader=FileSystemLoader(HERE / "templates"), autoescape=select_autoescape(), trim_blocks=True, lstrip_blocks=True
)
PROBLEMS = {
    400: "The body is not JSON, has a key twice, or did not come whole",
    401: "The token is missing or wrong",
    403: "Another site's page asks, or, without a token, the name is not this machine's",
    408: "The body did not arrive in time",
    413: "The body is too large",
    415: "The body is not declared as JSON, or is compressed",
    422: "A field is invalid",
    429: "Too many requests or texts of this client; Retry-After says when to try again",
    500: "The model failed",
    503: "Too many requests wait for the model, or the engine of its candidates does not answer",
}
STREAMED: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The reply; if Accept asks for text/event-stream, the events queued, ranking, reply "
        "(or error) as they happen",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}
EXAMPLES: dict[str, dict[str, Any]] = {  # for the page that describes them
    "/rank": {"context": "hi !", "top_k": 3},
    "/chat": {"history": ["hi !"], "persona": ["your persona: i ski ."], "top_k": 3},
    RERANK_V1: {"query": "hi !", "documents": ["i ski", {"text": "hello"}], "return_documents": True},
    RERANK_V2: {"query": "hi !", "documents": ["i ski", "hello"], "top_n": 1},
    EMBEDDINGS: {"input": ["i ski", "hello"], "input_type": "document"},
    SYSTEM_ONE: {
        "state": "hi !",
        "questions": {"sport": {"type": "choice", "criteria": {"winter": ["i ski", "i skate"], "none": "hello"}}},
    },
}
REQUESTS = (RankRequest, ChatRequest, RerankRequest, EmbeddingsRequest, SystemOneRequest)
FIELDS = {name: field for request in REQUESTS for name, field in request.model_fields.items()}


class JsonRequest(HttpRequest):
    """A request; Starlette's takes the last value of a key."""

    async def json(self) -> Any:
        """Parse the body; raises as `parse_json` does."""
        return parse_json(await self.body())


class JsonRoute(APIRoute):
    """A path whose requests are `JsonRequest`s: an object that has a key twice is refused."""

    def get_route_handler(self) -> Callable[[HttpRequest], Coroutine[Any, Any, Response]]:
        """Return what answers a request."""
        answer = super().get_route_handler()

        async def read(request: HttpRequest) -> Response:
            return await answer(JsonRequest(request.scope, request.receive, request._send))

        return read


def create_app(
    served: Served,
    token: AccessTokens | str | None = None,
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
    figures = ServerFigures(lambda: batcher.waiting, generations, reloader)
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
        redirect_slashes=False,  # it would redirect to http://, also behind a proxy with TLS
    )
    app.router.route_class = JsonRoute
    add_error_handlers(app)
    add_pages(app)
    answering = Answering(batcher, texts_per_minute)
    app.state.answering, app.state.reloader = answering, reloader
    add_endpoints(app, answering)
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


def problems(model: type[BaseModel]) -> dict[int | str, dict[str, Any]]:
    """Describe all errors of an endpoint, for its documentation, in the shape that they have."""
    return {status: {"model": model, "description": description} for status, description in PROBLEMS.items()}


def add_endpoints(app: FastAPI, answering: Answering) -> None:
    """Add our own endpoints, and those that clients of Cohere, OpenAI and TypeSafe expect at this address."""

    @app.post("/rank", responses=problems(Problem), response_description="The matches")
    async def rank(request: RankRequest, http: HttpRequest) -> RankResponse:
        """Rank candidates for a context: the request's, or those that the server was started with."""
        return await answering.rank(request, http)

    @app.post("/chat", responses=problems(Problem) | STREAMED, response_model=ChatResponse)
    async def chat(request: ChatRequest, http: HttpRequest) -> Any:
        """Reply to a conversation."""
        asked = PendingReply(answering, request, http)
        if "text/event-stream" in http.headers.get("accept", ""):
            return StreamingResponse(asked.events(), media_type="text/event-stream")
        return await asked.response()

    shape: Any = {"responses": problems(CohereProblem), "response_model_exclude_none": True}

    @app.post(RERANK_V1, response_description="The results", **shape)
    async def rerank_v1(request: RerankRequest, http: HttpRequest) -> RerankResponse:
        """Order documents by their relevance to a query, in the shape of Cohere's API, version 1."""
        return await answering.rerank(request, http, "1")

    @app.post(RERANK_V2, response_description="The results", **shape)
    async def rerank_v2(request: RerankRequest, http: HttpRequest) -> RerankResponse:
        """Order documents by their relevance to a query, in the shape of Cohere's API, version 2."""
        return await answering.rerank(request, http, "2")

    @app.post(EMBEDDINGS, responses=problems(OpenAIProblem), response_description="The vectors")
    async def embeddings(request: EmbeddingsRequest, http: HttpRequest) -> EmbeddingsResponse:
        """Encode candidates, or a bi-encoder's contexts, in the shape of OpenAI's API; a score is a dot product."""
        return await answering.embed(request, http)

    @app.post(SYSTEM_ONE, responses=problems(Problem), response_description="The answers")
    async def systemone(request: SystemOneRequest, http: HttpRequest) -> SystemOneResponse:
        """Decide between options, with probabilities if the model is calibrated, in the shape of TypeSafe's API."""
        return await answering.decide(request, http)

    @app.get(MODELS, include_in_schema=False)
    async def models(http: HttpRequest) -> Models:
        """List the one model of this server, in the shape of TypeSafe's API."""
        served = http.state.served
        calibrated = "calibrated" if served.score_map[1] else "not calibrated"
        described = f"A {served.kind} that chooses among options; {calibrated}."
        return Models(models=[ModelMetadata(name=served.model, description=described, release_date=served.date)])


def add_error_handlers(app: FastAPI) -> None:
    """Answer every error with one sentence in JSON; the server keeps running after each."""

    @app.exception_handler(RequestValidationError)
    async def invalid(request: HttpRequest, error: RequestValidationError) -> Response:
        return problem(request.url.path, sentence_of(error), 422)

    @app.exception_handler(StarletteHTTPException)
    async def refused(request: HttpRequest, error: StarletteHTTPException) -> Response:
        cause = error.__cause__
        sentences = {
            400: f"The body cannot be read as JSON{json_fault(cause) if isinstance(cause, ValueError) else ''}.",
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
    @app.exception_handler(FilterError)
    @app.exception_handler(UnencodableText)
    @app.exception_handler(EngineError)
    @app.exception_handler(Exception)  # raised again after the answer, and logged by uvicorn
    async def failed(request: HttpRequest, error: Exception) -> Response:
        status, sentence = failure(error)
        busy = {"Retry-After": "1"} if isinstance(error, QueueFull) else None
        return problem(request.url.path, sentence, status, busy)


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
