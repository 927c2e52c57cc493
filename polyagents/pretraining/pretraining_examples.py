"""Examples for pre-training from pairs of texts: the second text of each, its class, and the token ids."""

import bisect
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from polyagents.parlai_agents.task_reader import TextPair
from polyagents.text.normalize import normalized
from polyagents.text.tokenizer import RankingTokenizer


@dataclass(frozen=True)
class PretrainingExample:
    """An input (segment 0) and a label (segment 1), as token ids, each between its [S].

    The class is 1 for the input's own label, 0 for another one's; for utterance_relevance, where it comes from.
    """

    context: list[int]
    label: list[int]
    label_class: int

    def __len__(self) -> int:
        return len(self.context) + len(self.label)


def split_sentences(pairs: Sequence[TextPair], draw: random.Random) -> list[TextPair]:
    """Cut running text, one sentence per line, in two at a random sentence, as for BERT; join sentences by spaces.

    Texts of a single line are skipped.
    """
    cut = []
    for context, label, task in pairs:
        sentences = [line for line in [*context.split("\n"), *label.split("\n")] if line]
        if len(sentences) > 1:
            place = draw.randrange(1, len(sentences))
            cut.append(TextPair(" ".join(sentences[:place]), " ".join(sentences[place:]), task))
    return cut


def with_others(
    pairs: Sequence[TextPair], others: Sequence[TextPair], draw: random.Random
) -> list[tuple[TextPair, int]]:
    """Give half of the pairs the label of another one of `others` (class 0); the rest keep their own (1; paper 4.1).

    The other one is of the same task: that a text is of another is seen without reading it, and was all that a model of
    four tasks learnt. A label that reads like the own one is not another; if there is none, the own stays.
    """
    labels = defaultdict(list)
    for other in others:
        labels[other.task].append((normalized(other.label), other.label))
    for of_task in labels.values():
        of_task.sort()  # those that read alike are neighbours, which a draw leaves out
    given = []
    for pair in pairs:
        of_task, reading = labels[pair.task], normalized(pair.label)
        first = bisect.bisect_left(of_task, (reading, ""))
        alike = bisect.bisect_right(of_task, reading, key=lambda one: one[0]) - first
        is_own = draw.random() >= 0.5 or len(of_task) == alike
        if not is_own:
            place = draw.randrange(len(of_task) - alike)
            pair = pair._replace(label=of_task[place + alike if place >= first else place][1])
        given.append((pair, int(is_own)))
    return given


def encode(
    pairs: Sequence[tuple[TextPair, int]], tokenizer: RankingTokenizer, text_limit: int | None, label_limit: int | None
) -> list[PretrainingExample]:
    """Encode pairs with their classes as examples; a long input keeps its end, a long label its beginning.

    A limit is the largest number of tokens; None for no limit.
    """
    contexts = tokenizer.contexts([pair.context for pair, _ in pairs], text_limit)
    labels = tokenizer.candidates([pair.label for pair, _ in pairs], label_limit)
    return [
        PretrainingExample(context, label, kind)
        for context, label, (_, kind) in zip(contexts, labels, pairs, strict=True)
    ]
