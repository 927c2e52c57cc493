"""The conversations of the package chitchat-dataset, and the split of each.

    {"messages": [[{"text": "hi", "sender": "2cbc...", "timestamp": "..."}, {"text": "anyone here", ...}],
                  [{"text": "hey whats up", "sender": "3126...", ...}]], "prompt": "...", ...}

An inner list is a turn: what one of the two people said before the other one did.
"""

import hashlib
from typing import Any, NamedTuple

SHARE = 20  # one conversation in 20 is in valid, and one in test


class ChitchatConversation(NamedTuple):
    """A conversation whose speakers alternate.

    Attributes:
        id: its name in the data.
        turns: what was said, each turn in one line.
    """

    id: str
    turns: list[str]


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
