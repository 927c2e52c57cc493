"""The records of human evaluation: conversations, pairs of them, and annotators' judgements.

Plain values without a library: every room of human evaluation imports them, and no room is imported here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

HUMAN = "human"  # the model of a speaker who is a person
LOWEST, HIGHEST = 1, 5  # ratings of a whole chat
DEFAULT_QUESTION = "Who would you prefer to talk to for a long conversation?"  # ParlAI's default: "engaging"
PASS_SHARE = 0.75  # share of the onboarding checks that an annotator must get right (ParlAI's onboarding_threshold)
FASTEST = 1_000  # words a minute: some four times what people read silently (Brysbaert 2019)
ANNOTATE_PATH = "/annotate/"  # of an annotator's page; the token follows
JOIN_PATH = "/join"  # where platforms send their people
PROGRESS_PATH = "/progress/"  # of the organiser's page; the token follows
OWN_PERSONA = "your persona:"  # how ParlAI's tasks begin a persona line of the one who answers


@dataclass(frozen=True)
class Utterance:
    """One message of a conversation."""

    speaker: str
    text: str


@dataclass(frozen=True)
class Conversation:
    """A whole dialogue.

    Attributes:
        name: distinguishes it from all others; the same dialogue imported twice has the same name.
        turns: what was said, in order.
        models: speaker -> the model that spoke, or HUMAN.
        context: lines shown above the conversation, such as a persona.
        source: the file it came from.
    """

    name: str
    turns: tuple[Utterance, ...]
    models: Mapping[str, str]
    context: tuple[str, ...] = ()
    source: str = ""


@dataclass(frozen=True)
class Side:
    """One half of a pair: a conversation, and which of its speakers is judged."""

    conversation: str
    speaker: str


@dataclass(frozen=True)
class ConversationPair:
    """Two conversations that are shown side by side.

    Attributes:
        name: distinguishes it from all others.
        sides: the two halves; which one is shown on the left is drawn for each annotator.
        right: for an onboarding check, the side (0 or 1) that everyone should choose; None for a real pair.
    """

    name: str
    sides: tuple[Side, Side]
    right: int | None = None


@dataclass(frozen=True)
class Judgement:
    """An annotator's choice.

    Attributes:
        models: the models of the two sides.
        winner: the model that was preferred, one of the two.
        question: the question that was asked.
        reason: what the annotator wrote; may be "".
        seconds: the time from seeing the pair to the answer; None if it is not known.
        passed: whether the annotator passed the onboarding checks.
        started: when the pair was shown, UTC in ISO 8601; "" if it is not known.
        ended: when the answer was stored; "" likewise.
        words: of the two conversations together; 0 if they are not known.
    """

    annotator: str
    pair: str
    models: tuple[str, str]
    winner: str
    question: str
    reason: str = ""
    seconds: float | None = None
    passed: bool = True
    started: str = ""
    ended: str = ""
    words: int = 0

    @property
    def too_fast(self) -> bool:
        """Whether it came faster than anybody reads, by the server's clock or the browser's."""
        took = [] if self.seconds is None else [self.seconds]
        if self.started and self.ended:
            took.append((datetime.fromisoformat(self.ended) - datetime.fromisoformat(self.started)).total_seconds())
        return bool(took) and min(took) < 60 * self.words / FASTEST


@dataclass(frozen=True)
class ToolAnswer:
    """An answer that another annotation tool has kept.

    Attributes:
        tool: "potato" or "label_studio".
        person: the tool's name of the annotator.
        pair: the pair's name.
        left: the side of it (0 or 1) that was on the left.
        side: the side that was preferred.
        seconds: the time that the answer took; None if it is not known.
        ended: when it was given, ISO 8601.
    """

    tool: str
    person: str
    pair: str
    left: int
    side: int
    question: str
    reason: str
    seconds: float | None
    ended: str


@dataclass(frozen=True)
class ChatMessage:
    """One message of a chat between a person and a model.

    Attributes:
        good: for a reply, whether the person called it good or bad; None if it was not rated.
        problems: for a reply, what the person found wrong with it, of the labels that were offered.
    """

    text: str
    good: bool | None = None
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class RatedChat:
    """A finished chat of a person with a model, and the person's rating of it.

    Attributes:
        number: distinguishes it from all others.
        messages: the first, third, ... are the person's.
        rating: of the whole, 1 to 5; None if it was not asked for.
        conversation: the name of the conversation that it became in the store.
        passed: whether the person passed the onboarding checks.
    """

    number: int
    annotator: str
    model: str
    messages: tuple[ChatMessage, ...]
    rating: int | None
    conversation: str
    passed: bool = True
