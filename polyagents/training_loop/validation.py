"""Evaluates a model in training on other examples."""

import dataclasses
import math
import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from polyagents.console import SLOW, Bar, number_of
from polyagents.errors import InputError
from polyagents.files.python_arguments import texts_of
from polyagents.ranking.candidate_set import Candidate, CandidateSet, inline_set, shared_set_with_own
from polyagents.ranking.ranking_model import RankingModel
from polyagents.training.candidate_sources import EncodedExamples, evaluation_candidates
from polyagents.training.objective import evaluation_values
from polyagents.training_loop.text_example import TextExample
from polyagents.training_loop.training_data import TrainingData, batches, token_ids_of

RECALL_AT = (1, 5, 10)
SMALLER_IS_BETTER = ("loss", "rank")
METRICS = (*(f"hits@{k}" for k in RECALL_AT), "mrr", *SMALLER_IS_BETTER)
MOST_ANSWERS = 1_000  # distinct labels that validation ranks by default: an FAQ, intents; the paper's replies are more


@dataclass(frozen=True)
class Validation:
    """Validation examples, and what they rank.

    Attributes:
        own: whether examples with candidates rank those.
        answers: what all others rank, and their label; None for the labels of their batch.
        named: what those are, in words.
        is_shown: whether an evaluation of some seconds shows its progress.
    """

    examples: Sequence[TextExample] = ()
    own: bool = True
    answers: tuple[str, ...] | None = None
    named: str = "the labels of their batch"
    is_shown: bool = False

    def __len__(self) -> int:
        return len(self.examples)

    def first(self, count: int | None) -> "Validation":
        """Return the same of the first examples; of all for None."""
        return replace(self, examples=self.examples[:count])

    @property
    def without_own(self) -> int:
        """How many examples have no candidates."""
        return sum(one.candidates is None for one in self.examples)

    @property
    def ranked(self) -> str:
        """What the examples rank, in words."""
        if not self.own or self.without_own == len(self):
            return self.named
        rest = f"; {number_of(self.without_own, 'example')} without any: {self.named}" if self.without_own else ""
        return f"their own{rest}"


def validation_of(examples: Sequence[TextExample], data: TrainingData, given: str | Iterable[str] | None) -> Validation:
    """Decide what validation examples rank.

    Args:
        data: the training examples, whose labels are answers, too.
        given: "batch", "inline", texts, or None to choose.

    Raises:
        InputError: `given` is not possible, or there is nothing to validate.
    """
    if given is None:
        own = Validation(examples)
        answers = distinct_labels(examples, data) if own.without_own else None
        return own if answers is None else Validation(examples, True, answers, "all labels of train and valid")
    if not examples:
        raise InputError("eval_candidates is what validation examples rank, and there are none; give valid, too.")
    if not isinstance(given, str):
        texts = tuple(texts_of(given, "eval_candidates"))
        if not texts:
            raise InputError("eval_candidates is an empty list; give texts, or None.")
        return Validation(examples, False, texts, "the texts of eval_candidates")
    if given == "batch":
        return Validation(examples, own=False)
    if given == "inline":
        if all(one.candidates is None for one in examples):
            raise InputError(
                "eval_candidates='inline' ranks each example's own candidates, and no validation example has any; give "
                "'batch', a list of texts, or None."
            )
        return Validation(examples)
    raise InputError(f"eval_candidates is {given!r:.80}; give 'batch', 'inline', a list of texts, or None.")


def distinct_labels(examples: Sequence[TextExample], data: TrainingData) -> tuple[str, ...] | None:
    """Return all labels of train and valid; None if there are more than MOST_ANSWERS, or train is read only once."""
    if data.is_read_once:
        return None
    labels: dict[str, None] = {}
    for one in (*examples, *data.in_order()):
        labels |= dict.fromkeys(one.labels)
        if len(labels) > MOST_ANSWERS:
            return None
    return tuple(labels)


def validate(model: RankingModel, valid: Validation, batchsize: int) -> dict[str, float]:
    """Compute the means of METRICS over all examples; the model is in evaluation mode afterwards.

    Returns:
        The means by name, among them the number of ranked candidates; and under no_candidates how many examples
        had none of their own.
    """
    model.module.eval()
    sums: defaultdict[str, float] = defaultdict(float)
    answers = None if valid.answers is None else model.candidates(valid.answers)
    shown = {"desc": "Validating", "unit": " examples", "delay": SLOW, "leave": False}
    for batch in batches(iter(Bar(valid.examples, not valid.is_shown, **shown)), batchsize):
        encoded = token_ids_of(model, batch, random.Random(0))  # the same label each time
        candidates = ranked_with(encoded if valid.own else dataclasses.replace(encoded, given=None), answers)
        scores = model.scores(encoded.contexts, candidates).cpu()
        values = evaluation_values(scores, candidates, model.module.logit_scale, RECALL_AT)
        for name, value in values.items():
            sums[name] += float(value.sum())
    means = {name: sums[name] / len(valid) for name in (*METRICS, "candidates")}
    return means | {"no_candidates": float(valid.without_own)}


def least_kept(best: float, start: float | None, examples: float) -> float:
    """Return the value with which the model of a later validation replaces the best; larger is better.

    It may be one standard error below the best, since few examples choose among states by chance (Breiman et al. 1984,
    3.4.3), but not below the start. Values that are not a mean of values from 0 to 1 have no such error.

    Args:
        start: the value before the first update; None if that is not known.
    """
    error = math.sqrt(max(best * (1.0 - best), 0.0) / examples)
    return best - error if start is None else max(best - error, start)


def ranked_with(batch: EncodedExamples, answers: list[Candidate] | None) -> CandidateSet:
    """Return what a batch ranks: its own candidates, or else the answers, or else its labels (None).

    The label of one example is not a candidate of another among answers: a batch would decide what is ranked.
    """
    if answers is None:
        return evaluation_candidates("inline", batch, "valid", "the list of examples")
    labels = [label for label in batch.labels if label is not None]
    if batch.given is None:
        return shared_set_with_own(answers, [[label.candidate] for label in labels], (), labels)
    return inline_set([own or answers for own in batch.given], labels)
