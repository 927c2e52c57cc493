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


def seconds_between(start: str, end: str) -> float:
    """Return the seconds between two moments in ISO 8601."""
    return (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()


@dataclass(frozen=True)
class Utterance:
    """One message of a conversation."""

    speaker: str
    text: str


@dataclass(frozen=True)
class Conversation:
    """A whole dialogue. The same one imported twice has the same name."""

    name: str
    turns: tuple[Utterance, ...]
    models: Mapping[str, str]  # speaker -> the model that spoke, or HUMAN
    context: tuple[str, ...] = ()  # lines shown above the conversation, such as a persona
    source: str = ""  # the file it came from


@dataclass(frozen=True)
class Side:
    """One half of a pair: a conversation, by name, and which of its speakers is judged."""

    conversation: str
    speaker: str


@dataclass(frozen=True)
class ConversationPair:
    """Two conversations that are shown side by side; which one is on the left is drawn for each annotator."""

    name: str
    sides: tuple[Side, Side]
    right: int | None = None  # for an onboarding check, the side (0 or 1) that everyone should choose; else None


@dataclass(frozen=True)
class Judgement:
    """An annotator's choice."""

    annotator: str
    pair: str
    models: tuple[str, str]  # of the two sides
    winner: str  # the model that was preferred, one of the two
    question: str
    reason: str = ""  # what the annotator wrote
    seconds: float | None = None  # from seeing the pair to the answer; None if it is not known
    passed: bool = True  # whether the annotator passed the onboarding checks
    started: str = ""  # when the pair was shown, UTC in ISO 8601; "" if it is not known
    ended: str = ""  # when the answer was stored; "" likewise
    words: int = 0  # of the two conversations together; 0 if they are not known

    @property
    def too_fast(self) -> bool:
        """Whether it came faster than anybody reads, by the server's clock or the browser's."""
        took = [] if self.seconds is None else [self.seconds]
        if self.started and self.ended:
            took.append(seconds_between(self.started, self.ended))
        return bool(took) and min(took) < 60 * self.words / FASTEST


@dataclass(frozen=True)
class ToolAnswer:
    """An answer that another annotation tool has kept."""

    tool: str  # "potato" or "label_studio"
    person: str  # the tool's name of the annotator
    pair: str
    left: int  # the side of the pair (0 or 1) that was on the left
    side: int  # the side that was preferred
    question: str
    reason: str
    seconds: float | None  # None if the time is not known
    ended: str  # UTC in ISO 8601


@dataclass(frozen=True)
class ChatMessage:
    """One message of a chat between a person and a model; only replies are rated."""

    text: str
    good: bool | None = None  # None if it was not rated
    problems: tuple[str, ...] = ()  # what the person found wrong with it, of the labels that were offered


@dataclass(frozen=True)
class RatedChat:
    """A finished chat of a person with a model, and the person's rating of it."""

    number: int  # distinguishes it from all others
    annotator: str
    model: str
    messages: tuple[ChatMessage, ...]  # the first, third, ... are the person's
    rating: int | None  # of the whole, 1 to 5; None if it was not asked for
    conversation: str  # the name of the conversation that it became in the store
    passed: bool = True  # whether the person passed the onboarding checks
