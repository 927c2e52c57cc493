"""Which judgements count, and why the others are left out."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from polyagents.errors import InputError
from polyagents.human_eval.records import Judgement

COUNTS = ""
FAILED = "the annotator failed the checks"
SAME = "a model with itself"
REPEATED = "the same annotator judged the pair before"


@dataclass(frozen=True)
class Sifted:
    """A judgement, and why it is left out; COUNTS where it is not."""

    judgement: Judgement
    left_out: str


def sift(judgements: Sequence[Judgement]) -> list[Sifted]:
    """Say of each judgement whether it counts, in the order given.

    Whoever failed the checks may have clicked at random. A pair of a model with itself has no winner that could be
    told from its loser. Of the judgements of one pair by one annotator on one question, the first counts: the others
    are no new opinion.

    Raises:
        InputError: a winner is not one of the two models.
    """
    seen: set[tuple[str, ...]] = set()
    sifted = []
    for judgement in judgements:
        check_winner(judgement)
        key = (judgement.annotator, judgement.question, judgement.pair, *sorted(judgement.models))
        if not judgement.passed:
            left_out = FAILED
        elif judgement.models[0] == judgement.models[1]:
            left_out = SAME
        else:
            left_out = REPEATED if key in seen else COUNTS
            seen.add(key)
        sifted.append(Sifted(judgement, left_out))
    return sifted


def check_winner(judgement: Judgement) -> None:
    """Refuse a winner that did not take part."""
    if judgement.winner not in judgement.models:
        first, second = judgement.models
        raise InputError(
            f"The judgement of pair {judgement.pair!r} by {judgement.annotator!r} has the winner {judgement.winner!r}, "
            f"which is neither {first!r} nor {second!r}; correct the winner, or take this judgement out."
        )


def check_enough(sifted: Sequence[Sifted]) -> None:
    """Refuse to report on nothing.

    Raises:
        InputError: there is no judgement, or none that counts.
    """
    if not sifted:
        raise InputError("There are no judgements to report; let annotators judge pairs first, then report again.")
    if all(one.left_out for one in sifted):
        raise InputError(
            f"None of the {len(sifted):,} judgements counts: {reasons(sifted)}; a report needs judgements of two "
            f"different models by annotators that passed the checks."
        )


def reasons(sifted: Sequence[Sifted]) -> str:
    """How many judgements are left out, by reason: `2 (a model with itself)`; "" where all count."""
    counts = Counter(one.left_out for one in sifted if one.left_out)
    return ", ".join(f"{counts[reason]:,} ({reason})" for reason in (FAILED, SAME, REPEATED) if counts[reason])
