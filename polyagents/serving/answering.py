"""Answers to requests, by way of the queue."""

import asyncio
import json
import logging
import time
import uuid
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any

from fastapi import HTTPException
from fastapi import Request as HttpRequest

from polyagents.console import say
from polyagents.decisions.scoring import SHORTLIST
from polyagents.index.engines.engine import EngineError
from polyagents.index.filters import Filter, FilterError
from polyagents.index.interface import Index
from polyagents.ranker import Match
from polyagents.serving.batching import (
    Batcher,
    Encoding,
    EncodingJob,
    Job,
    QueueFull,
    RankingJob,
    RankingResult,
    Ticket,
)
from polyagents.serving.cohere_messages import ApiVersion, RerankMeta, RerankRequest, RerankResponse, result_of
from polyagents.serving.guard import count_use
from polyagents.serving.limits import TURNS, Rate
from polyagents.serving.messages import CandidateSource, ChatRequest, ChatResponse, RankRequest, RankResponse, one_text
from polyagents.serving.openai_messages import EmbeddingsRequest, EmbeddingsResponse
from polyagents.serving.problems import Unanswerable
from polyagents.serving.sentences import shortened
from polyagents.serving.served import Served, scores_by_text
from polyagents.serving.systemone_messages import (
    OWN,
    ModelMetadata,
    Models,
    SystemOneRequest,
    SystemOneResponse,
    answer_of,
    options_of_question,
    own_set,
    text_of,
)
from polyagents.serving.systemone_messages import Usage as DecisionUsage
from polyagents.text.tokenizer import UnencodableText

CHAT_STEP = 16  # what /chat asks the model for is a multiple of it, so that chats can be ranked together


