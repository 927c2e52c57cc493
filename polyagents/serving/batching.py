"""Requests of many users, answered together by the one thread that owns the model.

No request waits for others to come: the requests that arrived while the model was busy are answered together as soon as
it is free.
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
    """The queue is full: as many requests wait for the model as are allowed."""


@dataclass(frozen=True)
class Encoding:
    """Encoded texts.

    Attributes:
        vectors: fp32 [N, D], in the order of the texts.
        tokens: number of tokens that the model has read of each text, special tokens included.
    """

    vectors: np.ndarray
    tokens: list[int]

    def part(self, start: int, stop: int) -> "Encoding":
        """Return the encoding of some of the texts.

        Args:
            start: index of the first text.
            stop: index after the last text.
        """
        return Encoding(self.vectors[start:stop], self.tokens[start:stop])


class Model(Protocol):
    """What a batcher requires of a model; `Served` implements it."""

    def rank(self, contexts: Sequence[str], candidates: tuple[str, ...] | None, top_k: int) -> list[ContextMatches]:
        """Rank candidates, or the server's own where they are None, for every context.

        Args:
            contexts: the contexts to rank for, one line per turn.
            candidates: the texts to rank; None for the server's own candidates.
            top_k: how many matches to return for each context.

        Returns:
            The matches of each context, in the order of the contexts.
        """
        ...

    def encode(self, texts: Sequence[str], are_contexts: bool) -> Encoding:
        """Encode contexts, or candidates.

        Args:
            texts: the texts to encode.
            are_contexts: True for contexts, False for candidates.

        Returns:
            One vector per text.
        """
        ...

    def length_class(self, text: str) -> int:
        """Return the class of a text's length; texts of one class are worth encoding in one call."""
        ...


class Job(Protocol):
    """What one request asks of the model."""

    def kind(self, model: Model) -> Hashable:
        """Return a key that is equal for jobs that one call of the model can do together."""
        ...

    def do(self, model: Model, jobs: Sequence[Any]) -> Sequence[Any]:
        """Do jobs of one kind, this one among them, in one call of the model.

        Args:
            model: what computes the results.
            jobs: the jobs.

        Returns:
            a result for each job, in order.
        """
        ...


@dataclass(frozen=True)
class RankingResult:
    """What the model found for one job, and how many jobs it ranked at once."""

    matches: list[Match]
    complete: bool
    together: int


@dataclass(frozen=True)
class RankingJob:
    """Rank candidates (None for the server's own) for a context, and return the best `top_k`."""

    context: str
    candidates: tuple[str, ...] | None
    top_k: int

    def kind(self, model: Model) -> Hashable:
        """Return a key that is equal for jobs with the same candidates and top_k, and contexts of similar length."""
        return self.candidates, self.top_k, model.length_class(self.context)

    def do(self, model: Model, jobs: Sequence["RankingJob"]) -> Sequence[RankingResult]:
        """Rank the candidates for the contexts of all jobs.

        Args:
            model: what computes the scores.
            jobs: jobs of one kind.

        Returns:
            a result for each job, in order.
        """
        ranked = model.rank([job.context for job in jobs], self.candidates, self.top_k)
        return [RankingResult(matches, complete, len(jobs)) for matches, complete in ranked]


@dataclass(frozen=True)
class EncodingJob:
    """Encode texts, as contexts or as candidates."""

    texts: tuple[str, ...]
    are_contexts: bool

    def kind(self, model: Model) -> Hashable:
        """Return a key that is equal for single texts of similar length; several texts have a key of their own."""
        return self.are_contexts, model.length_class(self.texts[0]) if len(self.texts) == 1 else self.texts

    def do(self, model: Model, jobs: Sequence["EncodingJob"]) -> Sequence[Encoding]:
        """Encode the texts of all jobs.

        Args:
            model: what computes the vectors.
            jobs: jobs of one kind.

        Returns:
            a result for each job, in order.
        """
        encoding = model.encode([text for job in jobs for text in job.texts], self.are_contexts)
        stops = itertools.accumulate(len(job.texts) for job in jobs)
        return [encoding.part(stop - len(job.texts), stop) for job, stop in zip(jobs, stops, strict=True)]


@dataclass(frozen=True)
class Ticket:
    """A job in the queue.

    Attributes:
        job: the job.
        ahead: how many jobs were waiting when it came.
        started: how many jobs are done together with it, itself included; it is set once the model has begun.
        result: the job's result, or the model's error.
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
            together: the largest number of jobs that are done at once.
            waiting: how many jobs may wait.
            answered: a callback for every call of the model that succeeded, with the number of jobs and the seconds it
                took.
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
        """Take the oldest job out of the queue, and with it those that one call of the model can do together."""
        first = self.waiting[0].job.kind(self.model)
        group: list[Ticket] = []
        rest: list[Ticket] = []
        for ticket in self.waiting:
            joins = len(group) < self.together and ticket.job.kind(self.model) == first
            (group if joins else rest).append(ticket)
        self.waiting = rest
        return group

    async def _answer(self, group: list[Ticket], thread: ThreadPoolExecutor) -> None:
        group = [ticket for ticket in group if not ticket.result.cancelled()]  # the clients of the others have gone
        if not group:
            return
        for ticket in group:
            if not ticket.started.done():
                ticket.started.set_result(len(group))
        jobs = [ticket.job for ticket in group]
        begin = time.perf_counter()
        try:
            results = await asyncio.get_running_loop().run_in_executor(thread, jobs[0].do, self.model, jobs)
        except EngineError as error:  # retrying one by one would wait for the same engine each time
            for ticket in group:
                if not ticket.result.done():
                    ticket.result.set_exception(error)
            return
        except Exception as error:
            if len(group) > 1:  # retried one by one, so that only jobs for which the model fails get the error
                for ticket in group:
                    await self._answer([ticket], thread)
            elif not group[0].result.done():
                group[0].result.set_exception(error)
            return
        self.answered(len(group), time.perf_counter() - begin)
        for ticket, result in zip(group, results, strict=True):
            if not ticket.result.done():
                ticket.result.set_result(result)
