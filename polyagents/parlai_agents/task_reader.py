"""The examples of a ParlAI task in an order that the seed decides, from any position on."""

from dataclasses import dataclass
from typing import Any, NamedTuple

from parlai.core.opt import Opt
from parlai.core.teachers import create_task_agent_from_taskname
from parlai.utils.data import DatatypeHelper

from polyagents.parlai_agents.observing_agent import real_labels
from polyagents.parlai_patches.exchanges import ReaderDraws
from polyagents.parlai_patches.task_messages import refused_where_unreadable


class TextPair(NamedTuple):
    """A context, one line per utterance, the text that came next, and the number of its task."""

    context: str
    label: str
    task: int = 0


@dataclass(frozen=True)
class Position:
    """The position of a run in its task.

    Attributes:
        updates: finished updates of the next window.
        of: the number of updates of that window; 0 if it has not been started.
    """

    windows: int = 0
    updates: int = 0
    of: int = 0
    total: int = 0

    def __float__(self) -> float:
        """Return the position in windows."""
        return self.windows + (self.updates / self.of if self.of else 0.0)


class TaskReader:
    """One teacher, read one message after the other.

    ParlAI's teachers draw from Python's own generator. They get a state of it that only they use, so what they draw
    does not depend on other draws: after the same number of messages the same one follows.
    """

    def __init__(self, opt: Opt, seed: int):
        """Open the task of `opt`; refuse one that cannot be read."""
        self.draws = ReaderDraws(seed)
        self.turns: list[str] = []
        own = Opt(opt | {"batchsize": 1, "num_workers": 0, "load_from_checkpoint": False})
        with self.draws.used(), refused_where_unreadable(opt["task"]):
            self.teacher: Any = create_task_agent_from_taskname(own)[0]
        self.is_endless = DatatypeHelper.is_training(opt["datatype"])

    def skip(self, messages: int) -> None:
        """Skip the first `messages` messages: seek if the teacher can, otherwise read and discard them."""
        if hasattr(self.teacher, "skip"):
            self.teacher.skip(messages)
        else:
            self.read(messages)

    def read(self, messages: int) -> list[TextPair]:
        """Return the pairs of this many messages, fewer at the end of an evaluation.

        The context is everything that was said in the dialogue, labels included, one line per utterance; the label is
        empty if a message has none.
        """
        pairs: list[TextPair] = []
        with self.draws.used():
            while messages and not self.at_end():
                context, message = self._next()
                messages -= 1
                if context:
                    task = getattr(self.teacher, "task_idx", 0)  # MultiTaskTeacher's
                    pairs.append(TextPair(context, next(iter(real_labels(message)), ""), task))
        return pairs

    def message(self) -> tuple[str, Any]:
        """Return the context of the next message, empty if nothing was said, and the message."""
        with self.draws.used():
            return self._next()

    def _next(self) -> tuple[str, Any]:
        message = self.teacher.act()
        self.turns += [message["text"]] if message.get("text") else []
        context = "\n".join(self.turns)
        label = next(iter(real_labels(message)), "")
        self.turns = [] if message.get("episode_done") else [*self.turns, *filter(None, [label])]
        return context, message

    def at_end(self) -> bool:
        """Return whether an evaluation has ended."""
        return not self.is_endless and bool(self.teacher.epoch_done())

    def num_examples(self) -> int:
        """Return the number of examples of the task; 0 if it does not know."""
        return int(self.teacher.num_examples() or 0)
