"""The task of people who chat, and the state of a chat: values without a database."""

from collections.abc import Sequence
from dataclasses import dataclass

from polyagents.human_eval.records import ChatMessage

MOST = 100  # messages of the person in one chat
RATE = ("replies", "whole", "both")

Personas = tuple[str, str]
"""The persona that the person plays, and the one that the model reads; "" if the task has no personas."""


@dataclass(frozen=True)
class ChatPlan:
    """The task of the people who chat.

    Attributes:
        models: the names of the models that people may talk to.
        personas: the personas of the chats, which use them in turn.
        turns: how many messages of the person a chat needs before it may be finished.
        conversations: how many chats each person has.
        rate: what is rated: replies, whole or both.
        problems: what may be ticked below a reply.
        seed: decides which model each person meets first.
    """

    models: Sequence[str]
    personas: Sequence[Personas] = (("", ""),)
    turns: int = 6
    conversations: int = 2
    rate: str = "both"
    problems: Sequence[str] = ()
    seed: int = 0

    @property
    def rates_whole(self) -> bool:
        """Whether a chat needs a rating to be finished."""
        return self.rate != "replies"

    @property
    def rates_replies(self) -> bool:
        """Whether replies are called good or bad."""
        return self.rate != "whole"


@dataclass(frozen=True)
class ChatState:
    """The state of a chat.

    Attributes:
        number: distinguishes it from all other chats.
        place: 1 for the person's first; `ChatStore.current` counts the chats with models of the plan.
        model: the model's name, which is hidden from the person.
        personas: of the person and of the model.
        messages: what was said, in order; the first, third, ... are the person's.
    """

    number: int
    place: int
    model: str
    personas: Personas
    messages: tuple[ChatMessage, ...]

    @property
    def waits(self) -> bool:
        """Whether the last message has no reply yet."""
        return len(self.messages) % 2 == 1

    @property
    def replies(self) -> int:
        """How many replies the model has given."""
        return len(self.messages) // 2
