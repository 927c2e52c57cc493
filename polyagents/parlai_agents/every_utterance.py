"""`--every-utterance`: each utterance of a training dialogue is a target, after those before it (paper v1, 5.1).

    your persona: i have two cats .
    hi , how are you today ?
        -> a bit tired .                    what the task has, as it is
    so early ? what do you do ?
        -> i bake bread .                   and so has this
    hi , how are you today ?
    a bit tired .
        -> so early ? what do you do ?      what is added: the persona is that of the other speaker

It is a mutator of ParlAI's, which teachers of training sets are given, and no others.
"""

import functools
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from parlai.core.message import Message
from parlai.core.mutators import ManyEpisodeMutator
from parlai.core.opt import Opt
from parlai.core.teachers import ChunkTeacher, DialogTeacher, FixedDialogTeacher

from polyagents.parlai_agents.train_loop import is_training_run

NOT_SAID = re.compile(r"(your|partner's) persona: .*|__SILENCE__|\s*")  # lines of a text that are no utterances
SPEAKER = re.compile(r"^participant \d+: ?")  # how ParlAI's dstc7 begins each line of a context, and no label


class Utterance(NamedTuple):
    """What somebody said, and whether the task has it as a label."""

    text: str
    is_label: bool


class EveryUtterance(ManyEpisodeMutator):
    """An episode as it is, and one for each of its utterances that is none of its labels."""

    def many_episode_mutation(self, episode: list[Message]) -> list[list[Message]]:
        """ManyEpisodeMutator: the episodes that take the place of one."""
        return [episode, *([target] for target in added_targets(episode))]


def added_targets(episode: Sequence[Message]) -> list[Message]:
    """The utterances of an episode that are none of its labels, each with all that was said before it.

    The first utterance answers nothing, and candidates of a label are nobody else's: there are none.
    """
    said = list(utterances(episode))
    texts = [utterance.text for utterance in said]
    targets = [(place, SPEAKER.sub("", text)) for place, text in enumerate(texts) if not said[place].is_label]
    return [Message(text="\n".join(texts[:place]), labels=[text]) for place, text in targets if place and text]


def utterances(episode: Sequence[Message]) -> Iterator[Utterance]:
    """The lines of the texts that somebody said, and the labels (the first where there are several), in their order."""
    for message in episode:
        lines = (message.get("text") or "").split("\n")
        yield from (Utterance(line, False) for line in lines if not NOT_SAID.fullmatch(line))
        label = next(iter(message.get("labels") or ()), "")
        if label:
            yield Utterance(label, True)


def apply() -> None:
    """Have ParlAI's teachers obey the flag (idempotent)."""
    if not getattr(FixedDialogTeacher.__init__, "of_polyagents", False):
        FixedDialogTeacher.__init__ = with_added_targets(FixedDialogTeacher.__init__)


def with_added_targets(initialise: Any) -> Any:
    """A teacher that adds targets where it is of a training set, and is asked to.

    A class with `has_own_targets` is left as it is: its data say which utterances are targets.
    """

    @functools.wraps(initialise)
    def patched(self: Any, opt: Opt, shared: dict[str, Any] | None = None) -> None:
        initialise(self, opt, shared)
        asked = opt.get("every_utterance") and is_training_run(opt) and not getattr(self, "has_own_targets", False)
        if asked and shared is None:  # the other teachers of a batch get their mutators from this one
            self.mutators.insert(0, EveryUtterance(opt))  # those of --mutators see the task's own messages in it
            if not isinstance(self, ChunkTeacher):  # which counts nothing itself
                self.num_examples = functools.cache(lambda: count(self))

    patched.of_polyagents = True  # type: ignore[attr-defined]
    return patched


def count(teacher: Any) -> int:
    """Examples of an epoch, those that are added included."""
    return sum(len(episode) + len(added_targets(episode)) for episode in episodes_of(teacher))


def episodes_of(teacher: Any) -> Iterator[list[Message]]:
    """All that a teacher reads, without a mutator, whatever it has told so far."""
    if isinstance(teacher, DialogTeacher) and teacher.stream:
        data = teacher.data
        for entries in data._read_episode(data.data_loader(data.datafile)):
            yield [data.build_table(entry) for entry in entries]
        return
    for number in range(teacher.num_episodes()):
        episode = [teacher.get(number, 0)]
        while not episode[-1].get("episode_done"):
            episode.append(teacher.get(number, len(episode)))
        yield episode
