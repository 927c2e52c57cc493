"""The one definition of "the first N examples" of a task: whole dialogues in order, whatever the batch.

a batch of 3:   ParlAI: a dialogue in each place    here: one dialogue after the other
first parley    dialogue 1, 2, 3, first turns       dialogue 1, turns 1 to 3
second parley   the same dialogues, second turns    dialogue 1, turn 4; dialogue 2, turns 1 and 2
"""

import contextlib
import functools
import hashlib
import math
import random
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import torch
from parlai.core.message import Message
from parlai.core.opt import Opt
from parlai.core.teachers import FixedDialogTeacher, MultiTaskTeacher
from parlai.core.worlds import BatchWorld, DialogPartnerWorld, World, create_task, validate
from parlai.scripts import eval_model, train_model
from parlai.utils.distributed import get_rank, num_workers

from polyagents.files.hashing import utf8

PARLAIS_SEED = 42  # of eval_model, for a task that draws its candidates


class ReaderDraws:
    """A state of Python's and numpy's global generators that only one reader of a task uses."""

    def __init__(self, seed: int):
        self.state = (random.Random(seed).getstate(), np.random.RandomState(seed).get_state())

    @contextlib.contextmanager
    def used(self) -> Iterator[None]:
        """Draw from this state inside."""
        everybodys = (random.getstate(), np.random.get_state())
        random.setstate(self.state[0])
        np.random.set_state(self.state[1])
        try:
            yield
        finally:
            self.state = (random.getstate(), np.random.get_state())
            random.setstate(everybodys[0])
            np.random.set_state(everybodys[1])


class WorldInOrder(BatchWorld):
    """Batches of consecutive examples, each dialogue after the one before it.

    Metrics do not depend on the batch size unless the batch gives the candidates. Each of several processes reads
    the whole task, and evaluates its share of the dialogues.

    Attributes:
        limit: how many examples with a label are evaluated, by all processes together.
        acts: the messages of the last batch, and the replies to them.
    """

    def __init__(self, opt: Opt, world: World):
        """Evaluate a world of a task and a ranker, both of a batch size of 1, in batches."""
        super().__init__(Opt(opt | {"batchsize": 1}), world)
        self.worlds *= 2  # of a single one, ParlAI's WorldLogger expects the acts of a single example
        self.teacher, self.model = self.worlds[0].get_agents()
        self.size, self.limit = opt.get("batchsize", 1), math.inf
        self._begin()

    def _begin(self) -> None:
        self.draws, self.seen = ReaderDraws(PARLAIS_SEED), hashlib.sha256()
        self.read = self.labelled = self.dialogue = 0

    @property
    def digest(self) -> str:
        """A hash of the examples with a label that were read so far, whichever process evaluates them."""
        return self.seen.hexdigest()[:16]

    def reset(self) -> None:
        """World: begin with the first example."""
        super().reset()
        self._begin()

    def epoch_done(self) -> bool:
        """World: return whether all examples, or as many as wanted, were read."""
        return (self.labelled or self.read) >= self.limit or bool(super().epoch_done())

    def num_examples(self) -> Any:
        """World: return how many examples there are; None or 0 if the task does not know."""
        return min(super().num_examples() or 0, self.limit)

    def messages(self) -> Iterator[Message]:
        """Yield the messages that this process evaluates."""
        while not self.epoch_done():
            with self.draws.used():
                message = validate(self.teacher.act())
            if message.get("batch_padding"):
                continue
            is_own = self.dialogue % num_workers() == get_rank()
            self.read, self.dialogue = self.read + 1, self.dialogue + bool(message.get("episode_done"))
            if is_example(message):
                self.labelled += 1
                add_to_hash(message, self.seen)
            if is_own:
                self.model.random.seed(self.read)  # of several labels, the same one is drawn in every evaluation
                yield message

    def digest_of_all(self) -> str:
        """Return what the digest will be after the evaluation; the world begins again."""
        self.reset()
        for _ in self.messages():
            pass
        found = self.digest
        self.reset()
        return found

    def parley(self) -> None:
        """World: evaluate the next batch, which may be empty at the end."""
        self.acts: list[list[Message]] = [[], []]
        waiting: list[tuple[Message, Asked]] = []
        for message in self.messages():
            waiting.append((self.model.observe(message), Asked.of(self.teacher)))
            # WorldLogger takes this as the number of the conversation.
            self.acts[0].append(Message(message | {"dyn_batch_idx": 0}))
            is_full = len(self.acts[0]) == self.size
            if not message.get("episode_done") and self.model.hears_itself(message):
                self._answer(waiting)
                self.model.self_observe(self.acts[1][-1])
            else:
                self.model.self_observe(Message())
            if is_full or (waiting and not waiting[-1][1].can_wait):
                self._answer(waiting)
            if is_full:
                break
        self._answer(waiting)
        self.update_counters()

    def _answer(self, waiting: "list[tuple[Message, Asked]]") -> None:
        """Rank observations, and let the task judge the replies; nothing is waiting any more then."""
        if waiting:
            replies = self.world.get_agents()[1].batch_act([observation for observation, _ in waiting])
            self.acts[1] += [asked.judged(reply) for (_, asked), reply in zip(waiting, replies, strict=True)]
            waiting.clear()

    def display(self) -> str:
        """World: show the last batch."""
        return "\n".join(
            f"{given.get('text')}\n   {reply.get('text')}" for given, reply in zip(*self.acts, strict=True)
        )


