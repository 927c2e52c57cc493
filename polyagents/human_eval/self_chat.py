"""Conversations of models: two of them, or one with itself, begun as a task's dialogues are.

In ParlAI's own world for it, but for what that world begins with: ParlAI has personas for five tasks only, and draws
them without a seed.
"""

import contextlib
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from parlai.core.agents import Agent
from parlai.core.opt import Opt
from parlai.core.torch_ranker_agent import TorchRankerAgent
from parlai.tasks.self_chat.worlds import SelfChatWorld

from polyagents.errors import InputError
from polyagents.human_eval.conversations import make_conversation
from polyagents.human_eval.pairing import shuffled
from polyagents.human_eval.parlai_format import CONTEXT, context_lines
from polyagents.human_eval.records import Conversation
from polyagents.parlai_agents.task_messages import task_messages

OWN = "your persona:"  # of who answers the message that it stands in
PARTNER = "partner's persona:"
SILENCE = "__SILENCE__"  # ParlAI's message of a partner who waits


@dataclass(frozen=True)
class Opening:
    """How a dialogue of a task begins.

    Attributes:
        text: the first message.
        personas: of who says it, and of who answers; "" where the task has none.
    """

    text: str
    personas: tuple[str, str]


class OpenedChat(SelfChatWorld):
    """A self-chat with a given beginning."""

    def __init__(self, opt: Opt, agents: Sequence[Agent], opening: Opening):
        self.opening = opening
        super().__init__(opt, list(agents))

    def init_openers(self) -> None:
        """There is one already."""

    def get_contexts(self) -> list[str] | None:
        """What each agent reads before the first message; nothing is not an empty message."""
        return list(self.opening.personas) if any(self.opening.personas) else None

    def get_openers(self, episode_num: int) -> list[str]:
        """What the first agent says."""
        return [self.opening.text]


def read_openings(opt: Opt, count: int, seed: int) -> list[Opening]:
    """Draw beginnings from a task's dialogues, no dialogue twice; the same for the same seed.

    Where a task has only the persona of who answers, who opens gets that of another dialogue, as in ParlAI.

    Raises:
        InputError: the task cannot be read, or has too few dialogues.
    """
    found = all_openings(opt, seed)
    if len(found) < count:
        raise InputError(
            f"--task {opt['task']} has {len(found)} different openings in -dt {opt['datatype']}, and {count} are "
            f"wanted; give a smaller --conversations, or another -dt."
        )
    return found[:count]


def all_openings(opt: Opt, seed: int) -> list[Opening]:
    """The beginnings of all dialogues of a task, in an order that the seed draws.

    Raises:
        InputError: the task cannot be read, or nobody says anything in it.
    """
    first = [text for text in dict.fromkeys(first_messages(opt)) if without_personas(text) not in ("", SILENCE)]
    if not first:
        raise InputError(f"--task {opt['task']} has no opening in -dt {opt['datatype']}; give another -dt, or task.")
    order = shuffled(random.Random(seed), first)
    return [opening_of(text, order[place - 1]) for place, text in enumerate(order)]


def opening_of(text: str, other: str) -> Opening:
    """A first message -> what each speaker reads, and what is said.

    Args:
        text: of the task, persona lines first.
        other: another one, whose persona is taken where the task keeps the partner's to itself.
    """
    own = persona_in(text, OWN)
    partner = persona_in(text, PARTNER).replace(PARTNER, OWN) or persona_in(other, OWN)
    return Opening(without_personas(text), (partner, own))


def persona_in(text: str, mark: str) -> str:
    """The persona lines of one kind."""
    return "\n".join(line for line in text.split("\n") if line.startswith(mark))


def without_personas(text: str) -> str:
    """What is said in a message."""
    return "\n".join(line for line in text.split("\n") if not line.startswith((OWN, PARTNER))).strip()


def first_messages(opt: Opt) -> Iterator[str]:
    """The first message of every dialogue of a task, in order.

    Raises:
        InputError: the task cannot be read.
    """
    fold = str(opt["datatype"]).split(":")[0]
    once = "train:evalmode" if fold == "train" else fold
    begins = True
    for act in task_messages(Opt(opt | {"datatype": once, "interactive_task": False, "selfchat_task": False})):
        if begins:
            yield act.get("text") or ""
        begins = act.get("episode_done", False)


def chat(opt: Opt, agents: Sequence[Agent], names: Sequence[str], opening: Opening, turns: int) -> Conversation:
    """One conversation.

    Args:
        opt: of the command.
        agents: who speaks first, and who answers.
        names: of their models.
        opening: how it begins; that is the first agent's first turn.
        turns: of each agent.

    Raises:
        InputError: a ranker of ParlAI's has no candidate left.
    """
    world = OpenedChat(Opt(opt | {"selfchat_max_turns": turns + 1}), agents, opening)
    spoken: list[tuple[str, str]] = []
    while len(spoken) < 2 * turns:
        with naming_the_flag(agents):
            world.parley()
        acts: list[dict[str, Any]] = world.get_acts()
        spoken += [(str(place), act.get("text") or "") for place, act in enumerate(acts) if act.get("id") != CONTEXT]
    for agent in agents:
        agent.reset()
    background = context_lines(list(opening.personas)) if any(opening.personas) else []
    return make_conversation(spoken, dict(zip("01", names, strict=True)), background, f"self_chat {opt['task']}")


@contextlib.contextmanager
def naming_the_flag(agents: Iterable[Agent]) -> Iterator[None]:
    """Say what to do where a ranker of ParlAI's has no candidate left."""
    try:
        yield
    except IndexError as error:
        if any(isinstance(agent, TorchRankerAgent) for agent in agents):
            raise InputError(
                f"A model has said all of its candidates, and does not repeat itself ({error}); give "
                f"--repeat-blocking-heuristic false, or a larger --fixed-candidates-path."
            ) from error
        raise


def chats(
    opt: Opt, agents: Sequence[Agent], names: Sequence[str], openings: Sequence[Opening], turns: int
) -> Iterator[Conversation]:
    """Conversations with these openings; of two models each is the first speaker in every second one."""
    for number, opening in enumerate(openings):
        order = slice(None, None, -1) if number % 2 and names[0] != names[1] else slice(None)
        yield chat(opt, agents[order], names[order], opening, turns)


def seed_all(seed: int) -> None:
    """For agents that draw."""
    random.seed(seed)
    torch.manual_seed(seed)
