"""Requests of many users, answered together by the one thread that owns the model.

No request waits for others to come: the requests that arrived while the model was busy are answered together as soon as
it is free. Clients take turns, and a turn is a piece of a long request, so nobody waits for all that another one asks.
"""

import asyncio
import itertools
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from polyagents.index.engines.engine import EngineError
from polyagents.index.filters import Filter
from polyagents.ranker import Match
from polyagents.ranking.pieces import Steps
from polyagents.serving.limits import STUCK_SECONDS, TOGETHER, WAITING
from polyagents.serving.logs import LOG
from polyagents.serving.worker_thread import WorkerThread

if TYPE_CHECKING:
    from polyagents.serving.served import Served

SEARCH, RERANK, ENCODE = "search", "rerank", "encode"


class QueueFull(Exception):
    """The queue is full, and no client has more in it than the sender of the refused request."""


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
        """Return the encoding of the texts from one place to another, without the last."""
        return Encoding(self.vectors[start:stop], self.tokens[start:stop])


@dataclass(frozen=True)
class RankingResult:
    """The model's result for one job, and how many jobs it ranked at once.

    Attributes:
        shortlist: what a first model found, if a second one scored the matches; otherwise None.
    """

    matches: list[Match]
    complete: bool
    together: int
    shortlist: list[Match] | None = None


@dataclass(frozen=True)
class RankingJob:
    """Rank the texts of candidates (None for the server's own) for a context, and return the best `top_k`."""

    context: str
    texts: tuple[str, ...] | None
    top_k: int
    where: Filter | None = None

    def kind(self, model: "Served") -> Hashable:
        """Return a key that is equal for jobs with the same candidates and top_k, and contexts of similar length."""
        return self.texts, self.top_k, self.where, model.length_class(self.context)

    def do(self, model: "Served", jobs: Sequence[Any]) -> Steps[Sequence[RankingResult]]:
        """Rank the candidates for the contexts of all jobs."""
        ranked = yield from model.rank([job.context for job in jobs], self.texts, self.top_k, self.where)
        return [RankingResult(matches, complete, len(jobs)) for matches, complete in ranked]


@dataclass(frozen=True)
class EncodingJob:
    """Encode texts, as contexts or as candidates."""

    texts: tuple[str, ...]
    are_contexts: bool

    def kind(self, model: "Served") -> Hashable:
        """Return a key that is equal for single texts of similar length; several texts have a key of their own."""
        return self.are_contexts, model.length_class(self.texts[0]) if len(self.texts) == 1 else self.texts

    def do(self, model: "Served", jobs: Sequence[Any]) -> Steps[Sequence[Encoding]]:
        """Encode the texts of all jobs."""
        encoding = yield from model.encode([text for job in jobs for text in job.texts], self.are_contexts)
        stops = itertools.accumulate(len(job.texts) for job in jobs)
        return [encoding.part(stop - len(job.texts), stop) for job, stop in zip(jobs, stops, strict=True)]


Job = RankingJob | EncodingJob
"""The model's work on the `texts` of a request: `do` does jobs of one `kind` together, with results in their order."""


@dataclass(eq=False)
class Ticket:
    """A job in the queue.

    Attributes:
        model: does the job; a model that is served later does not.
        kind: equal for jobs that are done together.
        ahead: how many jobs come before it if no more are asked for.
        stage: the part of its request that the job is, for figures: search, rerank or encode.
        seconds: what the computation took, without other clients' in between; it may be shared by others.
        started: how many jobs are done together with it, itself included; it is set once the model has begun.
        result: the job's result, or the model's error.
    """

    job: Job
    model: "Served"
    client: str
    kind: Hashable
    ahead: int
    stage: str = SEARCH
    seconds: float = 0.0
    started: "asyncio.Future[int]" = field(default_factory=asyncio.Future)
    result: "asyncio.Future[Any]" = field(default_factory=asyncio.Future)

    def fail(self, error: BaseException) -> None:
        """Answer with an error, unless there is an answer or the client has gone."""
        if not self.result.done():
            self.result.set_exception(error)


@dataclass(eq=False)
class Group:
    """Tickets that are done together.

    Attributes:
        tickets: the first is of the client whose turns it takes.
        work: the computation; None before it has begun.
        seconds: how long its pieces took so far.
    """

    tickets: list[Ticket]
    work: Steps[Sequence[Any]] | None = None
    seconds: float = 0.0