class Asked(NamedTuple):
    """A teacher, and what it needs to judge the reply to its last message.

    Attributes:
        can_wait: whether the reply may come after more messages: the teacher needs nothing else for it.
    """

    teacher: Any
    last: dict[str, Any]
    can_wait: bool

    @classmethod
    def of(cls, teacher: Any) -> "Asked":
        """Note what a teacher has just asked."""
        while isinstance(teacher, MultiTaskTeacher):
            teacher = teacher.tasks[teacher.task_idx]
        last = {name: value for name, value in vars(teacher).items() if name in ("lastY", "last_act")}
        return cls(teacher, last, getattr(type(teacher), "observe", None) is FixedDialogTeacher.observe)

    def judged(self, reply: Message) -> Message:
        """Return the reply as the teacher has judged it."""
        vars(self.teacher).update(self.last)
        return Message(self.teacher.observe(validate(reply)))


def world_in_order(opt: Opt, agent: Any, limit: float = math.inf) -> World:
    """Create a world of a task for an evaluation of an agent; a task with a world of its own keeps it."""
    one = Opt(opt | {"batchsize": 1, "rank": 0, "distributed_world_size": 1})
    # Teachers would read only the share of this process.
    with ReaderDraws(PARLAIS_SEED).used(), mock.patch.object(torch.distributed, "is_initialized", lambda: False):
        world: World = create_task(one, agent)
    if type(world) is not DialogPartnerWorld:
        return create_task(opt, agent)
    ordered = WorldInOrder(opt, world)
    ordered.limit = limit
    return ordered


def with_ours_in_order(load_eval_worlds: Any, agent: Any, opt: Opt, datatype: str) -> Any:
    """Create ParlAI's worlds for validation and test; our rankers get theirs in order."""
    ours = world_in_order if hasattr(agent, "hears_itself") else train_model.create_task
    with mock.patch.object(train_model, "create_task", ours):
        return load_eval_worlds(agent, opt, datatype)


def evaluate_in_order(evaluate: Any, opt: Opt, agent: Any, task: str) -> Any:
    """Evaluate an agent on a task as ParlAI does, but one of our rankers in order."""
    if not hasattr(agent, "hears_itself"):
        return evaluate(opt, agent, task)
    limit = opt["num_examples"] if opt["num_examples"] > 0 else math.inf
    with mock.patch.object(eval_model, "create_task", functools.partial(world_in_order, limit=limit)):
        return evaluate(Opt(opt | {"num_examples": -1}), agent, task)


def exchanges(world: WorldInOrder) -> Iterator[tuple[int, Any, Any]]:
    """Evaluate a world, and yield the number of each message's dialogue, the message, and the reply to it."""
    world.reset()
    dialogue = 0
    while not world.epoch_done():
        world.parley()
        for message, reply in zip(*world.acts, strict=True):
            yield dialogue, message, reply
            dialogue += bool(message.get("episode_done"))


def is_example(message: Mapping[str, Any]) -> bool:
    """Return whether a message of an evaluation has a text and a label."""
    return message.get("text") is not None and any(label.strip() for label in message.get("eval_labels") or ())


def add_to_hash(message: Mapping[str, Any], digest: Any) -> None:
    """Add an example to a hash of all."""
    texts = [message["text"], *message["eval_labels"], *(message.get("label_candidates") or ())]
    digest.update(utf8("\n".join(texts) + "\n\n"))
