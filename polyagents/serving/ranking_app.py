"""The application: a chat page, POST /rank and POST /chat, and a page that describes them."""

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from fastapi import FastAPI, HTTPException
from fastapi import Request as HttpRequest
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from fastapi.staticfiles import StaticFiles
from jinja2 import Environment, FileSystemLoader, select_autoescape
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.types import ASGIApp

from polyagents.console import say
from polyagents.errors import InputError
from polyagents.index.engines.engine import EngineError
from polyagents.serving.batching import Batcher, QueueFull, RankingJob, RankingResult, Ticket
from polyagents.serving.guard import Guard
from polyagents.serving.limits import REQUESTS_PER_MINUTE, TOGETHER, TURNS, WAITING
from polyagents.serving.messages import CandidateSource, ChatRequest, ChatResponse, Problem, RankRequest, RankResponse
from polyagents.serving.observing import HEALTH, READY, Counted, Figures, add_probes
from polyagents.serving.sentences import sentence_of
from polyagents.serving.served import Served

HERE = Path(__file__).parent
PAGES = Environment(
    loader=FileSystemLoader(HERE / "templates"), autoescape=select_autoescape(), trim_blocks=True, lstrip_blocks=True
)
PROBLEMS: dict[int | str, dict[str, Any]] = {
    400: {"model": Problem, "description": "The body is not JSON, or did not come whole"},
    401: {"model": Problem, "description": "The token is missing or wrong"},
    403: {"model": Problem, "description": "Another site's page asks, or without a token a name but this machine's"},
    408: {"model": Problem, "description": "The body did not arrive in time"},
    413: {"model": Problem, "description": "The body is too large"},
    415: {"model": Problem, "description": "The body is not said to be JSON"},
    422: {"model": Problem, "description": "A field is not what it must be"},
    429: {"model": Problem, "description": "Too many requests of this client; Retry-After says when to come again"},
    500: {"model": Problem, "description": "The model failed"},
    503: {
        "model": Problem,
        "description": "Too many requests wait for the model, or the engine of its candidates does not answer",
    },
}
STREAMED: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The reply; where Accept asks for text/event-stream, the events queued, ranking, reply "
        "(or error) as they happen",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}
CHAT_STEP = 16  # what /chat asks the model for is a multiple of it, so that chats can be ranked together


def create_app(
    served: Served,
    token: str | None = None,
    per_minute: int = REQUESTS_PER_MINUTE,
    together: int = TOGETHER,
    waiting: int = WAITING,
) -> ASGIApp:
    """Make an ASGI application that serves one model.

    Args:
        served: the model and its candidates.
        token: what every request must bring; None lets in all that is addressed to this machine itself.
        per_minute: how many requests one client may send in a minute.
        together: how many requests are ranked at once, at most.
        waiting: how many requests may wait for the model.
    """
    figures = Figures(lambda: len(batcher.waiting))
    batcher = Batcher(served.rank, served.length_class, together, waiting, figures.ranked)

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        worker = asyncio.create_task(batcher.run())
        yield
        worker.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await worker

    app = FastAPI(
        title=f"polyagents: {served.model}",
        description=f"A {served.kind} and its {served.size:,} candidates ({served.source}).",
        version="1",
        lifespan=lifespan,
        docs_url=None,  # FastAPI's pages load scripts from elsewhere
        redoc_url=None,
    )
    add_error_handlers(app)
    add_pages(app, served)
    add_endpoints(app, Answering(served, batcher))
    add_probes(app, figures, served.check)
    app.mount("/static", StaticFiles(directory=HERE / "static"))
    return Counted(Guard(app, token, per_minute, open_to_all=(HEALTH, READY)), figures)


