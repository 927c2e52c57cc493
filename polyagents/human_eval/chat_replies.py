"""Models that reply to people: each reply is computed from the whole chat, so no two chats ever mix."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from polyagents.human_eval.storage.views import ChatState

if TYPE_CHECKING:  # torch is loaded with the first model, not before
    from polyagents.index.in_memory import Candidates
    from polyagents.ranker import Ranker


class ChatPartner(Protocol):
    """A model that people can talk with."""

    def reply(self, persona: str, messages: Sequence[str], seed: int) -> str:
        """Return the model's next message; an InputError says that it has nothing left to say.

        Args:
            persona: what the model reads before the chat; "" if there is none.
            messages: what was said so far; the first, third, ... are the person's.
        """
        ...


class ChatModels:
    """Partners by the name of their model; for one thread at a time.

    What a partner replies follows from what is stored alone, whoever talked to it before, and also after the server
    was killed.
    """

    def __init__(self, partners: Mapping[str, ChatPartner], seed: int = 0):
        self.partners, self.seed = partners, seed

    def reply(self, chat: ChatState) -> str:
        """Return the next message of the chat's model, as `ChatPartner.reply`."""
        messages = [message.text for message in chat.messages]
        place = f"{self.seed} {chat.number} {len(messages)}"  # each reply has a seed, the same again after a restart
        seed = int.from_bytes(hashlib.sha256(place.encode()).digest()[:4], "big")
        return self.partners[chat.model].reply(chat.personas[1], messages, seed)


class RankerPartner:
    """A model of ours, which replies with the best of its candidates.

    As in ParlAI's `interactive`, its context is the persona and all messages so far, one utterance after the other,
    and it does not repeat a line of that context unless nothing else remains.
    """

    def __init__(self, ranker: "Ranker", candidates: "Candidates", history_size: int = -1):
        """Talk with a model, which reads the last `history_size` utterances; -1 is all of them."""
        self.ranker, self.candidates, self.history_size = ranker, candidates, history_size

    def reply(self, persona: str, messages: Sequence[str], seed: int) -> str:
        """Return the best candidate; `seed` has no effect, because a ranker does not draw."""
        utterances = [*([persona] if persona else []), *messages]
        context = "\n".join(utterances[-self.history_size :] if self.history_size > 0 else utterances)
        said = set(context.split("\n"))
        matches = self.ranker.rank(context, self.candidates, top_k=1 + len(said))
        fresh = [match for match in matches if match.text not in said]
        return (fresh or matches)[0].text
