"""A ParlAI teacher whose episodes are one message each, which is made when it is requested."""

import abc
from typing import Any, Protocol

from parlai.core.message import Message
from parlai.core.opt import Opt
from parlai.core.teachers import FixedDialogTeacher
from parlai.utils.data import DatatypeHelper
from parlai.utils.distributed import get_rank, num_workers


class Examples(Protocol):
    """A list, or an object that makes its items when they are requested."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


class OneMessageTeacher(FixedDialogTeacher, abc.ABC):
    """A teacher of examples with their whole context, from dialogues in which every utterance is a target.

    Attributes:
        has_own_targets: `--every-utterance` has nothing to add.
    """

    has_own_targets = True

    def __init__(self, opt: Opt, shared: dict[str, Any] | None = None):
        self.datatype = DatatypeHelper.strip_stream(opt["datatype"])  # streaming would save no memory here
        super().__init__(opt, shared)
        if shared is None:
            self.examples = self.read(opt, DatatypeHelper.fold(self.datatype))
        self.own = range(len(self.examples))
        if not DatatypeHelper.is_training(self.datatype):
            self.own = self.own[get_rank() :: num_workers()]  # each process evaluates its share, as with DialogTeacher
        self.reset()

    @abc.abstractmethod
    def read(self, opt: Opt, split: str) -> Examples:
        """Read all examples of a split."""

    @abc.abstractmethod
    def fields(self, example: Any) -> dict[str, Any]:
        """Return text and labels of an example, and its label_candidates if it has any."""

    def num_episodes(self) -> int:
        """FixedDialogTeacher: return the number of episodes; each is one target with its context."""
        return len(self.own)

    def num_examples(self) -> int:
        """FixedDialogTeacher: return the number of examples, one for each episode."""
        return len(self.own)

    def get(self, episode_idx: int, entry_idx: int = 0) -> Message:
        """FixedDialogTeacher: return an example."""
        return Message(self.fields(self.examples[self.own[episode_idx]]) | {"episode_done": True})
