"""Conversations of models: two of them, or one with itself, begun as a task's dialogues are.

They run in ParlAI's own world for self-chats, except for its openings (openings.py).
"""

from collections.abc import Sequence
from typing import Any

from parlai.core.agents import Agent
from parlai.core.opt import Opt

from polyagents.parlai_agents.chat_partner import CONTEXT, naming_the_flag
from polyagents.parlai_patches.openings import Opening
from polyagents.parlai_patches.worlds import TaskSelfChatWorld


class OpenedSelfChat(TaskSelfChatWorld):
    """A self-chat with a given beginning."""

    def __init__(self, opt: Opt, agents: Sequence[Agent], opening: Opening):
        self.openings = [opening]
        super().__init__(opt, list(agents))

    def init_contexts(self, shared: dict[str, Any] | None = None) -> None:
        """WithOpenings: do nothing, since the opening is given."""

    def init_openers(self) -> None:
        """TaskSelfChatWorld: do nothing, for the same reason."""


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
