"""Short contexts from the pairs of a task, each with the utterance that came next or with another one (BERT-FP).

Han et al. 2021 (NAACL), "Fine-grained Post-training for Improving Retrieval-based Dialogue Systems": every utterance of
a dialogue is a target, after the few before it. The model distinguishes what came next, what is said elsewhere in the
same dialogue, and what is said in another one. The proportions, and the source of the others, are as in the authors'
code.
"""

import itertools
import random
from collections.abc import Sequence, Set
from dataclasses import dataclass

from polyagents.parlai_agents.task_reader import TextPair
from polyagents.parlai_patches.every_utterance import NOT_SAID, SPEAKER
from polyagents.properties import cached_property
from polyagents.text.normalize import normalized

OTHER_DIALOGUE, SAME_DIALOGUE, NEXT = range(3)  # where the second text comes from
SHARES = (0.5, 0.25, 0.25)


@dataclass(frozen=True)
class Dialogue:
    """The utterances of a dialogue.

    Attributes:
        lines: as contexts have them.
        texts: as labels have them, without the speaker.
        readings: the texts in a form that is equal for texts that read the same.
    """

    lines: tuple[str, ...]
    texts: tuple[str, ...]
    readings: tuple[str, ...]
    task: int

    @classmethod
    def of(cls, pair: TextPair) -> "Dialogue":
        """Make a dialogue from a context and its label, without persona lines and silence."""
        said = [line for line in f"{pair.context}\n{pair.label}".split("\n") if not NOT_SAID.fullmatch(line)]
        both = [(line, text) for line in said if (text := SPEAKER.sub("", line))]
        texts = tuple(text for _, text in both)
        return cls(tuple(line for line, _ in both), texts, tuple(map(normalized, texts)), pair.task)

    @cached_property
    def distinct_readings(self) -> frozenset[str]:
        """The readings, without repetitions."""
        return frozenset(self.readings)

    def begins(self, other: "Dialogue") -> bool:
        """Return whether this dialogue is only the beginning of another dialogue of the same task."""
        return self.task == other.task and self.readings == other.readings[: len(self.readings)]

    def texts_but(self, readings: Set[str]) -> list[str]:
        """Return the texts that do not read like any of these."""
        return [text for text, reading in zip(self.texts, self.readings, strict=True) if reading not in readings]

    def targets(self, context_size: int) -> range:
        """Return the indices of utterances with `context_size` others before them; if there are none, only the last."""
        return range(max(min(context_size, len(self.texts) - 1), 1), len(self.texts))


def dialogues(pairs: Sequence[TextPair]) -> list[Dialogue]:
    """Return the dialogues of a window, in alphabetical order.

    A task brings a dialogue again and again, each time with more of it, in an episode or as separate examples; one that
    is only the beginning of another one is skipped.
    """
    found = sorted(map(Dialogue.of, pairs), key=lambda dialogue: (dialogue.task, dialogue.readings))
    return [first for first, second in itertools.pairwise(found) if not first.begins(second)] + found[-1:]


def with_relevance(pairs: Sequence[TextPair], context_size: int, draw: random.Random) -> list[tuple[TextPair, int]]:
    """Return every short context, of `context_size` utterances, with a second text as its label, and its source.

    The other dialogue is of the same task, for the reason that `with_others` gives.
    """
    made = []
    for _, group in itertools.groupby(dialogues(pairs), key=lambda dialogue: dialogue.task):
        of_task = list(group)
        for number, dialogue in enumerate(of_task):
            for place in dialogue.targets(context_size):
                step = draw.randrange(1, len(of_task)) if len(of_task) > 1 else 0
                other = of_task[(number + step) % len(of_task)]
                made.append(with_second_text(dialogue, place, context_size, other, draw))
    return made


def with_second_text(
    dialogue: Dialogue, place: int, context_size: int, other: Dialogue, draw: random.Random
) -> tuple[TextPair, int]:
    """Return the utterances before a position, with what is said there, elsewhere, or in another dialogue of the task.

    What reads like the utterance of the place is never a wrong one, and what reads like any of the dialogue never
    another dialogue's. If this leaves nothing of a class, it is one of the others.
    """
    choices = (
        other.texts_but(dialogue.distinct_readings),
        dialogue.texts_but({dialogue.readings[place]}),
        [dialogue.texts[place]],
    )
    possible = [number for number, texts in enumerate(choices) if texts]
    (drawn,) = draw.choices(possible, [SHARES[number] for number in possible])
    context = "\n".join(dialogue.lines[max(place - context_size, 0) : place])
    return TextPair(context, draw.choice(choices[drawn]), dialogue.task), drawn
