"""Answers requests, in their turn in the queue."""

import asyncio
import json
import time
import uuid
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import numpy as np
from fastapi import HTTPException
from fastapi import Request as HttpRequest

from polyagents.decisions.named_options import NamedOptions
from polyagents.decisions.scoring import SHORTLIST
from polyagents.evaluation.intervals import Floats
from polyagents.index.engines.engine import EngineError
from polyagents.index.filters import FilterError
from polyagents.index.top_k import top_k
from polyagents.ranker import Match, reordered
from polyagents.serving.batching import (
    ENCODE,
    RERANK,
    SEARCH,
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
from polyagents.serving.logs import LOG
from polyagents.serving.messages import CandidateSource, ChatRequest, ChatResponse, RankRequest, RankResponse, one_text
from polyagents.serving.openai_messages import EmbeddingsRequest, EmbeddingsResponse
from polyagents.serving.problems import Unanswerable, shortened
from polyagents.serving.served import Served, scores_by_text
from polyagents.serving.systemone_messages import (
    OWN,
    SystemOneRequest,
    SystemOneResponse,
    answer_of,
    message_text,
    options_of_question,
    own_set,
)
from polyagents.serving.systemone_messages import Usage as DecisionUsage
from polyagents.text.tokenizer import UnencodableText

CHAT_STEP = 16  # what /chat asks the model for is a multiple of it, so that chats can be ranked together


class Answering:
    """Answers requests by way of the queue."""

    def __init__(self, batcher: Batcher, texts_per_minute: int):
        self.batcher, self.rate = batcher, Rate(texts_per_minute)

    def ask(self, job: Job, http: HttpRequest, stage: str = SEARCH) -> Ticket:
        """Queue a job for the model, or for the second one if the stage is RERANK.

        Args:
            http: its state has the client, and what is served to it (reloading.py).

        Raises:
            Refused: 429, the client has used up its texts.
            QueueFull: too many requests wait.
        """
        client, served = getattr(http.state, "client", ""), http.state.served
        count_use(self.rate, client, served.reads if job.texts is None else len(job.texts), "texts")
        return self.batcher.ask(job, served.second or served if stage == RERANK else served, client, stage)

    async def done(self, job: Job, http: HttpRequest, stage: str = SEARCH) -> Any:
        """Queue a job as `ask` does, and wait for its result as long as the client does."""
        return await answer_to(self.ask(job, http, stage), http)

    async def reranked(self, found: RankingResult, context: str, top_k: int, http: HttpRequest) -> RankingResult:
        """Return the best matches of a result, ordered anew by the second model if there is one."""
        served: Served = http.state.served
        if served.second is None or not found.matches:
            return found
        shortlist = found.matches[: served.rerank_top]
        job = RankingJob(context, tuple(match.text for match in shortlist), min(top_k, len(shortlist)))
        again: RankingResult = await self.done(job, http, RERANK)
        return replace(found, matches=reordered(shortlist, again.matches), shortlist=found.matches)

    async def rank(self, request: RankRequest, http: HttpRequest) -> RankResponse:
        """Answer POST /rank; a client that has gone needs no answer, which `http` says."""
        begin = time.perf_counter()
        candidates = None if request.candidates is None else tuple(request.candidates)
        if candidates is not None and request.filter:
            raise Unanswerable("filter is for the server's own candidates; a request's candidates have no fields.")
        context, served = one_text(request.context), http.state.served
        where = served.candidates.filter(request.filter)
        job = RankingJob(context, candidates, served.rerank_top if served.second else request.top_k, where)
        result = await self.reranked(await self.done(job, http), context, request.top_k, http)
        source = source_of(served) if candidates is None else CandidateSource(name="request", size=len(candidates))
        return RankResponse(**RankResponse.of(result, source, milliseconds(begin)))

    async def rerank(self, request: RerankRequest, http: HttpRequest, version: str) -> RerankResponse:
        """Answer POST /v1/rerank and /v2/rerank, in order of relevance; raises as `RerankRequest.check` does."""
        served: Served = http.state.served
        request.check((served.second or served).document_tokens)
        places, every = request.filtered(), request.texts()
        texts = tuple(every[place] for place in places)
        matches: list[Match] = []
        if texts:
            job = RankingJob(one_text(request.query), texts, min(request.top_n or len(texts), len(texts)))
            result: RankingResult = await self.done(job, http, RERANK if served.second else SEARCH)
            matches = [replace(match, index=places[match.index]) for match in result.matches]
        return RerankResponse(
            id=str(uuid.uuid4()),
            results=[result_of(match, request) for match in matches],
            meta=RerankMeta(api_version=ApiVersion(version=version)),
        )

    async def embed(self, request: EmbeddingsRequest, http: HttpRequest) -> EmbeddingsResponse:
        """Answer POST /v1/embeddings, one vector per text; Unanswerable if there are none, or of another width."""
        job = EncodingJob(request.texts(), are_contexts=request.input_type == "query")
        encoding: Encoding = await self.done(job, http, ENCODE)
        width = encoding.vectors.shape[1]
        if request.dimensions not in (None, width):
            wanted = shortened(request.dimensions)
            raise Unanswerable(f"dimensions is {wanted}, and this model's vectors have {width}; omit it.")
        return EmbeddingsResponse.of(encoding, http.state.served.model, request.encoding_format)

    async def decide(self, request: SystemOneRequest, http: HttpRequest) -> SystemOneResponse:
        """Answer POST /v1/systemone: the model reads the state and the options of all questions once.

        Unanswerable if a question has no options that the model could read, or needs a calibration.
        """
        context, served = message_text(request.state), http.state.served
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
            found = await self.done(RankingJob(context, texts, len(texts)), http)
            score = {match.text: match.score for match in found.matches}
        own: list[Match] = []
        if any(named.values()):
            own = (await self.done(RankingJob(context, None, SHORTLIST), http)).matches
            if not own:
                raise NothingLeft("All candidates have been removed; there is nothing to choose.")
        own_names, own_scores = scores_by_text(own)
        used, calibrated = served.score_map
        answers = {}
        for name, question in request.questions.items():
            asked = options.get(name) or NamedOptions.plain([*own_names])
            scores = served.option_scores(asked, score) if name in options else own_scores
            last = await self.last_scores(context, asked, scores, http)
            probabilities, none = used.probabilities_of(scores, last)
            by_name = dict(zip(asked.names, probabilities.tolist(), strict=True))
            answers[name] = answer_of(question, by_name, none, used, calibrated)
        tokens = await asyncio.to_thread(served.count_tokens, context, texts)
        return SystemOneResponse(model=served.model, answers=answers, usage=DecisionUsage(input_tokens=tokens))

    async def last_scores(
        self, context: str, options: NamedOptions, scores: Floats, http: HttpRequest
    ) -> Floats | None:
        """Return the second model's scores [O] of the best options by scores [O], -inf for others; None without one."""
        served: Served = http.state.served
        if served.second is None:
            return None
        chosen = top_k(scores, served.rerank_top).tolist()
        part = options.part(chosen)
        job = RankingJob(context, tuple(part.texts), len(part.texts))
        found: RankingResult = await self.done(job, http, RERANK)
        last = np.full(len(scores), -np.inf)
        last[chosen] = served.second.option_scores(part, {match.text: match.score for match in found.matches})
        return last


def source_of(served: Served) -> CandidateSource:
    """Return the server's own candidates as an answer names them."""
    return CandidateSource(name=served.source, size=served.size)


class NothingLeft(EngineError):
    """An engine answers, but has no candidates left."""


class PendingReply:
    """The reply of POST /chat, whose job is in the queue."""

    def __init__(self, answering: Answering, request: ChatRequest, http: HttpRequest):
        self.begin = time.perf_counter()
        self.answering, self.http, self.top_k = answering, http, request.top_k
        self.served: Served = http.state.served
        self.source = source_of(self.served)
        self.context = "\n".join([*request.persona, *request.history])
        self.said = set(self.context.split("\n"))
        wanted = request.top_k + min(len(self.said), TURNS)
        if self.served.score_map[1]:
            wanted = max(wanted, SHORTLIST)
        if self.served.second is not None:
            wanted = max(wanted, self.served.rerank_top)
        wanted = -(-wanted // CHAT_STEP) * CHAT_STEP
        self.ticket = answering.ask(RankingJob(self.context, None, wanted), http)

    async def response(self) -> ChatResponse:
        """Wait for the reply; as in `interactive`, it repeats no reply unless nothing else remains."""
        found: RankingResult = await answer_to(self.ticket, self.http)
        result = await self.answering.reranked(found, self.context, len(found.matches), self.http)
        fields = RankResponse.of(result, self.source, milliseconds(self.begin))
        fresh = [match for match in fields["matches"] if match.text not in self.said] or fields["matches"]
        if not fresh:
            raise NothingLeft("All candidates have been removed; there is nothing to reply.")
        certain = self.served.certainty(result, fresh[0].text)
        return ChatResponse(**fields | {"matches": fresh[: self.top_k], "text": fresh[0].text} | certain)

    async def events(self) -> AsyncIterator[str]:
        """Yield what happens to the message, as server-sent events, when it happens."""
        self.http.state.is_streamed = True
        yield event("queued", {"ahead": self.ticket.ahead})
        try:
            started, result = self.ticket.started, self.ticket.result
            await asyncio.wait([started, result], return_when=asyncio.FIRST_COMPLETED)
            if started.done():
                yield event("ranking", {"together": started.result(), "candidates": self.source.model_dump()})
            yield event("reply", (await self.response()).model_dump())
        except Exception as error:
            LOG.error("The model failed", exc_info=error)
            yield event("error", {"error": failure(error)[1]})
        finally:
            self.ticket.result.cancel()  # the client may have gone


async def answer_to(ticket: Ticket, http: HttpRequest) -> Any:
    """Wait for a job's result as long as its client does, and note what its stage took, for the header and the log."""
    is_streamed = getattr(http.state, "is_streamed", False)  # then Starlette itself notices that the client has gone
    result = await (ticket.result if is_streamed else wanted_still(ticket.result, http))
    took: dict[str, float] = http.state.took
    took[ticket.stage] = took.get(ticket.stage, 0.0) + ticket.seconds
    return result


async def wanted_still(result: "asyncio.Future[Any]", http: HttpRequest) -> Any:
    """Wait for a result as long as its client does; if that goes, the result is cancelled (batching.py skips it)."""
    gone = asyncio.ensure_future(wait_until_gone(http))
    try:
        either: set[asyncio.Future[Any]] = {result, gone}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not result.done():
            raise HTTPException(499, "The client has closed the connection.")  # nobody reads it
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
        LOG.error("%s", error)
        return 503, "The engine of the candidates does not answer; ask again in a moment. The server's log says more."
    if isinstance(error, Unanswerable | FilterError | UnencodableText):
        return 422, str(error)
    return 500, f"The model failed with {type(error).__name__}; the server's log says more."
