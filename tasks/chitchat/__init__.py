"""Chit-Chat (BYU): what does a student who chats with another one say next? The data come as a package.

`-t polyagents.tasks.chitchat`, from the package chitchat-dataset (MIT licence). An example:

    hey hows it going?
    pretty good, just got out of class. you?
    same, im so tired haha
        -> What are you studying?
"""

import random
from typing import Any, NamedTuple

from parlai.core.opt import Opt

from polyagents.tasks.counts import check_count
from polyagents.text.normalize import normalized

from ..one_message import OneMessageTeacher
from .conversations import ChitchatConversation, read_conversations

CANDIDATES = 20  # as ConvAI2


class Target(NamedTuple):
    """A turn that is to be found: its conversation and its index there."""

    conversation: int
    place: int


class DefaultTeacher(OneMessageTeacher):
    """Every turn after the first is a target; there are 20 candidates in valid and test, none in training."""

    def read(self, opt: Opt, split: str) -> "Targets":
        """OneMessageTeacher: read all examples of a split."""
        targets = Targets(read_conversations(split), split != "train")
        check_count(opt, "Chit-Chat", split, len(targets), "examples", "chitchat-dataset")
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
