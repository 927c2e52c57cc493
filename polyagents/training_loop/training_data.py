"""Training examples in Python: a list, an iterable or a `datasets.Dataset` of dicts; their order, and batches."""

import itertools
import random
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from polyagents.errors import InputError
from polyagents.ranking.candidate_set import Candidate, Label
from polyagents.ranking.ranking_model import RankingModel
from polyagents.training.candidate_sources import EncodedExamples
from polyagents.training_loop.text_example import TextExample, read_example


@runtime_checkable
class Indexed(Protocol):
    """Examples that can be read in any order."""

    def __len__(self) -> int:
        """Return the number of examples."""
        ...

    def __getitem__(self, index: Any, /) -> Any:
        """Return the example of an index."""
        ...


def token_ids_of(model: RankingModel, batch: Sequence[TextExample], draw: random.Random) -> EncodedExamples:
    """Encode a batch as the model reads it; `draw` selects which of several labels is ranked."""
    drawn = [draw.choice(one.labels) if len(one.labels) > 1 else one.labels[0] for one in batch]
    labels = zip(model.candidates(drawn), batch, strict=True)
    given: list[list[Candidate]] | None = None
    if any(one.candidates for one in batch):
        given = [model.candidates(one.candidates) if one.candidates else [] for one in batch]
    return EncodedExamples(
        model.context_ids([one.context for one in batch]),
        [one.context for one in batch],
        [Label(candidate, one.labels) for candidate, one in labels],
        given,
    )


class TrainingData:
    """Training examples, epoch by epoch.

    Examples that can be indexed, such as a list or a `datasets.Dataset`, are read in an order that the seed and the
    epoch decide; all others in their own order: a file that is read line by line, a streamed dataset.
    """

    def __init__(self, examples: Iterable[Any], seed: int):
        self.examples, self.seed = examples, seed
        self.is_read_once = iter(examples) is examples
        self.size = len(examples) if isinstance(examples, Indexed) else None
        if self.size == 0:
            raise InputError("There are no examples to train on.")

    def has_candidates(self) -> bool:
        """Return whether any example has candidates; True if they can be read only once."""
        return self.is_read_once or any(read_example(one, "An example").candidates for one in self.examples)

    def in_order(self) -> Iterator[TextExample]:
        """Read all examples as they come."""
        return (read_example(given, f"Example {place}") for place, given in enumerate(self.examples))

    def epoch(self, number: int, skipped: int = 0) -> Iterator[TextExample]:
        """Read the examples of an epoch, counted from 0, without the first `skipped`; each is checked."""
        if not isinstance(self.examples, Indexed):
            for place, given in enumerate(itertools.islice(self.examples, skipped, None), start=skipped):
                yield read_example(given, f"Example {place}")
            return
        order = np.random.default_rng([self.seed, number]).permutation(len(self.examples))
        for place in order[skipped:].tolist():
            yield read_example(self.examples[place], f"Example {place}")

    def first(self, count: int | None, what_for: str) -> list[TextExample]:
        """Return the first examples, or all (None), by which a new model is measured or learns its vocabulary.

        Raises:
            InputError: the examples can be read only once; the message names the option that asks.
        """
        if self.is_read_once:
            raise InputError(
                f"{what_for} reads the examples before training does, and these can be read once only; give a list, a "
                f"datasets.Dataset, or something else that can be read again."
            )
        given = itertools.islice(self.examples, count)
        return [read_example(one, f"Example {place}") for place, one in enumerate(given)]


def batches(examples: Iterator[TextExample], size: int) -> Iterator[list[TextExample]]:
    """Group examples to batches; the last one may be smaller."""
    while batch := list(itertools.islice(examples, size)):
        yield batch
