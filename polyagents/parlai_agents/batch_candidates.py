"""What a batch ranks, by the source that a flag names (`--candidates`, `--eval-candidates`)."""

import itertools
import random
from collections.abc import Iterable, Sequence
from typing import Any

from parlai.core.opt import Opt
from parlai.utils.misc import warn_once

from polyagents.errors import InputError
from polyagents.parlai_agents.fixed_candidates import FixedCandidates
from polyagents.parlai_agents.ranking_examples import Examples
from polyagents.ranking.candidate_set import Candidate, CandidateSet, Label, inline_set, shared_set, shared_set_with_own
from polyagents.ranking.joint_model import JointModel
from polyagents.ranking.ranking_model import RankingModel
from polyagents.training import distributed

RANDOM_NEGATIVES = 15  # of an example without candidates, where --cross-negatives is not given (paper 5.1)
POOL_LIMIT = 100_000  # labels remembered as random negatives, a training set's worth in the paper's tasks


def evaluation_candidates(opt: Opt, source: str, examples: Examples) -> CandidateSet:
    """What a batch of an evaluation or a chat ranks; ParlAI's `_build_candidates` explains the sources.

    Args:
        opt: the agent's options, for what is said to the user.
        source: batch, inline or batch-all-cands.
        examples: B of them.

    Raises:
        InputError: the examples lack what the source takes.
    """
    labels = examples.labels if examples.labelled else None
    if source == "batch":
        if labels is None:
            raise InputError("Candidate source 'batch' ranks the batch's labels, and these examples have none.")
        return shared_set((), labels)
    if labels is not None and examples.given is None:
        # The default source of an evaluation; a training run must not end at its first validation.
        warn_once(f"--task {opt.get('task')} brings no candidates: the labels of each batch are ranked instead.")
        return shared_set((), labels)
    flag = "interactive-candidates" if opt.get("interactive_mode") else "eval-candidates"
    given = given_candidates(opt, flag, source, examples)
    if source == "batch-all-cands":
        return shared_set([candidate for own in given for candidate in own], labels)
    return inline_set(given, labels)


def given_candidates(opt: Opt, flag: str, source: str, examples: Examples) -> list[list[Candidate]]:
    """The candidates that came with each example.

    Raises:
        InputError: none did.
    """
    if examples.given is None:
        raise InputError(
            f"--{flag} {source} takes the candidates of the task, and --task {opt.get('task')} brings none; use "
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

    def __init__(self, opt: Opt, model: RankingModel, draw: random.Random):
        self.opt, self.model, self.random = opt, model, draw
        self.pool: list[str] = []
        self.seen = 0

    def of(self, source: str, examples: Examples, fixed: FixedCandidates | None) -> CandidateSet:
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
            return shared_set([*fixed.candidates, *chain(distributed.gathered(drawn))], labels)
        own = [] if source == "batch" or not labels else given_candidates(self.opt, "candidates", source, examples)
        all_labels, given = chain(distributed.gathered(drawn)), chain(distributed.gathered(chain(own)))
        if source == "batch+inline":
            return shared_set_with_own(all_labels, own, given, labels)
        return shared_set([*given, *all_labels], labels)

    def _inline(self, labels: Sequence[Label], examples: Examples) -> CandidateSet:
        """The task's candidates; of a model that reads together, as many as it shall, filled up with random labels."""
        if not isinstance(self.model, JointModel):
            return inline_set(given_candidates(self.opt, "candidates", "inline", examples), labels)
        wanted = self.opt["cross_negatives"]
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
