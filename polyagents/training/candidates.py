"""What a training batch ranks, by the source that an option names (`--candidates`)."""

import itertools
import random
from collections.abc import Iterable, Sequence
from typing import Any

from polyagents.errors import InputError
from polyagents.ranking.candidate_set import Candidate, CandidateSet, Label, inline_set, shared_set, shared_set_with_own
from polyagents.ranking.joint_model import JointModel
from polyagents.ranking.ranking_model import RankingModel
from polyagents.training import distributed
from polyagents.training.examples import Examples

RANDOM_NEGATIVES = 15  # of an example without candidates, where --cross-negatives is not given (paper 5.1)
POOL_LIMIT = 100_000  # labels remembered as random negatives, a training set's worth in the paper's tasks


def given_candidates(flag: str, source: str, examples: Examples, origin: str) -> list[list[Candidate]]:
    """The candidates that came with each example.

    Args:
        flag: the name of the option that asks for them.
        source: its value.
        examples: B of them.
        origin: where they are from, such as "--task convai2", for the sentence where they have none.

    Raises:
        InputError: none came with any.
    """
    if examples.given is None:
        raise InputError(
            f"--{flag} {source} takes the candidates of the task, and {origin} brings none; use "
            f"--{flag} batch, or fixed with --fixed-candidates-path."
        )
    return examples.given


class TrainingCandidates:
    """What training batches rank. A list that a batch shares is shared by all processes.

    Attributes:
        pool: labels of the training set, as far as it was seen, for random negatives of models that read together.
        seen: how many labels there were.
        random: draws from the pool.
    """

    def __init__(self, model: RankingModel, draw: random.Random, cross_negatives: int | None, origin: str):
        """Begin with an empty pool.

        Args:
            model: what ranks.
            draw: draws negatives.
            cross_negatives: how many an example gets that a model reads together with its context; None for all that
                came with it.
            origin: where the examples are from, for what is said to the user.
        """
        self.model, self.random, self.cross_negatives, self.origin = model, draw, cross_negatives, origin
        self.pool: list[str] = []
        self.seen = 0

    def of(self, source: str, examples: Examples, fixed: Sequence[Candidate] | None) -> CandidateSet:
        """What a batch ranks.

        Args:
            source: batch, inline, batch+inline, batch-all-cands or fixed.
            examples: B of them, each with a label; none where only other processes have some.
            fixed: the candidates of source fixed.

        Raises:
            InputError: the examples lack what the source takes.
        """
        labels = [label for label in examples.labels if label is not None]
        if source == "inline":
            return self._inline(labels, examples)
        drawn = [label.candidate for label in labels]
        if source == "fixed":
            assert fixed is not None
            return shared_set([*fixed, *chain(distributed.gathered(drawn))], labels)
        own = [] if source == "batch" or not labels else self._given(source, examples)
        all_labels, given = chain(distributed.gathered(drawn)), chain(distributed.gathered(chain(own)))
        if source == "batch+inline":
            return shared_set_with_own(all_labels, own, given, labels)
        return shared_set([*given, *all_labels], labels)

    def _given(self, source: str, examples: Examples) -> list[list[Candidate]]:
        return given_candidates("candidates", source, examples, self.origin)

    def _inline(self, labels: Sequence[Label], examples: Examples) -> CandidateSet:
        """The task's candidates; of a model that reads together, as many as it shall, filled up with random labels."""
        if not isinstance(self.model, JointModel):
            return inline_set(self._given("inline", examples), labels)
        wanted = self.cross_negatives
        own = examples.given or [[] for _ in labels]
        if wanted is not None or not all(own):  # else the task's lists are taken as they are
            self._remember([label.candidate.text for label in labels])
        return inline_set(
            [self._negatives(label, some, wanted) for label, some in zip(labels, own, strict=True)], labels
        )

    def _negatives(self, label: Label, own: Sequence[Candidate], wanted: int | None) -> list[Candidate]:
        """The negatives of an example: drawn anew each time from its own, and what is missing from the labels seen."""
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
        """An even sample of all labels seen (Vitter's algorithm R): a streamed task needs no pass of its own."""
        for label in labels:
            self.seen += 1
            if len(self.pool) < POOL_LIMIT:
                self.pool.append(label)
            elif (slot := self.random.randrange(self.seen)) < POOL_LIMIT:
                self.pool[slot] = label


def chain(parts: Iterable[Iterable[Any]]) -> list[Any]:
    """Several lists, one after the other."""
    return list(itertools.chain.from_iterable(parts))
