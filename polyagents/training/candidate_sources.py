"""The examples of a batch, and their candidates by the source that an option names (`--candidates`)."""

import random
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from polyagents.console import say
from polyagents.errors import InputError
from polyagents.ranking.candidate_set import Candidate, CandidateSet, Label, inline_set, shared_set, shared_set_with_own
from polyagents.ranking.ranking_model import RankingModel
from polyagents.text.normalize import normalized
from polyagents.training import distributed

RANDOM_NEGATIVES = 15  # of an example without candidates, if --cross-negatives is not given (paper 5.1)
POOL_LIMIT = 100_000  # labels remembered as random negatives, a training set's worth in the paper's tasks


@dataclass(frozen=True)
class EncodedExamples:
    """B examples.

    Attributes:
        contexts: token ids of their contexts.
        labels: the right answers of each; None for an example without a label.
        given: the candidates that came with each; None if no example has candidates.
    """

    contexts: list[list[int]]
    texts: list[str]
    labels: list[Label | None]
    given: list[list[Candidate]] | None

    def __len__(self) -> int:
        return len(self.contexts)

    @property
    def labelled(self) -> bool:
        """Whether any example has a label."""
        return any(label is not None for label in self.labels)

    @property
    def without_own(self) -> int:
        """How many examples with a label came without candidates."""
        given = self.given or [[]] * len(self)
        return sum(label is not None and not own for label, own in zip(self.labels, given, strict=True))

    @property
    def lists(self) -> list[list[Candidate]]:
        """The candidates that each example ranks: its own, or else the distinct labels of the batch."""
        distinct: dict[tuple[int, ...], Candidate] = {}
        for label in self.labels:
            if label is not None:
                distinct.setdefault(label.candidate.ids, label.candidate)
        return [own or list(distinct.values()) for own in self.given or [[]] * len(self)]


def given_candidates(flag: str, source: str, examples: EncodedExamples, origin: str) -> list[list[Candidate]]:
    """Return the candidates that came with each example; refuse examples without any, naming `flag` and `origin`."""
    if examples.given is None:
        raise InputError(
            f"--{flag} {source} needs the candidates of the task, and {origin} has none; use --{flag} batch, or fixed "
            f"with --fixed-candidates-path."
        )
    return examples.given


def evaluation_candidates(source: str, examples: EncodedExamples, flag: str, origin: str) -> CandidateSet:
    """Return the candidates of a batch of an evaluation or a chat; ParlAI's `_build_candidates` explains the sources.

    Args:
        source: one of batch, inline and batch-all-cands.
        flag: the name of the option that asks for them.
        origin: the examples' source, such as "--task convai2", for the message of an error.

    Raises:
        InputError: the examples lack what the source needs.
    """
    labels = examples.labels if examples.labelled else None
    if source == "batch" and labels is None:
        raise InputError("Candidate source 'batch' ranks the batch's labels, and these examples have none.")
    if source == "batch" or (labels is not None and examples.given is None):
        # Without candidates, labels are the default of an evaluation: a run must not end at its first validation.
        return shared_set((), labels)
    if source == "batch-all-cands":
        given = given_candidates(flag, source, examples, origin)
        return shared_set([candidate for own in given for candidate in own], labels)
    lists = examples.lists
    if not all(lists):
        raise InputError(
            f"--{flag} {source} needs candidates with each message, and one of these has none; give it "
            f"label_candidates, or use --{flag} fixed with --fixed-candidates-path."
        )
    return inline_set(lists, labels)


