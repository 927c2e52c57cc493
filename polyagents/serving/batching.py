"""Requests of many users, ranked together by the one thread that owns the model.

Nobody waits for company: what has come in while the model was busy is ranked together as soon as it is free.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from polyagents.ranker import Match
from polyagents.serving.limits import TOGETHER, WAITING

Ranked = tuple[list[Match], bool]
"""The matches of one context, and whether they are complete (Ranker.search)."""

Rank = Callable[[Sequence[str], tuple[str, ...] | None, int], list[Ranked]]
"""Contexts, candidates (None for those of the server), top_k -> what was found for each context."""


class QueueFull(Exception):
    """As many requests wait for the model as may."""


@dataclass(frozen=True)
class Question:
    """What one request wants ranked: a context, candidates (None for those of the server), how many to return."""

    context: str
    candidates: tuple[str, ...] | None
    top_k: int


@dataclass(frozen=True)
class Answer:
    """What the model said to one question, and how many questions it answered at once."""

    matches: list[Match]
    complete: bool
    together: int


@dataclass(frozen=True)
class Ticket:
    """A question in the queue.

    Attributes:
        question: it.
        ahead: how many waited when it came.
        started: how many questions are ranked with it, this one counted, once the model has begun.
        answer: what came out, or the model's error.
    """

    question: Question
    ahead: int
    started: "asyncio.Future[int]" = field(default_factory=asyncio.Future)
    answer: "asyncio.Future[Answer]" = field(default_factory=asyncio.Future)


class Batcher:
    """The queue in front of the model.

    Args:
        rank: the model.
        length_class: which contexts are worth ranking in one call.
        together: questions that are ranked at once, at most.
        waiting: questions that may wait.
    """

    def __init__(
        self,
        rank: Rank,
        length_class: Callable[[str], int] = lambda _: 0,
        together: int = TOGETHER,
        waiting: int = WAITING,
    ):
        self.rank, self.length_class, self.together, self.most = rank, length_class, together, waiting
        self.waiting: list[Ticket] = []
        self.came = asyncio.Event()

    def ask(self, question: Question) -> Ticket:
        """Queue a question.

        Raises:
            QueueFull: too many wait already.
        """
        if len(self.waiting) >= self.most:
            raise QueueFull
        ticket = Ticket(question, len(self.waiting))
        self.waiting.append(ticket)
        self.came.set()
        return ticket

    async def run(self) -> None:
        """Answer questions until cancelled."""
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
        """The oldest question, and those that one call of the model answers with it."""
        first = self.kind(self.waiting[0].question)
        group: list[Ticket] = []
        rest: list[Ticket] = []
        for ticket in self.waiting:
            joins = len(group) < self.together and self.kind(ticket.question) == first
            (group if joins else rest).append(ticket)
        self.waiting = rest
        return group

    def kind(self, question: Question) -> tuple[Any, ...]:
        """What the questions of one call have in common."""
        return question.candidates, question.top_k, self.length_class(question.context)

    async def _answer(self, group: list[Ticket], thread: ThreadPoolExecutor) -> None:
        group = [ticket for ticket in group if not ticket.answer.cancelled()]  # whose client has not gone
        if not group:
            return
        for ticket in group:
            if not ticket.started.done():
                ticket.started.set_result(len(group))
        contexts, asked = [ticket.question.context for ticket in group], group[0].question
        try:
            ranked = await asyncio.get_running_loop().run_in_executor(
                thread, self.rank, contexts, asked.candidates, asked.top_k
            )
        except Exception as error:
            if len(group) > 1:  # only those that the model fails for are to notice
                for ticket in group:
                    await self._answer([ticket], thread)
            elif not group[0].answer.done():
                group[0].answer.set_exception(error)
            return
        for ticket, (matches, complete) in zip(group, ranked, strict=True):
            if not ticket.answer.done():
                ticket.answer.set_result(Answer(matches, complete, len(group)))
