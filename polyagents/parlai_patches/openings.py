"""How dialogues of a task begin: the first message, and the personas of both speakers.

ParlAI has personas for five tasks only, and draws them without a seed.
"""

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass

from parlai.core.opt import Opt

from polyagents.console import number_of
from polyagents.errors import InputError
from polyagents.parlai_patches.task_messages import task_messages

OWN = "your persona:"  # the persona of the agent that answers this message
PARTNER = "partner's persona:"
SILENCE = "__SILENCE__"  # ParlAI's message for a partner who says nothing


@dataclass(frozen=True)
class Opening:
    """How a dialogue of a task begins: its first message, and the personas of its speaker and of the other one."""

    text: str
    personas: tuple[str, str]


def read_openings(opt: Opt, count: int, seed: int) -> list[Opening]:
    """Draw beginnings from a task's dialogues, none twice, the same for the same seed; refuse a task with too few."""
    found = all_openings(opt, seed)
    if len(found) < count:
        raise InputError(
            f"--task {opt['task']} has {number_of(len(found), 'different opening')} in -dt {opt['datatype']}, fewer "
            f"than {count}; give a smaller --conversations, or another -dt."
        )
    return found[:count]


def all_openings(opt: Opt, seed: int | None, dialogues: int | None = None) -> list[Opening]:
    """Read the beginnings of the first dialogues of a task, or all (None), in an order that the seed draws.

    If a task has only the persona of the one who answers, the one who opens gets one of another dialogue, as in
    ParlAI.

    Raises:
        InputError: the task cannot be read, or nobody says anything in it.
    """
    texts = itertools.islice(first_messages(opt), dialogues)
    first = [text for text in dict.fromkeys(texts) if without_personas(text) not in ("", SILENCE)]
    if not first:
        raise InputError(f"--task {opt['task']} has no opening in -dt {opt['datatype']}; give another -dt, or task.")
    draw = random.Random(seed)
    order = sorted(first, key=lambda _: draw.random())  # by random(), whose sequence Python promises to keep
    return [opening_of(text, order[place - 1]) for place, text in enumerate(order)]


def opening_of(text: str, other: str) -> Opening:
    """Divide a first message into personas and what is said; a partner without a persona gets the `other` one's."""
    own = persona_in(text, OWN)
    partner = persona_in(text, PARTNER).replace(PARTNER, OWN) or persona_in(other, OWN)
    return Opening(without_personas(text), (partner, own))


def persona_in(text: str, mark: str) -> str:
    """Return the persona lines of one kind."""
    return "\n".join(line for line in text.split("\n") if line.startswith(mark))


def without_personas(text: str) -> str:
    """Return a message without its personas."""
    return "\n".join(line for line in text.split("\n") if not line.startswith((OWN, PARTNER))).strip()


def first_messages(opt: Opt) -> Iterator[str]:
    """Read the first message of every dialogue of a task, in order."""
    fold = str(opt["datatype"]).split(":")[0]
    once = "train:evalmode" if fold == "train" else fold
    begins = True
    for act in task_messages(Opt(opt | {"datatype": once, "interactive_task": False, "selfchat_task": False})):
        if begins:
            yield act.get("text") or ""
        begins = act.get("episode_done", False)
