"""What human evaluation is about: conversations, pairs of them, and what annotators said."""

from collections.abc import Mapping
from dataclasses import dataclass

HUMAN = "human"  # the model of a speaker who is a person
LOWEST, HIGHEST = 1, 5  # ratings of a whole chat


@dataclass(frozen=True)
class Turn:
    """One message."""

    speaker: str
    text: str


@dataclass(frozen=True)
class Conversation:
    """A whole dialogue.

    Attributes:
        name: tells it from all others; the same dialogue imported twice has the same name.
        turns: in order.
        models: speaker -> the model that spoke, or HUMAN.
        context: lines shown above it, such as a persona.
        source: the file it came from.
    """

    name: str
    turns: tuple[Turn, ...]
    models: Mapping[str, str]
    context: tuple[str, ...] = ()
    source: str = ""


@dataclass(frozen=True)
class Side:
    """One half of a pair: a conversation, and which of its speakers is judged."""

    conversation: str
    speaker: str


@dataclass(frozen=True)
class Pair:
    """Two conversations that are shown side by side.

    Attributes:
        name: tells it from all others.
        sides: two of them; which is shown left is drawn for each annotator.
        right: of an onboarding check, the side (0 or 1) that everyone should choose; None of a real pair.
    """

    name: str
    sides: tuple[Side, Side]
    right: int | None = None


@dataclass(frozen=True)
class Judgement:
    """An annotator's choice.

    Attributes:
        annotator: a name.
        pair: the pair's name.
        models: of the two sides.
        winner: the model that was preferred, one of the two.
        question: that was asked.
        reason: what the annotator wrote; may be "".
        seconds: from seeing the pair to the answer; None where it is not known.
        passed: whether the annotator passed the onboarding checks.
    """

    annotator: str
    pair: str
    models: tuple[str, str]
    winner: str
    question: str
    reason: str = ""
    seconds: float | None = None
    passed: bool = True


@dataclass(frozen=True)
class Message:
    """One message of a chat.

    Attributes:
        text: what was said.
        good: of a reply, whether the person called it good or bad; None where nothing was said of it.
    """

    text: str
    good: bool | None = None


@dataclass(frozen=True)
class RatedChat:
    """A finished chat of a person with a model, and what the person said of it.

    Attributes:
        number: tells it from all others.
        annotator: the person's name.
        model: that replied.
        messages: the first, third, ... are the person's.
        rating: of the whole, 1 to 5; None where it was not asked for.
        conversation: the name of what it became in the store.
        passed: whether the person passed the onboarding checks.
    """

    number: int
    annotator: str
    model: str
    messages: tuple[Message, ...]
    rating: int | None
    conversation: str
    passed: bool = True
