"""Chit-Chat (BYU): what does a student who chats with another one say next? The data come as a package.

`-t polyagents.tasks.chitchat`, from the package chitchat-dataset (MIT licence). An example:

    hey hows it going?
    pretty good, just got out of class. you?
    same, im so tired haha
        -> What are you studying?
"""

import hashlib
import random
from typing import Any, NamedTuple

from parlai.core.opt import Opt

from polyagents.tasks.counts import warn_of_count
from polyagents.text.normalize import normalized

from ..one_message import OneMessageTeacher

CANDIDATES = 20  # as ConvAI2
SHARE = 20  # one conversation in 20 is in valid, and one in test


class ChitchatConversation(NamedTuple):
    """A conversation whose speakers alternate.

    The package holds each as follows. An inner list is a turn, what one of the two said before the other one did::

        {"messages": [[{"text": "hi", "sender": "2cbc...", "timestamp": "..."}, {"text": "anyone here", ...}],
                      [{"text": "hey whats up", "sender": "3126...", ...}]], "prompt": "...", ...}

    Attributes:
        id: its name in the data.
        turns: what was said, each turn in one line.
    """

    id: str
    turns: list[str]


class Target(NamedTuple):
    """A turn that is to be found: its conversation and its index there."""

    conversation: int
    place: int


class DefaultTeacher(OneMessageTeacher):
    """Every turn after the first is a target; there are 20 candidates in valid and test, none in training."""

    def read(self, opt: Opt, split: str) -> "Targets":
        """OneMessageTeacher: read all examples of a split."""
        targets = Targets(read_conversations(split), split != "train")
        warn_of_count(opt, "Chit-Chat", split, len(targets), "examples", "chitchat-dataset")
        return targets

    def fields(self, example: dict[str, Any]) -> dict[str, Any]:
        """OneMessageTeacher: return an example as it is."""
        return example


class Targets:
    """Every turn of each conversation after the first, with the turns before it as context."""

    def __init__(self, conversations: list[ChitchatConversation], with_candidates: bool):
        self.conversations = conversations
        self.with_candidates = with_candidates
        self.every = [
            Target(number, place)
            for number, conversation in enumerate(conversations)
            for place in range(1, len(conversation.turns))
        ]

    def __len__(self) -> int:
        return len(self.every)

    def __getitem__(self, index: int) -> dict[str, Any]:
        target = self.every[index]
        turns = self.conversations[target.conversation].turns
        fields: dict[str, Any] = {"text": "\n".join(turns[: target.place]), "labels": [turns[target.place]]}
        if self.with_candidates:
            fields["label_candidates"] = self.candidates(target)
        return fields

    def candidates(self, target: Target) -> list[str]:
        """Return the label and turns of other conversations, all of which read differently.

        They follow from the conversation's id and the turn's index, so they are the same in every run.
        """
        conversation = self.conversations[target.conversation]
        draw = random.Random(f"{conversation.id} {target.place}")
        label = conversation.turns[target.place]
        found = {normalized(label): label}
        while len(found) < CANDIDATES:
            other = self.every[draw.randrange(len(self.every))]
            if other.conversation != target.conversation:
                text = self.conversations[other.conversation].turns[other.place]
                found.setdefault(normalized(text), text)
        return draw.sample(list(found.values()), CANDIDATES)


def read_conversations(split: str) -> list[ChitchatConversation]:
    """Read the conversations of a split in which somebody answers, in the order of the data.

    Raises:
        ModuleNotFoundError: the package is not installed.
    """
    import chitchat_dataset  # imported here, so that the task can be named without the package

    every = (
        ChitchatConversation(id, turns_of(held))
        for id, held in chitchat_dataset.Dataset().items()
        if split_of(id) == split
    )
    return [conversation for conversation in every if len(conversation.turns) > 1]


def turns_of(held: dict[str, Any]) -> list[str]:
    """Return the turns that have a text, each as one line, as in a candidates file; the texts have no markup."""
    turns = (" ".join(" ".join(message["text"] for message in turn).split()) for turn in held["messages"])
    return [turn for turn in turns if turn]


def split_of(id: str) -> str:
    """Return train, valid or test for an id, independent of all other conversations."""
    place = int.from_bytes(hashlib.sha256(id.encode()).digest()[:8], "big") % SHARE
    return {0: "valid", 1: "test"}.get(place, "train")
