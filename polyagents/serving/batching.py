"""Requests of many users, answered together by the one thread that owns the model.

Nobody waits for company: what has come in while the model was busy is answered together as soon as it is free.
"""

import asyncio
import itertools
import time
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from polyagents.index.engines.engine import EngineError
from polyagents.ranker import Match
from polyagents.serving.limits import TOGETHER, WAITING

ContextMatches = tuple[list[Match], bool]
"""The matches of one context, and whether they are complete (Ranker.search)."""


class QueueFull(Exception):
    """As many requests wait for the model as may."""


@dataclass(frozen=True)
class Encoding:
    """Encoded texts.

    Attributes:
        vectors: fp32 [N, D], in the order of the texts.
        tokens: how many tokens of each text the model has read, those that it puts around a text counted.
    """

    vectors: np.ndarray
    tokens: list[int]

    def part(self, start: int, stop: int) -> "Encoding":
        """Return that of some of the texts."""
        return Encoding(self.vectors[start:stop], self.tokens[start:stop])


class Model(Protocol):
    """What a batcher asks: a `Served`."""

    def rank(self, contexts: Sequence[str], candidates: tuple[str, ...] | None, top_k: int) -> list[ContextMatches]:
        """Rank candidates, or the server's own where they are None, for every context."""
        ...

    def encode(self, texts: Sequence[str], are_contexts: bool) -> Encoding:
        """Encode contexts, or candidates."""
        ...

    def length_class(self, text: str) -> int:
        """Tell which texts are worth reading in one call: those of one class."""
        ...


class Job(Protocol):
    """What one request wants of the model."""

    def kind(self, model: Model) -> Hashable:
        """Return what it has in common with the jobs that one call of the model does with it."""
        ...

    def do(self, model: Model, jobs: Sequence[Any]) -> Sequence[Any]:
        """Do jobs of one kind, this one among them, in one call of the model: a result for each."""
        ...


@dataclass(frozen=True)
class RankingResult:
    """What the model found for one job, and how many jobs it ranked at once."""

    matches: list[Match]
    complete: bool
    together: int


@dataclass(frozen=True)
class RankingJob:
    """A context is to be ranked: with which candidates (None for those of the server), how many to return."""

    context: str
    candidates: tuple[str, ...] | None
    top_k: int

    def kind(self, model: Model) -> Hashable:
        """Jobs that rank the same candidates with the same top_k, for contexts of similar length, go together."""
        return self.candidates, self.top_k, model.length_class(self.context)

    def do(self, model: Model, jobs: Sequence["RankingJob"]) -> Sequence[RankingResult]:
        """Rank."""
        ranked = model.rank([job.context for job in jobs], self.candidates, self.top_k)
        return [RankingResult(matches, complete, len(jobs)) for matches, complete in ranked]


@dataclass(frozen=True)
class EncodingJob:
    """Texts are to be encoded, as contexts or as candidates."""

    texts: tuple[str, ...]
    are_contexts: bool

    def kind(self, model: Model) -> Hashable:
        """Single texts of similar length go together; several are a call by themselves."""
        return self.are_contexts, model.length_class(self.texts[0]) if len(self.texts) == 1 else self.texts

    def do(self, model: Model, jobs: Sequence["EncodingJob"]) -> Sequence[Encoding]:
        """Encode."""
        encoding = model.encode([text for job in jobs for text in job.texts], self.are_contexts)
        stops = itertools.accumulate(len(job.texts) for job in jobs)
        return [encoding.part(stop - len(job.texts), stop) for job, stop in zip(jobs, stops, strict=True)]


@dataclass(frozen=True)
class Ticket:
    """A job in the queue.

    Attributes:
        job: what is to be done.
        ahead: how many jobs waited when it came.
        started: how many jobs are done with it, this one counted; it is set once the model has begun.
        result: what came out, or the model's error.
    """

    job: Job
    ahead: int
    started: "asyncio.Future[int]" = field(default_factory=asyncio.Future)
    result: "asyncio.Future[Any]" = field(default_factory=asyncio.Future)


class Batcher:
    """The queue in front of the model."""

    def __init__(
        self,
        model: Model,
        together: int = TOGETHER,
        waiting: int = WAITING,
        answered: Callable[[int, float], None] = lambda jobs, seconds: None,
    ):
        """Make a queue.

        Args:
            model: what does the jobs.
            together: how many jobs are done at once, at most.
            waiting: how many jobs may wait.
            answered: is told of every call of the model that succeeded: how many jobs it did, in how many seconds.
        """
        self.model, self.together, self.most, self.answered = model, together, waiting, answered
        self.waiting: list[Ticket] = []
        self.came = asyncio.Event()

    def ask(self, job: Job) -> Ticket:
        """Queue a job.

        Raises:
            QueueFull: too many wait already.
        """
        if len(self.waiting) >= self.most:
            raise QueueFull
        ticket = Ticket(job, len(self.waiting))
        self.waiting.append(ticket)
        self.came.set()
        return ticket

    async def run(self) -> None:
        """Do jobs until cancelled."""
        thread = ThreadPoolExecutor(1, "model")
        try:
            while True:
                await self.came.wait()
                group = self.take()
                if not self.waiting:
                    self.came.clear()
                await self._answer(group, thread)
        finally:
            thread.shutdown(wait=False, cancel_futures=True)

    def take(self) -> list[Ticket]:
        """Take the oldest job out of the queue, and those that one call of the model does with it."""
        first = self.waiting[0].job.kind(self.model)
        group: list[Ticket] = []
        rest: list[Ticket] = []
        for ticket in self.waiting:
            joins = len(group) < self.together and ticket.job.kind(self.model) == first
            (group if joins else rest).append(ticket)
        self.waiting = rest
        return group

    async def _answer(self, group: list[Ticket], thread: ThreadPoolExecutor) -> None:
        group = [ticket for ticket in group if not ticket.result.cancelled()]  # whose client has not gone
        if not group:
            return
        for ticket in group:
            if not ticket.started.done():
                ticket.started.set_result(len(group))
        jobs = [ticket.job for ticket in group]
        begin = time.perf_counter()
        try:
            results = await asyncio.get_running_loop().run_in_executor(thread, jobs[0].do, self.model, jobs)
        except EngineError as error:  # it would be away for each of them, one wait after the other
            for ticket in group:
                if not ticket.result.done():
                    ticket.result.set_exception(error)
            return
        except Exception as error:
            if len(group) > 1:  # only those that the model fails for are to notice
                for ticket in group:
                    await self._answer([ticket], thread)
            elif not group[0].result.done():
                group[0].result.set_exception(error)
            return
        self.answered(len(group), time.perf_counter() - begin)
        for ticket, result in zip(group, results, strict=True):
            if not ticket.result.done():
                ticket.result.set_result(result)
