"""Requests of many users, ranked together by the one thread that owns the model.

Nobody waits for company: what has come in while the model was busy is ranked together as soon as it is free.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from polyagents.index.engines.engine import EngineError
from polyagents.ranker import Match
from polyagents.serving.limits import TOGETHER, WAITING

ContextMatches = tuple[list[Match], bool]
"""The matches of one context, and whether they are complete (Ranker.search)."""

Rank = Callable[[Sequence[str], tuple[str, ...] | None, int], list[ContextMatches]]
"""Contexts, candidates (None for those of the server), top_k -> what was found for each context."""


class QueueFull(Exception):
    """As many requests wait for the model as may."""


@dataclass(frozen=True)
class RankingJob:
    """What one request wants ranked: a context, candidates (None for those of the server), how many to return."""

    context: str
    candidates: tuple[str, ...] | None
    top_k: int


@dataclass(frozen=True)
class RankingResult:
    """What the model found for one job, and how many jobs it ranked at once."""

    matches: list[Match]
    complete: bool
    together: int


@dataclass(frozen=True)
class Ticket:
    """A job in the queue.

    Attributes:
        job: what is to be ranked.
        ahead: how many jobs waited when it came.
        started: how many jobs are ranked with it, this one counted; it is set once the model has begun.
        result: what came out, or the model's error.
    """

    job: RankingJob
    ahead: int
    started: "asyncio.Future[int]" = field(default_factory=asyncio.Future)
    result: "asyncio.Future[RankingResult]" = field(default_factory=asyncio.Future)


class Batcher:
    """The queue in front of the model."""

    def __init__(
        self,
        rank: Rank,
        length_class: Callable[[str], int] = lambda _: 0,
        together: int = TOGETHER,
        waiting: int = WAITING,
        ranked: Callable[[int, float], None] = lambda jobs, seconds: None,
    ):
        """Make a queue.

        Args:
            rank: the model.
            length_class: contexts of one class are worth ranking in one call.
            together: how many jobs are ranked at once, at most.
            waiting: how many jobs may wait.
            ranked: is told of every call of the model that succeeded: how many jobs it ranked, in how many seconds.
        """
        self.rank, self.length_class, self.together, self.most = rank, length_class, together, waiting
        self.ranked = ranked
        self.waiting: list[Ticket] = []
        self.came = asyncio.Event()

    def ask(self, job: RankingJob) -> Ticket:
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
        """Rank jobs until cancelled."""
        thread = ThreadPoolExecutor(1, "model")
        try:
            while True:
                await self.came.wait()
                group = self.take()
                if not self.waiting:
                    self.came.clear()
                await self._rank(group, thread)
        finally:
            thread.shutdown(wait=False, cancel_futures=True)

    def take(self) -> list[Ticket]:
        """Take the oldest job out of the queue, and those that one call of the model ranks with it."""
        first = self.kind(self.waiting[0].job)
        group: list[Ticket] = []
        rest: list[Ticket] = []
        for ticket in self.waiting:
            joins = len(group) < self.together and self.kind(ticket.job) == first
            (group if joins else rest).append(ticket)
        self.waiting = rest
        return group

    def kind(self, job: RankingJob) -> tuple[Any, ...]:
        """Return what the jobs of one call have in common."""
        return job.candidates, job.top_k, self.length_class(job.context)

    async def _rank(self, group: list[Ticket], thread: ThreadPoolExecutor) -> None:
        group = [ticket for ticket in group if not ticket.result.cancelled()]  # whose client has not gone
        if not group:
            return
        for ticket in group:
            if not ticket.started.done():
                ticket.started.set_result(len(group))
        contexts, shared = [ticket.job.context for ticket in group], group[0].job
        begin = time.perf_counter()
        try:
            ranked = await asyncio.get_running_loop().run_in_executor(
                thread, self.rank, contexts, shared.candidates, shared.top_k
            )
        except EngineError as error:  # it would be away for each of them, one wait after the other
            for ticket in group:
                if not ticket.result.done():
                    ticket.result.set_exception(error)
            return
        except Exception as error:
            if len(group) > 1:  # only those that the model fails for are to notice
                for ticket in group:
                    await self._rank([ticket], thread)
            elif not group[0].result.done():
                group[0].result.set_exception(error)
            return
        self.ranked(len(group), time.perf_counter() - begin)
        for ticket, (matches, complete) in zip(group, ranked, strict=True):
            if not ticket.result.done():
                ticket.result.set_result(RankingResult(matches, complete, len(group)))
