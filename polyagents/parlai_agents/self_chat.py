"""Conversations of models: two of them, or one with itself, begun as a task's dialogues are.

They run in ParlAI's own world for self-chats, except for its openings (openings.py).
"""

from collections.abc import Sequence
from typing import Any

from parlai.core.agents import Agent
from parlai.core.opt import Opt
from parlai.tasks.self_chat.worlds import SelfChatWorld

from polyagents.parlai_agents.chat_partner import CONTEXT, naming_the_flag
from polyagents.parlai_patches.openings import Opening


class OpenedSelfChat(SelfChatWorld):
    """A self-chat with a given beginning."""

    def __init__(self, opt: Opt, agents: Sequence[Agent], opening: Opening):
        self.opening = opening
        super().__init__(opt, list(agents))

    def init_openers(self) -> None:
        """SelfChatWorld: do nothing, since the opening is given."""

    def get_contexts(self) -> list[str] | None:
        """SelfChatWorld: return each agent's context before the first message; an empty message is skipped."""
        return list(self.opening.personas) if any(self.opening.personas) else None

    def get_openers(self, episode_num: int) -> list[str]:
        """SelfChatWorld: return the first agent's message."""
        return [self.opening.text]


def self_chat(opt: Opt, agents: Sequence[Agent], opening: Opening, turns: int) -> list[tuple[str, str]]:
    """Let two agents talk.

    Args:
        agents: the one that speaks first, and the one that answers.
        opening: how the conversation begins; it is the first agent's first turn.
        turns: how many turns each agent has.

    Returns:
        Who spoke ("0" or "1", the agent's place) and what, in order.

    Raises:
        InputError: a ranker of ParlAI's has no candidate left.
    """
    world = OpenedSelfChat(Opt(opt | {"selfchat_max_turns": turns + 1}), agents, opening)
    spoken: list[tuple[str, str]] = []
    while len(spoken) < 2 * turns:
        with naming_the_flag(agents):
            world.parley()
        acts: list[dict[str, Any]] = world.get_acts()
        spoken += [(str(place), act.get("text") or "") for place, act in enumerate(acts) if act.get("id") != CONTEXT]
    for agent in agents:
        agent.reset()
    return spoken
