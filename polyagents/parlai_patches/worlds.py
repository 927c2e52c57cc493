"""The worlds of chats about a task: a person with a model, and a model with itself.

ParlAI has such worlds for a few of its own tasks. For all others it takes its most general world, which knows neither
personas nor how a chat ends.
"""

import itertools
from typing import Any

from parlai.agents.local_human.local_human import LocalHumanAgent
from parlai.core.worlds import DialogPartnerWorld
from parlai.tasks.interactive.worlds import InteractiveWorld
from parlai.tasks.self_chat.worlds import SelfChatWorld

from polyagents.parlai_patches.openings import Opening, all_openings

DIALOGUES = 1000  # how many dialogues of a task are read for their openings: a chat should not wait for a million


class WithOpenings(DialogPartnerWorld):
    """A world of chats that begin as the first dialogues of a task do, in the order of `--seed`; else by chance."""

    def init_contexts(self, shared: dict[str, Any] | None = None) -> None:
        """ParlAI's worlds: read the openings of the task."""
        self.openings = shared["openings"] if shared else all_openings(self.opt, self.opt.get("seed"), DIALOGUES)
        self.chats = itertools.count()

    def share(self) -> dict[str, Any]:
        """DialogPartnerWorld: share the openings, too."""
        return {**super().share(), "openings": self.openings}


class TaskInteractiveWorld(WithOpenings, InteractiveWorld):
    """A person talks to a model; both get the personas of a dialogue of the task, if it has any."""

    def get_contexts(self) -> tuple[str, str]:
        """InteractiveWorld: return the personas of the person and of the model; each is empty without any."""
        return self.openings[next(self.chats) % len(self.openings)].personas


class TaskSelfChatWorld(WithOpenings, SelfChatWorld):
    """A model talks to itself; every conversation begins as a dialogue of the task does."""

    def init_openers(self) -> None:
        """SelfChatWorld: read only the openers of a file, since the task's are known."""
        if self.opt.get("seed_messages_from_file"):
            super().init_openers()

    def get_contexts(self) -> list[str] | None:
        """SelfChatWorld: return the persona of each agent; None if the task has none."""
        personas = self._opening().personas
        return list(personas) if any(personas) else None

    def get_openers(self, episode_num: int) -> list[str] | None:
        """SelfChatWorld: return the first agent's message."""
        openers: list[str] | None = super().get_openers(episode_num)
        return openers or [self._opening().text]

    def _opening(self) -> Opening:
        return self.openings[self.episode_cnt % len(self.openings)]


def with_our_worlds(
    load_world_module: Any,
    taskname: str,
    interactive_task: bool = False,
    selfchat_task: bool = False,
    num_agents: int | None = None,
    default_world: Any = None,
) -> Any:
    """Do as ParlAI's function, but find our worlds for chats about a task that has none of its own."""
    found = load_world_module(taskname, interactive_task, selfchat_task, num_agents, default_world)
    general = default_world is None and found in (None, DialogPartnerWorld)
    if interactive_task and general:
        return TaskInteractiveWorld
    return TaskSelfChatWorld if selfchat_task and general else found


def until_input_ends(act: Any, person: LocalHumanAgent) -> Any:
    """Take the turn of a person at the keyboard; the end of input ends the chat as [EXIT] does.

    ParlAI lets the model reply to a message without a text first.
    """
    reply = act(person)
    if person.finished:
        raise StopIteration
    return reply
