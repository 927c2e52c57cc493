"""The store's answers to the pages: an annotator, the next assignment, everybody's progress."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from polyagents.human_eval.records import Conversation


@dataclass(frozen=True)
class InvitedAnnotator:
    """A person who judges.

    Attributes:
        name: the name that was invited.
        token: the secret part of the person's link.
    """

    name: str
    token: str


@dataclass(frozen=True)
class Participant:
    """How far a person is whom a platform has sent.

    Attributes:
        stage: one of study.STAGES, or how it ended.
        session: the platform's name of the submission; "" once it is forgotten.
        back: the address that the submission is sent to; "" if it is the platform's usual one.
    """

    stage: str
    session: str
    back: str


@dataclass(frozen=True)
class ShownSide:
    """One side of a pair as an annotator sees it.

    Attributes:
        conversation: the whole conversation. Its `models` and `source` are not for the annotator's eyes; `turns` name
            nobody but speaker_1 and speaker_2.
        speaker: the one of them who is judged.
    """

    conversation: Conversation
    speaker: str


@dataclass(frozen=True)
class Assignment:
    """A pair as one annotator sees it; it does not show whether it is an onboarding check.

    Attributes:
        number: distinguishes it from the assignments of all annotators; `answer` takes it.
        place: 1 for the annotator's first, and so on.
        total: how many pairs the annotator will see, checks included.
        left: the left side, drawn for each annotator and pair, and the same whenever it is shown again.
        right: the other side.
    """

    number: int
    place: int
    total: int
    left: ShownSide
    right: ShownSide


@dataclass(frozen=True)
class Visit:
    """An annotator's view of one place.

    Attributes:
        choice: the answer, left or right; "" before it is given.
        reason: the reason that was given with it.
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
    """The progress of one annotator with a question.

    Attributes:
        name: the name that was invited.
        token: the secret part of the link.
        judged: how many pairs the annotator judged, without the checks.
        checks: how many onboarding checks were answered, to any question, since they are about the person.
        checks_right: how many of them were answered correctly.
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
    """The progress of the evaluation of a question.

    Attributes:
        conversations: how many were imported.
        pairs: how many pairs there are, without the checks.
        checks: how many onboarding checks there are.
        judged: how many pairs have a judgement of an annotator who passed.
        matchups: (model, model), in alphabetical order -> judgements of annotators who passed.
        annotators: everybody, in the order in which they were invited.
    """

    conversations: int
    pairs: int
    checks: int
    judged: int
    matchups: Mapping[tuple[str, str], int]
    annotators: Sequence[AnnotatorProgress]