class Batcher:
    """The queue in front of the model, and of the one that takes its place.

    Attributes:
        turns: client -> its tickets in the queue, in the order of their turns.
        begun: client -> the work that the model has begun for it, and continues at its next turn.
    """

    def __init__(
        self,
        together: int = TOGETHER,
        waiting: int = WAITING,
        answered: Callable[[str, int, float], None] = lambda stage, jobs, seconds: None,
    ):
        """Make a queue, in which `waiting` jobs may wait, and at most `together` of them are done at once.

        Args:
            answered: called after each successful call of a model, with its stage, the number of jobs and its seconds.
        """
        self.together, self.most, self.answered = together, waiting, answered
        self.turns: dict[str, deque[Ticket]] = {}
        self.begun: dict[str, Group] = {}
        self.served: list[str] = []  # whose turn it was last
        self.came = asyncio.Event()
        self.worker: asyncio.Task[None] | None = None
        self.thread: WorkerThread | None = None
        self.busy_since: float | None = None

    @property
    def waiting(self) -> int:
        """How many jobs wait for the model, or for its next piece."""
        return sum(map(len, self.turns.values())) + sum(len(group.tickets) for group in self.begun.values())

    @property
    def answers(self) -> bool:
        """Whether anybody can be answered: there is a worker, and its present call is not stuck."""
        stuck = self.busy_since is not None and time.monotonic() - self.busy_since > STUCK_SECONDS
        return self.worker is not None and not self.worker.done() and not stuck

    def ask(self, job: Job, model: "Served", client: str = "", stage: str = SEARCH) -> Ticket:
        """Queue a job; in a full queue for the newest of the client with the most, QueueFull if none has more."""
        own = len(self.turns.get(client, ()))
        if self.waiting >= self.most:
            most = max(self.turns.values(), key=len, default=deque())
            if len(most) <= own + 1:
                raise QueueFull
            most.pop().fail(QueueFull())
        others = (len(queue) for other, queue in self.turns.items() if other != client)
        ahead = own + len(self.begun) + sum(min(size, own + 1) for size in others)
        ticket = Ticket(job, model, client, (model, stage, job.kind(model)), ahead, stage)
        self.turns.setdefault(client, deque()).append(ticket)
        self.came.set()
        return ticket

    def start(self) -> None:
        """Start the worker; if it ends although nobody has stopped it, it is started again."""
        self.thread = self.thread or WorkerThread("model")
        self.worker = asyncio.create_task(self.run(self.thread))
        self.worker.add_done_callback(self._ended)

    def stop(self) -> None:
        """Do no more jobs."""
        worker, self.worker = self.worker, None
        if worker is not None:
            worker.cancel()
        if self.thread is not None:
            self.thread.end()

    def _ended(self, worker: "asyncio.Task[None]") -> None:
        error = None if worker.cancelled() else worker.exception()
        if worker is self.worker:
            LOG.error("The model's queue has ended; it is started again", exc_info=error)
            self.start()

    async def run(self, thread: WorkerThread) -> None:
        """Do jobs until cancelled."""
        while True:
            await self.came.wait()
            group = self.take()
            if group is None:
                self.came.clear()
                continue
            try:
                await self._advance(group, thread)
            except BaseException as error:  # such as a cancellation: nobody would answer these any more
                for ticket in group.tickets:
                    ticket.fail(RuntimeError(f"The queue has ended with {type(error).__name__}."))
                raise

    def take(self) -> Group | None:
        """Return the group of the next turn: of the client who has waited longest, resumed if begun.

        Otherwise that is its oldest job, with those, of whoever, that one call of the model can do together; of these
        each client's oldest come first. None if nothing waits.
        """
        # The dictionary keeps the order of turns: who was served last goes to its end, behind whoever has come since.
        for client in self.served:
            self.turns[client] = self.turns.pop(client, deque())
        for client, queue in list(self.turns.items()):
            self.turns[client] = deque(ticket for ticket in queue if not ticket.result.done())  # the client has gone
            if not self.turns[client] and client not in self.begun:
                del self.turns[client]
        self.served = []
        if not self.turns:
            return None
        client = next(iter(self.turns))
        group = self.begun.pop(client, None)
        if group is None:
            # A round takes one job of each client, so that a client with many jobs fills only what others leave.
            first = self.turns[client][0]
            rounds = itertools.chain.from_iterable(itertools.zip_longest(*self.turns.values()))
            alike = (ticket for ticket in rounds if ticket is not None and ticket.kind == first.kind)
            group = Group(list(itertools.islice(alike, self.together)))
            for ticket in group.tickets:
                self.turns[ticket.client].remove(ticket)
            self.served = list(dict.fromkeys(ticket.client for ticket in group.tickets))
        else:
            self.served = [client]
        return group

    async def _advance(self, group: Group, thread: WorkerThread) -> None:
        """Compute a piece of a group's work, and answer its requests if it was the last."""
        tickets = group.tickets
        if all(ticket.result.done() for ticket in tickets):  # the clients have gone
            return
        begin = self.busy_since = time.monotonic()
        try:
            if group.work is None:
                group.work = tickets[0].job.do(tickets[0].model, [ticket.job for ticket in tickets])
                for ticket in tickets:
                    if not ticket.started.done():
                        ticket.started.set_result(len(tickets))
            results = await thread.do(next_piece, group.work, len(tickets))
        except Exception as error:
            # An engine's is for all, since each would wait for it as long again; others are retried one by one, so
            # that only jobs for which the model fails get the error.
            if len(tickets) == 1 or isinstance(error, EngineError):
                for ticket in tickets:
                    ticket.fail(error)
            else:
                for ticket in reversed(tickets):
                    ticket.kind = object()
                    self.turns.setdefault(ticket.client, deque()).appendleft(ticket)
            return
        finally:
            self.busy_since = None
        group.seconds += time.monotonic() - begin
        if results is None:
            self.begun[tickets[0].client] = group
            return
        for ticket, result in zip(tickets, results, strict=True):
            ticket.seconds = group.seconds
            if not ticket.result.done():
                ticket.result.set_result(result)
        self.answered(tickets[0].stage, len(tickets), group.seconds)


def next_piece(work: Steps[Sequence[Any]], jobs: int) -> Sequence[Any] | None:
    """Compute the next piece; None before the last, then the results. A RuntimeError says if they are not one a job."""
    try:
        next(work)
    except StopIteration as end:
        results: Sequence[Any] = end.value
        if len(results) != jobs:
            raise RuntimeError(f"The model gave {len(results)} results for {jobs} jobs.") from None
        return results
    return None
