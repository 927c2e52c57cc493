"""Filters for judgements: which ones count, and why the others are left out."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from polyagents.console import number_of
from polyagents.errors import InputError
from polyagents.human_eval.records import Judgement, RatedChat

COUNTS = ""
FAILED = "the annotator failed the checks"
SAME = "a model with itself"
REPEATED = "the same annotator judged the pair before"


@dataclass(frozen=True)
class FilteredJudgement:
    """A judgement, and the reason why it does not count; COUNTS if it does."""

    judgement: Judgement
    left_out: str


def filter_judgements(judgements: Sequence[Judgement]) -> list[FilteredJudgement]:
    """Say for each judgement, in the order given, whether it counts; an InputError names a winner that took no part.

    Whoever failed the checks may have clicked at random. A pair of a model with itself has no winner that could be
    told from its loser. Of the judgements of one pair by one annotator on one question, the first counts: the others
    are not a new opinion.
    """
    seen: set[tuple[str, ...]] = set()
    filtered = []
    for judgement in judgements:
        if judgement.winner not in judgement.models:
            first, second = judgement.models
            raise InputError(
                f"The judgement of pair {judgement.pair!r} by {judgement.annotator!r} has the winner "
                f"{judgement.winner!r}, which is neither {first!r} nor {second!r}; correct the winner, or remove this "
                f"judgement."
            )
        key = (judgement.annotator, judgement.question, judgement.pair, *sorted(judgement.models))
        if not judgement.passed:
            left_out = FAILED
        elif judgement.models[0] == judgement.models[1]:
            left_out = SAME
        else:
            left_out = REPEATED if key in seen else COUNTS
            seen.add(key)
        filtered.append(FilteredJudgement(judgement, left_out))
    return filtered


def check_counted(filtered: Sequence[FilteredJudgement], chats: Sequence[RatedChat]) -> None:
    """Refuse a report without a judgement or chat that counts."""
    if any(chat.passed for chat in chats) or not all(one.left_out for one in filtered):
        return
    if filtered:
        raise InputError(
            f"Of {number_of(len(filtered), 'judgement')}, none counts: {reasons(filtered)}; a report needs "
            f"judgements of two different models by annotators that passed the checks."
        )
    if chats:
        raise InputError(f"No chat counts ({FAILED} in each); a report needs chats of people who passed the checks.")
    raise InputError("There are no judgements to report; let annotators judge pairs first, then report again.")


def reasons(filtered: Sequence[FilteredJudgement]) -> str:
    """Count the judgements left out, by reason: `2 (a model with itself)`; "" if all judgements count."""
    counts = Counter(one.left_out for one in filtered if one.left_out)
    return ", ".join(f"{counts[reason]:,} ({reason})" for reason in (FAILED, SAME, REPEATED) if counts[reason])
