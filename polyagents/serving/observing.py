"""Shows others the state of the server: probes for a proxy, figures for Prometheus."""

import asyncio
import functools
import logging
import time
from collections.abc import Callable, Iterator, Sequence

from fastapi import FastAPI
from fastapi import Request as HttpRequest
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from polyagents.serving.guard import adding_headers
from polyagents.serving.logs import LOG, REQUEST_ID, begin_request
from polyagents.serving.problems import EMBEDDINGS, MODELS, RERANK_V1, RERANK_V2, SYSTEM_ONE
from polyagents.serving.reloading import RELOAD, Generations, Reloader
from polyagents.serving.worker_thread import WorkerThread

HEALTH, READY, METRICS = "/healthz", "/readyz", "/metrics"
OTHERS = (RERANK_V1, RERANK_V2, EMBEDDINGS, SYSTEM_ONE, MODELS)
PROBES = (HEALTH, READY, METRICS)
# All other paths count together.
PATHS = ("/", "/rank", "/chat", *OTHERS, RELOAD, "/docs", "/openapi.json", *PROBES)
SHOWN = 2_000  # characters of a path or a body in a log
SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)
TOGETHER = (1, 2, 4, 8, 16, 32)
STALE = 1.0  # seconds for which a probe is answered as the one before


class ServerFigures:
    """Figures since the start of the server, in Prometheus's terms."""

    def __init__(self, waiting: Callable[[], int], generations: Generations, reloader: Reloader | None):
        """Start counting; `waiting` returns how many requests wait for the model now."""
        registry = self.registry = CollectorRegistry()
        self.generations, self.reloader = generations, reloader
        registry.register(self)
        ProcessCollector(registry=registry)
        GCCollector(registry=registry)
        histogram = functools.partial(Histogram, registry=registry)
        self.requests = Counter(
            "polyagents_requests", "Requests that were answered", ["path", "status"], registry=registry
        )
        self.seconds = histogram(
            "polyagents_request_seconds", "From a request's headers to the end of its answer", ["path"], buckets=SECONDS
        )
        self.together = histogram(
            "polyagents_batch_size", "Requests that one call of the model answered", ["stage"], buckets=TOGETHER
        )
        self.model_seconds = histogram(
            "polyagents_batch_seconds", "One call of the model, with its search", ["stage"], buckets=SECONDS
        )
        Gauge("polyagents_waiting", "Requests that wait for the model", registry=registry).set_function(waiting)

    def collect(self) -> Iterator[Metric]:
        """Yield what is served, and how its last changes went, as Prometheus asks."""
        names, values = zip(*self.generations.current.trace.items(), strict=True)
        yield gauge("polyagents_served", "1, with what answers as labels", 1, names, values)
        yield gauge("polyagents_served_since_seconds", "When it was put there, since 1970", self.generations.since)
        yield gauge("polyagents_generations", "Generations in memory, older ones too", len(self.generations))
        if (reloader := self.reloader) is None:
            return
        reloads = CounterMetricFamily("polyagents_reloads", "New generations: done or refused", labels=["result"])
        for result, count in reloader.results.items():
            reloads.add_metric([result], count)
        yield reloads
        yield gauge("polyagents_reload_refused", "Whether newer files were refused", reloader.is_refused)
        yield gauge("polyagents_reload_seconds", "How long the last served one took to load", reloader.seconds)

    def answered(self, stage: str, jobs: int, seconds: float) -> None:
        """Count a call of the model for a stage of requests, and how many jobs it did."""
        self.together.labels(stage).observe(jobs)
        self.model_seconds.labels(stage).observe(seconds)


def gauge(
    name: str, description: str, value: float, labels: Sequence[str] = (), values: Sequence[str] = ()
) -> GaugeMetricFamily:
    """Make a figure with one value."""
    found = GaugeMetricFamily(name, description, labels=labels)
    found.add_metric(values, value)
    return found


class Observed:
    """An ASGI application whose requests get an id, and are counted and logged when they were answered."""

    def __init__(self, app: ASGIApp, figures: ServerFigures):
        self.app, self.figures = app, figures

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on; the header of its answer has its id."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begin, status = time.perf_counter(), "none"  # "none" stays if the client has gone
        identified = adding_headers(send, {REQUEST_ID: begin_request(scope)})

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = str(message["status"])
            await identified(message)

        try:
            await self.app(scope, receive, noted)
        finally:
            seconds = time.perf_counter() - begin
            path = scope["path"] if scope["path"] in PATHS else "other"  # a stranger must not create labels
            self.figures.requests.labels(path, status).inc()
            self.figures.seconds.labels(path).observe(seconds)
            log_request(scope, status, seconds)


def log_request(scope: Scope, status: str, seconds: float) -> None:
    """Write the line of a request: without its texts, which only --log-level debug adds."""
    is_probe = scope["path"] in PROBES and status == "200"
    level = logging.DEBUG if is_probe else logging.WARNING if status.startswith("5") else logging.INFO
    if not LOG.isEnabledFor(level):
        return
    state = scope.get("state", {})
    fields = {"method": scope["method"], "path": scope["path"][:SHOWN], "status": status, "ms": round(seconds * 1e3, 1)}
    fields |= {"client": state["client"]} if "client" in state else {}
    fields |= {f"{stage}_ms": round(took * 1e3, 1) for stage, took in state.get("took", {}).items()}
    fields |= state["served"].trace if "served" in state else {}
    if LOG.isEnabledFor(logging.DEBUG) and "body" in state:
        fields["body"] = state["body"].decode("utf-8", "replace")[:SHOWN]
    LOG.log(level, "request", extra={"fields": fields})


class Readiness:
    """Whether requests can be answered, which a check raises an error to deny; checked at most once in STALE seconds.

    The error is only logged.
    """

    def __init__(self) -> None:
        self.checked = -STALE
        self.lock, self.thread = asyncio.Lock(), WorkerThread("check")
        self.is_ready = True

    async def asked(self, check: Callable[[], None]) -> bool:
        """Return whether requests can be answered."""
        async with self.lock:
            if time.monotonic() - self.checked >= STALE:
                try:
                    await self.thread.do(check)  # other pages are answered in the meantime
                    self.is_ready = True
                except Exception as error:
                    if self.is_ready:
                        LOG.error("The candidates cannot be searched: %s", error)
                    self.is_ready = False
                self.checked = time.monotonic()
            return self.is_ready


def add_probes(app: FastAPI, figures: ServerFigures, answers: Callable[[], bool]) -> None:
    """Add /healthz, /readyz, which is 503 too if the candidates cannot be searched, and /metrics.

    Args:
        answers: returns whether the model answers, which both probes report.
    """
    stuck = JSONResponse({"error": "The model does not answer; the server must be started again."}, 503)
    readiness = Readiness()

    @app.get(HEALTH, include_in_schema=False)
    async def health(http: HttpRequest) -> Response:
        return JSONResponse({"status": "ok", **http.state.served.trace}) if answers() else stuck

    @app.get(READY, include_in_schema=False)
    async def ready(http: HttpRequest) -> Response:
        if not answers():
            return stuck
        if await readiness.asked(http.state.served.check):
            reload = {} if figures.reloader is None else {"reload": figures.reloader.state}
            return JSONResponse({"status": "ready", **reload})
        return JSONResponse({"error": "The candidates cannot be searched; the server's log says why."}, 503)

    @app.get(METRICS, include_in_schema=False)
    async def metrics() -> Response:
        return PlainTextResponse(generate_latest(figures.registry), media_type=CONTENT_TYPE_LATEST)
