"""Values that the store gives to the pages, and the plan of chats that it is given; none knows the database."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from polyagents.human_eval.records import ChatMessage, Conversation

MOST = 100  # messages of the person in one chat
RATE = ("replies", "whole", "both")

Personas = tuple[str, str]
"""The persona that the person plays, and the one that the model reads; "" if the task has no personas."""


@dataclass(frozen=True)
class InvitedAnnotator:
    """A person who judges, by the name that was invited; the token is the secret part of the person's link."""

    name: str
    token: str


@dataclass(frozen=True)
class Participant:
    """How far a person is whom a platform has sent."""

    stage: str  # one of study.STAGES, or how it ended
    session: str  # the platform's name of the submission; "" once it is forgotten
    back: str  # the address that the submission is sent to; "" if it is the platform's usual one


@dataclass(frozen=True)
class ShownSide:
    """One side of a pair as an annotator sees it: a whole conversation, and which of its speakers is judged.

    The conversation's `models` and `source` are not for the annotator's eyes; its `turns` name nobody but speaker_1 and
    speaker_2.
    """

    conversation: Conversation
    speaker: str


@dataclass(frozen=True)
class Assignment:
    """A pair as one annotator sees it; it does not show whether it is an onboarding check."""

    number: int  # distinguishes it from the assignments of all annotators; `EvaluationStore.answer` takes it
    place: int  # 1 for the annotator's first, and so on
    total: int  # how many pairs the annotator will see, checks included
    left: ShownSide  # drawn for each annotator and pair, and the same whenever it is shown again
    right: ShownSide
    choice: str  # the answer, left or right; "" before it is given
    reason: str
    last: int | None  # the place of the annotator's latest answer; None before the first

    @property
    def closed(self) -> bool:
        """Whether the answer can no longer be changed."""
        return bool(self.choice) and self.place != self.last


@dataclass(frozen=True)
class AnnotatorProgress:
    """The progress of one annotator with a question; onboarding checks are about the person, so all questions count."""

    name: str
    token: str
    judged: int  # pairs, without the checks
    checks: int  # that were answered
    checks_right: int
    passed: bool  # whether that is enough; True before the first check
    last: str | None  # when the last answer to any question came, UTC in ISO 8601; None before the first


@dataclass(frozen=True)
class Progress:
    """The progress of the evaluation of a question."""

    conversations: int
    pairs: int  # without the checks
    checks: int
    judged: int  # pairs that have a judgement of an annotator who passed
    matchups: Mapping[tuple[str, str], int]  # models, in alphabetical order -> judgements of annotators who passed
    annotators: Sequence[AnnotatorProgress]  # in the order in which they were invited


@dataclass(frozen=True)
class ChatterProgress:
    """The progress of one person who chats."""

    name: str
    token: str
    finished: int  # chats
    open: int
    last: str | None  # when the last one was finished, UTC in ISO 8601; None before the first


@dataclass(frozen=True)
class ChatPlan:
    """The task of the people who chat."""

    models: Sequence[str]  # the names of the models that people may talk to
    personas: Sequence[Personas] = (("", ""),)  # of the chats, which use them in turn
    turns: int = 6  # messages of the person that a chat needs before it may be finished
    conversations: int = 2  # of each person
    rate: str = "both"  # one of RATE
    problems: Sequence[str] = ()  # what may be ticked below a reply
    seed: int = 0  # decides which model each person meets first

    @property
    def rates_whole(self) -> bool:
        """Whether a chat needs a rating to be finished."""
        return self.rate != "replies"

    @property
    def rates_replies(self) -> bool:
        """Whether replies are called good or bad."""
        return self.rate != "whole"


@dataclass(frozen=True)
class ChatState:
    """The state of a chat."""

    number: int  # distinguishes it from all other chats
    place: int  # 1 for the person's first; `ChatStore.current` counts the chats with models of the plan
    model: str  # hidden from the person
    personas: Personas
    messages: tuple[ChatMessage, ...]  # the first, third, ... are the person's

    @property
    def waits(self) -> bool:
        """Whether the last message has no reply yet."""
        return len(self.messages) % 2 == 1

    @property
    def replies(self) -> int:
        """How many replies the model has given."""
        return len(self.messages) // 2
