"""The tables of the database, one class each."""

import functools
import math
from collections.abc import Callable
from datetime import datetime
from typing import Any, ClassVar, get_args, get_type_hints

from sqlalchemy import JSON, Boolean, Dialect, ForeignKey, Text, TypeDecorator, UniqueConstraint, event
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from polyagents.files.json_files import fits
from polyagents.human_eval.conversations import clean
from polyagents.human_eval.records import HIGHEST, LOWEST


class CleanText(TypeDecorator[str]):
    """A text that people type; characters that no database can store are replaced."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Clean a text before it goes into the database or is compared."""
        return None if value is None else clean(value)


class Flag(TypeDecorator[bool]):
    """A truth value; of SQLite, which keeps anything, what is neither 0 nor 1 comes back as it is."""

    impl = Boolean
    cache_ok = True

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], Any]:
        """Return what makes a value of the driver's."""
        return lambda raw: {0: False, 1: True}.get(raw, raw)


class Base(DeclarativeBase):
    """The base class of all tables. Strings are text of any length."""

    type_annotation_map: ClassVar = {
        str: CleanText,
        bool: Flag,
        list[str]: JSON,
        list[tuple[str, str]]: JSON,
        tuple[str, str]: JSON,
        dict[str, str]: JSON,
    }


def is_date(text: str) -> bool:
    """Tell whether a text is a date and time of ISO 8601."""
    try:
        return "T" in text and bool(datetime.fromisoformat(text))
    except ValueError:
        return False


# What values of a column are, beyond their type.
SIDE = {"holds": lambda value: value in (0, 1)}
RATING = {"holds": lambda value: LOWEST <= value <= HIGHEST}
DURATION = {"holds": lambda value: 0 <= value < math.inf}
MOMENT = {"holds": is_date}
COUNTED = {"holds": lambda value: value >= 0}
ADDED = {"added": True}  # since 0.1.0, whose databases get the column when they are opened


class ConversationRow(Base):
    """A `records.Conversation`; turns are [speaker, text]."""

    __tablename__ = "conversations"
    number: Mapped[int] = mapped_column(primary_key=True)  # the order in which they came
    name: Mapped[str] = mapped_column(unique=True)
    turns: Mapped[list[tuple[str, str]]]
    models: Mapped[dict[str, str]]
    context: Mapped[list[str]]
    source: Mapped[str]


class PairRow(Base):
    """A `records.ConversationPair`."""

    __tablename__ = "pairs"
    number: Mapped[int] = mapped_column(primary_key=True)  # the order in which they are shown
    name: Mapped[str] = mapped_column(unique=True)
    conversation_0: Mapped[str] = mapped_column(ForeignKey("conversations.name"))
    speaker_0: Mapped[str]
    conversation_1: Mapped[str] = mapped_column(ForeignKey("conversations.name"))
    speaker_1: Mapped[str]
    right: Mapped[int | None] = mapped_column(info=SIDE)


class AnnotatorRow(Base):
    """A person who judges; the token is the secret part of the person's link."""

    __tablename__ = "annotators"
    number: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    token: Mapped[str] = mapped_column(unique=True)


class ParticipantRow(Base):
    """A person whom a platform has sent: the identifiers, apart from all that the person did.

    A place of the study is this person's until `until`, and for good once the stage is `complete`.
    """

    __tablename__ = "participants"
    __table_args__ = (UniqueConstraint("study", "person"), UniqueConstraint("study", "session"))
    number: Mapped[int] = mapped_column(primary_key=True)
    annotator: Mapped[int] = mapped_column(ForeignKey("annotators.number"), unique=True)
    study: Mapped[str]  # this, the person and the session (the submission) are the platform's names
    person: Mapped[str | None]  # None once it is forgotten; also the session
    session: Mapped[str | None]
    back: Mapped[str]  # the address that the submission is sent to in the end; "" if it is the platform's usual one
    stage: Mapped[str]  # one of study.STAGES, or how it ended
    arrived: Mapped[str] = mapped_column(info=MOMENT)
    until: Mapped[str] = mapped_column(info=MOMENT)  # UTC, ISO 8601
    consent: Mapped[str | None]  # the text that was agreed to
    consented: Mapped[str | None] = mapped_column(info=MOMENT)
    ended: Mapped[str | None] = mapped_column(info=MOMENT)