class Answering:
    """Answers requests by way of the queue."""

    def __init__(self, served: Served, batcher: Batcher, texts_per_minute: int):
        self.batcher, self.served = batcher, served
        self.source = CandidateSource(name=served.source, size=served.size)
        self.rate = Rate(texts_per_minute)

    def ask(self, job: Job, texts: int, http: HttpRequest) -> Ticket:
        """Queue a job for which the model will read that many texts; the HTTP request's state has the client.

        Raises:
            Refused: 429, the client has used up its texts.
            QueueFull: too many requests wait.
        """
        client = getattr(http.state, "client", "")
        count_use(self.rate, client, texts, "texts")
        return self.batcher.ask(job, client)

    async def rank(self, request: RankRequest, http: HttpRequest) -> RankResponse:
        """Answer POST /rank; a client that has gone needs no answer, which `http` says."""
        begin = time.perf_counter()
        candidates = None if request.candidates is None else tuple(request.candidates)
        if candidates is not None and request.filter:
            raise Unanswerable("filter is for the server's own candidates; those of a request have no fields.")
        where = checked_filter(self.served.candidates, request.filter)
        job = RankingJob(one_text(request.context), candidates, request.top_k, where)
        texts = self.served.reads if candidates is None else len(candidates)
        result = await wanted_still(self.ask(job, texts, http).result, http)
        source = self.source if candidates is None else CandidateSource(name="request", size=len(candidates))
        return RankResponse(**RankResponse.of(result, source, milliseconds(begin)))

    async def rerank(self, request: RerankRequest, http: HttpRequest, version: str) -> RerankResponse:
        """Answer POST /v1/rerank and /v2/rerank, by the version of Cohere's API, in order of relevance.

        Raises:
            Unanswerable: it asks for what the server does not do, such as to read less of the documents.
        """
        request.check(self.served.document_tokens)
        places, every = request.filtered(), request.texts()
        texts = tuple(every[place] for place in places)
        matches: list[Match] = []
        if texts:
            job = RankingJob(one_text(request.query), texts, min(request.top_n or len(texts), len(texts)))
            result: RankingResult = await wanted_still(self.ask(job, len(texts), http).result, http)
            matches = [replace(match, index=places[match.index]) for match in result.matches]
        return RerankResponse(
            id=str(uuid.uuid4()),
            results=[result_of(match, request) for match in matches],
            meta=RerankMeta(api_version=ApiVersion(version=version)),
        )

    async def embed(self, request: EmbeddingsRequest, http: HttpRequest) -> EmbeddingsResponse:
        """Answer POST /v1/embeddings with one vector per text.

        Raises:
            Unanswerable: the model's vectors have another width than the request wants, or there are none.
        """
        job = EncodingJob(request.texts(), are_contexts=request.input_type == "query")
        encoding: Encoding = await wanted_still(self.ask(job, len(job.texts), http).result, http)
        width = encoding.vectors.shape[1]
        if request.dimensions not in (None, width):
            wanted = shortened(request.dimensions)
            raise Unanswerable(f"dimensions is {wanted}, and this model's vectors have {width}; omit it.")
        return EmbeddingsResponse.of(encoding, self.served.model, request.encoding_format)

    async def decide(self, request: SystemOneRequest, http: HttpRequest) -> SystemOneResponse:
        """Answer POST /v1/systemone: the model reads the state and the options of all questions once.

        Raises:
            Unanswerable: a question has no options that the model could read, or needs a calibration.
        """
        context, served = text_of(request.state), self.served
        named = {name: own_set(question) for name, question in request.questions.items()}
        if unknown := [one for one in named.values() if one not in (None, served.source)]:
            raise Unanswerable(
                f"There is no set {OWN}{unknown[0][:40]} of candidates here; there is {OWN}{served.source}."
            )
        options = {
            name: options_of_question(name, question)
            for name, question in request.questions.items()
            if named[name] is None
        }
        texts = tuple(dict.fromkeys(text for one in options.values() for text in one.texts))
        score: dict[str, float] = {}
        if texts:
            found = await wanted_still(self.ask(RankingJob(context, texts, len(texts)), len(texts), http).result, http)
            score = {match.text: match.score for match in found.matches}
        own: list[Match] = []
        if any(named.values()):
            job = RankingJob(context, None, SHORTLIST)
            own = (await wanted_still(self.ask(job, served.reads, http).result, http)).matches
            if not own:
                raise NothingLeft("All candidates have been removed; there is nothing to choose.")
        used, calibrated = served.score_map
        answers = {}
        for name, question in request.questions.items():
            names, scores = served.option_scores(options[name], score) if name in options else scores_by_text(own)
            probabilities, none = used.probabilities_of(scores)
            by_name = dict(zip(names, probabilities.tolist(), strict=True))
            answers[name] = answer_of(question, by_name, none, used, calibrated)
        tokens = await asyncio.to_thread(served.count_tokens, context, texts)
        return SystemOneResponse(model=served.model, answers=answers, usage=DecisionUsage(input_tokens=tokens))

    def models(self) -> Models:
        """Answer GET /v1/models."""
        served = self.served
        calibrated = "calibrated" if served.score_map[1] else "not calibrated"
        described = f"A {served.kind} that chooses among options; {calibrated}."
        return Models(models=[ModelMetadata(name=served.model, description=described, release_date=served.date)])

    def chat(self, request: ChatRequest, http: HttpRequest) -> "PendingReply":
        """Queue the job of POST /chat."""
        context = "\n".join([*request.persona, *request.history])
        said = set(context.split("\n"))
        wanted = request.top_k + min(len(said), TURNS)
        if self.served.score_map[1]:
            wanted = max(wanted, SHORTLIST)
        wanted = -(-wanted // CHAT_STEP) * CHAT_STEP
        ticket = self.ask(RankingJob(context, None, wanted), self.served.reads, http)
        return PendingReply(ticket, said, request.top_k, self.source, self.served)


def checked_filter(candidates: Index, given: Mapping[str, Any] | None) -> Filter | None:
    """Check a request's filter against the candidates' fields.

    Raises:
        Unanswerable: it names an unknown field, or a value of another kind.
    """
    if not given:
        return None
    try:
        return candidates.filter(given)
    except FilterError as error:
        raise Unanswerable(str(error)) from error


class NothingLeft(EngineError):
    """An engine answers, but has no candidates left."""


class PendingReply:
    """A message whose reply is being computed."""

    def __init__(self, ticket: Ticket, said: set[str], top_k: int, source: CandidateSource, served: Served):
        self.begin = time.perf_counter()
        self.ticket, self.said, self.top_k, self.source, self.served = ticket, said, top_k, source, served

    async def response(self, http: HttpRequest | None = None) -> ChatResponse:
        """Wait for the reply; as in `interactive`, it repeats no reply unless nothing else remains.

        Args:
            http: the request, if nobody else notices that its client has gone.
        """
        result = await (wanted_still(self.ticket.result, http) if http else self.ticket.result)
        fields = RankResponse.of(result, self.source, milliseconds(self.begin))
        fresh = [match for match in fields["matches"] if match.text not in self.said] or fields["matches"]
        if not fresh:
            raise NothingLeft("All candidates have been removed; there is nothing to reply.")
        certain = self.served.certainty(result.matches, fresh[0].text)
        return ChatResponse(**fields | {"matches": fresh[: self.top_k], "text": fresh[0].text} | certain)

    async def events(self) -> AsyncIterator[str]:
        """Yield what happens to the message, as server-sent events, when it happens."""
        yield event("queued", {"ahead": self.ticket.ahead})
        try:
            started, result = self.ticket.started, self.ticket.result
            await asyncio.wait([started, result], return_when=asyncio.FIRST_COMPLETED)
            if started.done():
                yield event("ranking", {"together": started.result(), "candidates": self.source.model_dump()})
            yield event("reply", (await self.response()).model_dump())
        except Exception as error:
            logging.getLogger("uvicorn.error").error("The model failed", exc_info=error)
            yield event("error", {"error": failure(error)[1]})
        finally:
            self.ticket.result.cancel()  # the client may have gone


async def wanted_still(result: "asyncio.Future[Any]", http: HttpRequest) -> Any:
    """Wait for a result as long as its client does; if the client goes, the result is cancelled (batching.py skips it).

    Raises:
        HTTPException: 499, which nobody reads, since the client has gone.
    """
    gone = asyncio.ensure_future(wait_until_gone(http))
    try:
        either: set[asyncio.Future[Any]] = {result, gone}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not result.done():
            raise HTTPException(499, "The client has closed the connection.")
        return result.result()
    finally:
        gone.cancel()
        result.cancel()


async def wait_until_gone(http: HttpRequest) -> None:
    """Wait until a client has gone."""
    while (await http.receive())["type"] != "http.disconnect":
        pass


def event(name: str, data: dict[str, Any]) -> str:
    """Write one server-sent event of a kind such as `reply`, with its blank line."""
    return f"event: {name}\ndata: {json.dumps(data)}\n\n"


def milliseconds(begin: float) -> float:
    """Return the time since a moment of `time.perf_counter`."""
    return (time.perf_counter() - begin) * 1e3


def failure(error: Exception) -> tuple[int, str]:
    """Return status and sentence for an error of the model, of its queue, or of the engine of its candidates.

    Other errors' own sentences may name files and addresses, which are not for whoever may ask; the server's log has
    them.
    """
    if isinstance(error, QueueFull):
        return 503, "Too many requests wait for the model; ask again in a second."
    if isinstance(error, NothingLeft):
        return 503, str(error)
    if isinstance(error, EngineError):
        say(str(error))
        return 503, "The engine of the candidates does not answer; ask again in a moment. The server's log says more."
    if isinstance(error, Unanswerable | UnencodableText):
        return 422, str(error)
    return 500, f"The model failed with {type(error).__name__}; the server's log says more."
