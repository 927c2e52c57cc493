"""Models that reply to people: each reply from the whole chat, so that no two people's histories ever meet."""

import hashlib
from collections.abc import Mapping

from parlai.core.agents import Agent
from parlai.core.message import Message

from polyagents.human_eval.chat_store import Chat
from polyagents.human_eval.parlai_format import CONTEXT
from polyagents.human_eval.records import HUMAN
from polyagents.human_eval.self_chat import naming_the_flag, seed_all


class ChatModels:
    """Agents by the name of their model; for one thread at a time.

    An agent forgets everything before it reads a chat: what it replies follows from what is stored alone, whoever
    talked to it before, and also after the server was killed.
    """

    def __init__(self, agents: Mapping[str, Agent], seed: int = 0):
        self.agents, self.seed = agents, seed

    def reply(self, chat: Chat) -> str:
        """What the chat's model says next.

        Raises:
            InputError: it has nothing left to say.
        """
        agent = self.agents[chat.model]
        seed_all(drawn(self.seed, chat))
        read(agent, chat)
        with naming_the_flag([agent]):
            return agent.act().get("text") or ""


def read(agent: Agent, chat: Chat) -> None:
    """Let an agent read a chat from its beginning, as if it had taken part."""
    agent.reset()
    if chat.personas[1]:
        agent.observe(Message({"id": CONTEXT, "text": chat.personas[1], "episode_done": False}))
    for place, message in enumerate(chat.messages):
        if place % 2 == 0:
            agent.observe(Message({"id": HUMAN, "text": message.text, "episode_done": False}))
        elif hasattr(agent, "self_observe"):  # others do not remember what they said in a living chat, either
            agent.self_observe(Message({"text": message.text, "episode_done": False}))


def drawn(seed: int, chat: Chat) -> int:
    """A seed for each reply, for models that draw: the same again after a restart."""
    told = f"{seed} {chat.number} {len(chat.messages)}"
    return int.from_bytes(hashlib.sha256(told.encode()).digest()[:4], "big")