class TrainingCandidates:
    """The candidates of training batches. A list that a batch shares is shared by all processes.

    Attributes:
        pool: labels of the training set, as far as it was read, for random negatives of joint models.
        seen: how many labels there were.
    """

    def __init__(
        self,
        model: RankingModel,
        draw: random.Random,
        cross_negatives: int | None,
        origin: str,
        has_some: Callable[[], bool],
    ):
        """Begin with an empty pool.

        Args:
            cross_negatives: how many negatives an example has in a joint model; None for all that came with it.
            has_some: looks whether any example has candidates; called if the first batch has none.
        """
        self.model, self.random, self.cross_negatives, self.origin = model, draw, cross_negatives, origin
        self._has_some, self._is_mixed, self._said, self._said_alike = has_some, False, False, False
        self.pool: list[str] = []
        self.seen = 0

    def of(self, source: str, examples: EncodedExamples, fixed: Sequence[Candidate] | None) -> CandidateSet:
        """Build the candidates of a batch, with labels.

        Args:
            source: batch, inline, batch+inline, batch-all-cands or fixed.
            examples: each with a label; none if only other processes have some.

        Raises:
            InputError: the examples lack what the source needs.
        """
        labels = [label for label in examples.labels if label is not None]
        self._say_alike(labels)
        if source == "inline":
            return self._inline(labels, examples)
        drawn = distributed.gathered([label.candidate for label in labels])
        all_labels = [candidate for process in drawn for candidate in process]
        if source == "fixed":
            assert fixed is not None
            return shared_set([*fixed, *all_labels], labels)
        own = [] if source == "batch" or not labels else self._own(source, examples)
        given = [candidate for lists in distributed.gathered(own) for some in lists for candidate in some]
        if source == "batch+inline":
            return shared_set_with_own(all_labels, own, given, labels)
        return shared_set([*given, *all_labels], labels)

    def _say_alike(self, labels: Sequence[Label]) -> None:
        """Say once that labels with different texts have the same tokens, such as emoji that a vocabulary lacks."""
        texts: dict[tuple[int, ...], str] = {}
        for text, ids in () if self._said_alike else (label.candidate for label in labels):
            first = texts.setdefault(ids, text)
            if first != text and as_read(first) != as_read(text):
                self._said_alike = True
                say(
                    f"The labels {first!r:.60} and {text!r:.60} have the same tokens: the model's vocabulary or its "
                    f"--label-truncate leaves no difference. They count as one, so scores are too good."
                )
                return

    def _own(self, source: str, examples: EncodedExamples) -> list[list[Candidate]]:
        """Return each example's own candidates; a batch without any is refused only if all examples are."""
        if examples.given is None and not (self._is_mixed or self._has_some()):
            return given_candidates("candidates", source, examples, self.origin)
        self._is_mixed = True
        return examples.given or [[] for _ in examples.labels]

    def _inline(self, labels: Sequence[Label], examples: EncodedExamples) -> CandidateSet:
        """Build lists from the task's candidates, or else the batch's labels; in a joint model random ones."""
        if self.model.encodes_candidates:
            self._own("inline", examples)
            if examples.without_own and not self._said:
                self._said = True
                say("Examples without candidates of their own learn from the labels of their batch.")
            return inline_set(examples.lists, labels)
        wanted = self.cross_negatives
        own = examples.given or [[] for _ in labels]
        if wanted is not None or not all(own):  # otherwise the task's lists are used unchanged
            self._remember([label.candidate.text for label in labels])
        return inline_set(
            [self._negatives(label, some, wanted) for label, some in zip(labels, own, strict=True)], labels
        )

    def _negatives(self, label: Label, own: Sequence[Candidate], wanted: int | None) -> list[Candidate]:
        """Draw the negatives of an example from its own, newly each time, and more from earlier labels."""
        if own and wanted is None:
            return list(own)
        wanted = wanted or RANDOM_NEGATIVES
        negatives = [one for one in own if one.text not in label.right]
        if len(negatives) >= wanted:
            return self.random.sample(negatives, wanted)
        # Twice as many as needed: the pool holds repeated labels, and this one.
        drawn = self.random.sample(self.pool, min(len(self.pool), 2 * wanted))
        known = {*label.right, *(one.text for one in negatives)}
        others = [text for text in dict.fromkeys(drawn) if text not in known]
        return [*negatives, *self.model.candidates(others[: wanted - len(negatives)])]

    def _remember(self, labels: Iterable[str]) -> None:
        """Keep an even sample of all labels (Vitter's algorithm R): a streamed task needs no pass of its own."""
        for label in labels:
            self.seen += 1
            if len(self.pool) < POOL_LIMIT:
                self.pool.append(label)
            elif (slot := self.random.randrange(self.seen)) < POOL_LIMIT:
                self.pool[slot] = label


def as_read(text: str) -> str:
    """Return a label as `normalized` does, without what a reader does not see: a zero-width space, a split accent."""
    seen = (one for one in unicodedata.normalize("NFKC", text) if unicodedata.category(one) != "Cf")
    return normalized("".join(seen))
