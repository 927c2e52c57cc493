"""A ParlAI teacher whose episodes are one message each, which is made when it is asked for."""

import abc
from typing import Any, Protocol

from parlai.core.message import Message
from parlai.core.opt import Opt
from parlai.core.teachers import FixedDialogTeacher
from parlai.utils.data import DatatypeHelper
from parlai.utils.distributed import get_rank, num_workers


class Examples(Protocol):
    """A list, or what makes its items as they are asked for."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


class OneMessageTeacher(FixedDialogTeacher, abc.ABC):
    """Examples with their whole context, of dialogues in which every utterance is a target.

    Attributes:
        has_own_targets: `--every-utterance` has nothing to add.
    """

    has_own_targets = True

    def __init__(self, opt: Opt, shared: dict[str, Any] | None = None):
        self.datatype = DatatypeHelper.strip_stream(opt["datatype"])  # what a stream would spare is not kept anyway
        super().__init__(opt, shared)
        if shared is None:
            self.examples = self.read(opt, DatatypeHelper.fold(self.datatype))
        self.own = range(len(self.examples))
        if not DatatypeHelper.is_training(self.datatype):
            self.own = self.own[get_rank() :: num_workers()]  # each process evaluates its share, as with DialogTeacher
        self.reset()

    @abc.abstractmethod
    def read(self, opt: Opt, split: str) -> Examples:
        """All of a split."""

    @abc.abstractmethod
    def fields(self, example: Any) -> dict[str, Any]:
        """Text and labels of an example; its label_candidates, if it has any."""

    def num_episodes(self) -> int:
        """FixedDialogTeacher: an episode is one target with its context."""
        return len(self.own)

    def num_examples(self) -> int:
        """FixedDialogTeacher: as many."""
        return len(self.own)

    def get(self, episode_idx: int, entry_idx: int = 0) -> Message:
        """FixedDialogTeacher: an example."""
        return Message(self.fields(self.examples[self.own[episode_idx]]) | {"episode_done": True})
