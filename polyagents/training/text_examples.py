"""Training examples in Python (a list, an iterable or a `datasets.Dataset` of dicts), and their order.

An example is a dict such as these::

    {"context": "hi , how are you ?", "label": "a bit tired ."}
    {"context": ["hi", "hello", "any plans ?"], "label": ["i bake .", "to bake bread ."], "candidates": ["no .", "hi"]}
"""

import itertools
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from polyagents.errors import InputError
from polyagents.ranking.candidate_set import Candidate, Label
from polyagents.ranking.ranking_model import RankingModel
from polyagents.training.examples import Examples

FIELDS = ("context", "label", "candidates")


@runtime_checkable
class Indexed(Protocol):
    """Examples that can be read in any order."""

    def __len__(self) -> int:
        """Return the number of examples."""
        ...

    def __getitem__(self, index: Any, /) -> Any:
        """Return the example of an index."""
        ...


class TextExample(NamedTuple):
    """A context with its right answers.

    Attributes:
        context: its turns are separated by line ends.
        labels: at least one; all of them are right.
        candidates: further candidates; None where none were given.
    """

    context: str
    labels: tuple[str, ...]
    candidates: tuple[str, ...] | None


def read_example(given: Any, name: str) -> TextExample:
    """Check an example.

    Args:
        given: a dict with FIELDS, the last of which may be missing; further keys are ignored.
        name: that of the example in messages.

    Returns:
        The example.

    Raises:
        InputError: this is not an example.
    """
    if not isinstance(given, Mapping) or not {"context", "label"} <= given.keys():
        found = f"the keys {', '.join(map(str, given))}" if isinstance(given, Mapping) else type(given).__name__
        raise InputError(
            f"{name} has {found}; an example is a dict with context, label and, where it has its own, candidates "
            f"(datasets.Dataset.rename_column gives columns these names)."
        )
    context, candidates = given["context"], given.get("candidates")
    turns = [context] if isinstance(context, str) else texts_of(context, f"{name}: context")
    labels = texts_of(given["label"], f"{name}: label")
    if not any(turn.strip() for turn in turns) or not all(label.strip() for label in labels) or not labels:
        raise InputError(f"{name} has an empty context or label; remove such examples.")
    own = None if candidates is None else texts_of(candidates, f"{name}: candidates")
    return TextExample("\n".join(turns), labels, own or None)


def texts_of(value: Any, name: str) -> tuple[str, ...]:
    """Return one text or several as a tuple.

    Args:
        value: a text, or a list of texts.
        name: that of the value in messages.

    Returns:
        The texts.

    Raises:
        InputError: the value is something else.
    """
    texts = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, Iterable) else (value,)
    if not all(isinstance(text, str) for text in texts):
        raise InputError(f"{name} is {value!r:.80}; give a text, or a list of texts.")
    return texts


def token_ids_of(model: RankingModel, batch: Sequence[TextExample], draw: random.Random) -> Examples:
    """Encode a batch as the model reads it.

    Args:
        model: with a tokenizer.
        batch: B examples.
        draw: selects which of several labels is ranked.

    Returns:
        The batch.
    """
    drawn = [draw.choice(one.labels) if len(one.labels) > 1 else one.labels[0] for one in batch]
    labels = zip(model.candidates(drawn), batch, strict=True)
    given: list[list[Candidate]] | None = None
    if any(one.candidates for one in batch):
        given = [model.candidates(one.candidates) if one.candidates else [] for one in batch]
    return Examples(
        [model.context_ids(one.context) for one in batch],
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

    def epoch(self, number: int, skipped: int = 0) -> Iterator[TextExample]:
        """Read the examples of an epoch.

        Args:
            number: that of the epoch, from 0.
            skipped: how many examples at its start are skipped.

        Yields:
            The examples.

        Raises:
            InputError: an example is not possible.
        """
        if not isinstance(self.examples, Indexed):
            for place, given in enumerate(itertools.islice(self.examples, skipped, None), start=skipped):
                yield read_example(given, f"Example {place}")
            return
        order = np.random.default_rng([self.seed, number]).permutation(len(self.examples))
        for place in order[skipped:].tolist():
            yield read_example(self.examples[place], f"Example {place}")

    def first(self, count: int | None, what_for: str) -> list[TextExample]:
        """Return the first examples, or all of them, by which a new model is measured or learns its vocabulary.

        Args:
            count: how many, at most; None for all.
            what_for: the option that asks for them.

        Returns:
            The examples.

        Raises:
            InputError: the examples can be read only once.
        """
        if self.is_read_once:
            raise InputError(
                f"{what_for} reads the examples before training does, and these can be read once only; give a list, a "
                f"datasets.Dataset, or something else that can be read again."
            )
        given = itertools.islice(self.examples, count)
        return [read_example(one, f"Example {place}") for place, one in enumerate(given)]


def batches(examples: Iterator[TextExample], size: int) -> Iterator[list[TextExample]]:
    """Group examples to batches; the last one may be smaller.

    Args:
        examples: one after the other.
        size: that of a batch.

    Yields:
        The batches.
    """
    while batch := list(itertools.islice(examples, size)):
        yield batch