class PaymentRow(Base):
    """Something that a platform is told once; the row is there before it is sent."""

    __tablename__ = "payments"
    number: Mapped[int] = mapped_column(primary_key=True)
    key: Mapped[str] = mapped_column(unique=True)  # what must not happen twice; it names nobody
    participant: Mapped[int | None] = mapped_column(ForeignKey("participants.number"))
    kind: Mapped[str]  # create, approve, reject or bonus
    amount: Mapped[int | None] = mapped_column(info=COUNTED)  # cents
    platform_id: Mapped[str | None]  # the platform's name of what was made
    sent: Mapped[str] = mapped_column(info=MOMENT)
    done: Mapped[str | None] = mapped_column(info=MOMENT)  # when the platform confirmed it; None: that is not known


class OrganiserRow(Base):
    """The secret part of the organiser's link; a single row."""

    __tablename__ = "organiser"
    number: Mapped[int] = mapped_column(primary_key=True)
    token: Mapped[str]


class AssignmentRow(Base):
    """A pair that an annotator was shown, and which of its sides stood on the left."""

    __tablename__ = "assignments"
    __table_args__ = (UniqueConstraint("annotator", "pair"),)
    number: Mapped[int] = mapped_column(primary_key=True)
    annotator: Mapped[int] = mapped_column(ForeignKey("annotators.number"), index=True)
    pair: Mapped[int] = mapped_column(ForeignKey("pairs.number"), index=True)
    left: Mapped[int] = mapped_column(info=SIDE)
    place: Mapped[int] = mapped_column(info=COUNTED)  # 1 for the annotator's first
    shown: Mapped[str | None] = mapped_column(info=MOMENT | ADDED)  # when, for the question that is asked now


class AnswerRow(Base):
    """An annotator's answer to one question about one pair."""

    __tablename__ = "answers"
    __table_args__ = (UniqueConstraint("assignment", "question"),)
    number: Mapped[int] = mapped_column(primary_key=True)
    assignment: Mapped[int] = mapped_column(ForeignKey("assignments.number"))
    question: Mapped[str]
    choice: Mapped[int] = mapped_column(info=SIDE)  # the side of the pair, 0 or 1
    reason: Mapped[str]
    seconds: Mapped[float | None] = mapped_column(info=DURATION)
    answered: Mapped[str] = mapped_column(info=MOMENT)  # when: UTC, ISO 8601
    started: Mapped[str | None] = mapped_column(info=MOMENT | ADDED)  # when the pair was shown


class ChatRow(Base):
    """A person's conversation with a model."""

    __tablename__ = "chats"
    __table_args__ = (UniqueConstraint("annotator", "place"),)
    number: Mapped[int] = mapped_column(primary_key=True)
    annotator: Mapped[int] = mapped_column(ForeignKey("annotators.number"), index=True)
    place: Mapped[int] = mapped_column(info=COUNTED)  # 1 for the annotator's first
    model: Mapped[str]
    personas: Mapped[tuple[str, str]]  # of the person, of the model
    rating: Mapped[int | None] = mapped_column(info=RATING)  # of the whole
    ended: Mapped[str | None] = mapped_column(info=MOMENT)  # when: UTC, ISO 8601
    conversation: Mapped[str | None] = mapped_column(ForeignKey("conversations.name"))  # that it became at its end


class MessageRow(Base):
    """A message of a chat; the first, third, ... are the person's."""

    __tablename__ = "messages"
    __table_args__ = (UniqueConstraint("chat", "place"),)
    number: Mapped[int] = mapped_column(primary_key=True)
    chat: Mapped[int] = mapped_column(ForeignKey("chats.number"))
    place: Mapped[int] = mapped_column(info=COUNTED)  # 0 for the first
    text: Mapped[str]
    good: Mapped[bool | None]  # of a reply: what the person said of it
    problems: Mapped[list[str] | None] = mapped_column(info=ADDED)  # of a reply: what the person found wrong


@functools.cache
def hints_of(kind: type[Base]) -> dict[str, Any]:
    """Return the type of each column of a class."""
    return {name: get_args(hint)[0] for name, hint in get_type_hints(kind).items() if name in kind.__table__.columns}


@event.listens_for(Base, "load", propagate=True)
def check_row(row: Base, _: object) -> None:
    """Refuse, with a ValueError, a row that we have not stored: SQLite keeps any value in any column."""
    for name, hint in hints_of(type(row)).items():
        value, column = vars(row).get(name, ...), row.__table__.columns[name]
        if value is ...:  # it was not asked for
            continue
        if not fits(value, hint) or (value is not None and not column.info.get("holds", lambda _: True)(value)):
            raise ValueError(f"row {vars(row).get('number')!r} of {row.__tablename__} has the {name} {value!r:.60}")
