"""`--every-utterance`: each utterance of a training dialogue is a target, after those before it (paper v1, 5.1).

    your persona: i have two cats .
    hi , how are you today ?
        -> a bit tired .                    an example of the task, which stays as it is
    so early ? what do you do ?
        -> i bake bread .                   another one
    hi , how are you today ?
    a bit tired .
        -> so early ? what do you do ?      an added target, with the other speaker's persona

It is a mutator of ParlAI's, which is given to teachers of training sets only.
"""

import functools
import re
from collections.abc import Iterator, Sequence
from typing import Any

from parlai.core.message import Message
from parlai.core.mutators import ManyEpisodeMutator
from parlai.core.opt import Opt
from parlai.core.teachers import ChunkTeacher, DialogTeacher

from polyagents.parlai_patches.train_loop import is_training_run

NOT_SAID = re.compile(r"(your|partner's) persona: .*|__SILENCE__|\s*")  # prefixes of lines that are not utterances
SPEAKER = re.compile(r"^participant \d+: ?")  # before each line of a context of ParlAI's dstc7, but not of labels


class EveryUtterance(ManyEpisodeMutator):
    """Yields an episode as it is, and one for each of its utterances that is not a label."""

    def many_episode_mutation(self, episode: list[Message]) -> list[list[Message]]:
        """ManyEpisodeMutator: return the episodes that replace one."""
        return [episode, *([target] for target in added_targets(episode))]


def added_targets(episode: Sequence[Message]) -> list[Message]:
    """Return the utterances of an episode that are not labels, each with everything that was said before it.

    The first utterance answers nothing, and candidates of a label belong to no other target: there are none.
    """
    said = list(utterances(episode))
    texts = [text for text, _ in said]
    targets = [(place, SPEAKER.sub("", text)) for place, (text, is_label) in enumerate(said) if not is_label]
    return [Message(text="\n".join(texts[:place]), labels=[text]) for place, text in targets if place and text]


def utterances(episode: Sequence[Message]) -> Iterator[tuple[str, bool]]:
    """Yield what somebody said, in order, and whether the task has it as a label (the first if there are several)."""
    for message in episode:
        lines = (message.get("text") or "").split("\n")
        yield from ((line, False) for line in lines if not NOT_SAID.fullmatch(line))
        if label := next(iter(message.get("labels") or ()), ""):
            yield label, True


def with_added_targets(initialise: Any, teacher: Any, opt: Opt, shared: dict[str, Any] | None = None) -> None:
    """Initialise a teacher, and add targets if it is for a training set and the flag says so.

    A class with `has_own_targets` is not changed: its data say which utterances are targets.
    """
    initialise(teacher, opt, shared)
    asked = opt.get("every_utterance") and is_training_run(opt) and not getattr(teacher, "has_own_targets", False)
    if asked and shared is None:  # the other teachers of a batch get their mutators from this one
        teacher.mutators.insert(0, EveryUtterance(opt))  # the user's --mutators see the task's own messages in it
        if not isinstance(teacher, ChunkTeacher):  # the teacher does not count these itself
            teacher.num_examples = functools.cache(
                lambda: sum(len(episode) + len(added_targets(episode)) for episode in episodes_of(teacher))
            )


def episodes_of(teacher: Any) -> Iterator[list[Message]]:
    """Yield all episodes of a teacher, without a mutator, from the beginning."""
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
