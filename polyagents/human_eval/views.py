"""What the store shows to the pages: an annotator, what is to be judged now, how far everybody is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from polyagents.human_eval.records import Conversation

PATH = "/annotate/"  # of an annotator's page; the token follows


@dataclass(frozen=True)
class Annotator:
    """A person who judges.

    Attributes:
        name: as invited.
        token: the secret part of the person's link.
    """

    name: str
    token: str


@dataclass(frozen=True)
class Shown:
    """One side of what an annotator sees.

    Attributes:
        conversation: all of it. `models` and `source` are not for the annotator's eyes; `turns` name nobody but
            speaker_1 and speaker_2.
        speaker: of them the one who is judged.
    """

    conversation: Conversation
    speaker: str


@dataclass(frozen=True)
class Assignment:
    """A pair as one annotator sees it; whether it is an onboarding check is not told.

    Attributes:
        number: tells it from all other annotators' assignments; `answer` takes it.
        place: 1 for the annotator's first, and so on.
        total: of pairs that the annotator will see, checks included.
        left: drawn for each annotator and pair, and the same whenever it is shown again.
        right: the other side.
    """

    number: int
    place: int
    total: int
    left: Shown
    right: Shown


@dataclass(frozen=True)
class Visit:
    """What an annotator sees at one place.

    Attributes:
        assignment: the pair.
        choice: left or right, as was answered; "" before.
        reason: as was answered.
        last: the place of the annotator's latest answer; None before the first.
    """

    assignment: Assignment
    choice: str
    reason: str
    last: int | None

    @property
    def closed(self) -> bool:
        """Whether the answer can no longer be changed."""
        return bool(self.choice) and self.assignment.place != self.last


@dataclass(frozen=True)
class AnnotatorProgress:
    """How far one annotator is with a question.

    Attributes:
        name: of the annotator.
        token: the secret part of the link.
        judged: pairs, without the checks.
        checks: onboarding checks that were answered; to any question, since they tell of the person.
        checks_right: those that were answered as they should be.
        passed: whether that is enough; True before the first check.
        last: when the last answer to any question came, UTC in ISO 8601; None before the first.
    """

    name: str
    token: str
    judged: int
    checks: int
    checks_right: int
    passed: bool
    last: str | None


@dataclass(frozen=True)
class Progress:
    """How far the evaluation of a question is.

    Attributes:
        conversations: all that were imported.
        pairs: without the checks.
        checks: onboarding checks.
        judged: pairs with one judgement or more of annotators who passed.
        matchups: (model, model), in alphabetical order -> judgements of annotators who passed.
        annotators: in the order in which they were invited.
    """

    conversations: int
    pairs: int
    checks: int
    judged: int
    matchups: Mapping[tuple[str, str], int]
    annotators: Sequence[AnnotatorProgress]