class Answering:
    """Answers requests by way of the queue."""

    def __init__(self, served: Served, batcher: Batcher):
        self.batcher = batcher
        self.source = CandidateSource(name=served.source, size=served.size)

    def ask(self, job: RankingJob) -> Ticket:
        """Queue a job.

        Raises:
            HTTPException: 503, where the queue is full.
        """
        try:
            return self.batcher.ask(job)
        except QueueFull as error:
            raise HTTPException(
                503, "Too many requests wait for the model; ask again in a second.", {"Retry-After": "1"}
            ) from error

    async def rank(self, request: RankRequest, http: HttpRequest) -> RankResponse:
        """Answer POST /rank."""
        begin = time.perf_counter()
        context = request.context if isinstance(request.context, str) else "\n".join(request.context)
        candidates = None if request.candidates is None else tuple(request.candidates)
        result = await wanted_still(self.ask(RankingJob(context, candidates, request.top_k)).result, http)
        source = self.source if candidates is None else CandidateSource(name="request", size=len(candidates))
        return RankResponse(**RankResponse.of(result, source, milliseconds(begin)))

    def chat(self, request: ChatRequest) -> "PendingReply":
        """Queue what POST /chat asks for."""
        context = "\n".join([*request.persona, *request.history])
        said = set(context.split("\n"))
        wanted = request.top_k + min(len(said), TURNS)
        wanted = -(-wanted // CHAT_STEP) * CHAT_STEP
        return PendingReply(self.ask(RankingJob(context, None, wanted)), said, request.top_k, self.source)


class NothingLeft(EngineError):
    """An engine answers, and has no candidate any more."""


class PendingReply:
    """A message whose reply is on its way."""

    def __init__(self, ticket: Ticket, said: set[str], top_k: int, source: CandidateSource):
        self.begin = time.perf_counter()
        self.ticket, self.said, self.top_k, self.source = ticket, said, top_k, source

    async def response(self, http: HttpRequest | None = None) -> ChatResponse:
        """Wait for the reply; as in `interactive` it repeats nothing, unless nothing else remains.

        Args:
            http: the request, where nobody else notices that its client has gone.
        """
        result = await (wanted_still(self.ticket.result, http) if http else self.ticket.result)
        fields = RankResponse.of(result, self.source, milliseconds(self.begin))
        fresh = [match for match in fields["matches"] if match.text not in self.said] or fields["matches"]
        if not fresh:
            raise NothingLeft("All candidates have been removed; there is nothing to reply.")
        return ChatResponse(**fields | {"matches": fresh[: self.top_k], "text": fresh[0].text})

    async def events(self) -> AsyncIterator[str]:
        """Yield what happens to the message, as server-sent events, when it happens."""
        yield event("queued", {"ahead": self.ticket.ahead})
        try:
            together = await self.ticket.started
            yield event("ranking", {"together": together, "candidates": self.source.model_dump()})
            yield event("reply", (await self.response()).model_dump())
        except Exception as error:
            logging.getLogger("uvicorn.error").error("The model failed", exc_info=error)
            yield event("error", {"error": failure(error)[1]})
        finally:
            self.ticket.result.cancel()  # the client may have gone


async def wanted_still(result: "asyncio.Future[RankingResult]", http: HttpRequest) -> RankingResult:
    """Wait for a result as long as its client does; one that nobody waits for is not ranked (batching.py).

    Raises:
        HTTPException: 499, which nobody reads: the client has gone.
    """
    gone = asyncio.ensure_future(left(http))
    try:
        either: set[asyncio.Future[Any]] = {result, gone}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not result.done():
            raise HTTPException(499, "The client has closed the connection.")
        return result.result()
    finally:
        gone.cancel()
        result.cancel()


async def left(http: HttpRequest) -> None:
    """Wait until a client has gone."""
    while (await http.receive())["type"] != "http.disconnect":
        pass


def event(name: str, data: dict[str, Any]) -> str:
    """Write one server-sent event."""
    return f"event: {name}\ndata: {json.dumps(data)}\n\n"


def milliseconds(begin: float) -> float:
    """Return the time since a moment of `time.perf_counter`."""
    return (time.perf_counter() - begin) * 1e3


def add_endpoints(app: FastAPI, answering: Answering) -> None:
    """Add POST /rank and POST /chat."""

    @app.post("/rank", responses=PROBLEMS, response_description="The matches")
    async def rank(request: RankRequest, http: HttpRequest) -> RankResponse:
        """Rank candidates for a context: those of the request, or those that the server was started with."""
        return await answering.rank(request, http)

    @app.post("/chat", responses=PROBLEMS | STREAMED, response_model=ChatResponse)
    async def chat(request: ChatRequest, http: HttpRequest) -> Any:
        """Reply to a conversation."""
        asked = answering.chat(request)
        if "text/event-stream" in http.headers.get("accept", ""):
            return StreamingResponse(asked.events(), media_type="text/event-stream")
        return await asked.response(http)


def add_pages(app: FastAPI, served: Served) -> None:
    """Add the chat and the description of the endpoints; neither page loads anything from elsewhere."""
    chat = PAGES.get_template("chat.html").render(served=served, size=served.size)

    @app.get("/", include_in_schema=False)
    async def page() -> HTMLResponse:
        return HTMLResponse(chat)

    @app.get("/docs", include_in_schema=False)
    async def docs(request: HttpRequest) -> HTMLResponse:
        address = str(request.base_url).rstrip("/")
        return HTMLResponse(PAGES.get_template("docs.html").render(api=app.openapi(), address=address))


def add_error_handlers(app: FastAPI) -> None:
    """Answer every error with one sentence in JSON; the server keeps running after each."""

    @app.exception_handler(RequestValidationError)
    async def invalid(_: HttpRequest, error: RequestValidationError) -> Response:
        return JSONResponse({"error": sentence_of(error)}, 422)

    @app.exception_handler(StarletteHTTPException)
    async def refused(request: HttpRequest, error: StarletteHTTPException) -> Response:
        sentences = {
            400: "The body cannot be read as JSON.",
            404: "There is no such page; there are /, /docs, /openapi.json, /healthz, /readyz, /metrics, POST /rank "
            "and POST /chat.",
            405: f"{request.method} is not possible here; /docs says what is.",
        }
        return JSONResponse(
            {"error": sentences.get(error.status_code, error.detail)}, error.status_code, dict(error.headers or {})
        )

    @app.exception_handler(InputError)
    @app.exception_handler(Exception)  # is raised again once it is answered, and uvicorn logs it
    async def failed(_: HttpRequest, error: Exception) -> Response:
        status, sentence = failure(error)
        return JSONResponse({"error": sentence}, status)


def failure(error: Exception) -> tuple[int, str]:
    """Return status and sentence of what the model, or the engine of its candidates, raised.

    An engine's own sentence names its address, which is not for whoever may ask; it goes to the server's log.
    """
    if isinstance(error, NothingLeft):
        return 503, str(error)
    if isinstance(error, EngineError):
        say(str(error))
        return 503, "The engine of the candidates does not answer; ask again in a moment. The server's log says more."
    if isinstance(error, InputError):
        return 422, str(error)
    return 500, f"The model failed with {type(error).__name__}; the server's log says more."
