"""The tables of the database, one class each."""

from typing import Any, ClassVar

from sqlalchemy import JSON, Dialect, ForeignKey, Text, TypeDecorator, UniqueConstraint
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from polyagents.human_eval.conversations import clean


class CleanText(TypeDecorator[str]):
    """A text that people type; characters that no database can store are replaced."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Clean a text before it goes into the database or is compared."""
        return None if value is None else clean(value)


class Base(DeclarativeBase):
    """The base class of all tables. Strings are text of any length."""

    type_annotation_map: ClassVar = {str: CleanText, list[Any]: JSON, dict[str, str]: JSON}


class ConversationRow(Base):
    """A `records.Conversation`; turns are [speaker, text]."""

    __tablename__ = "conversations"
    number: Mapped[int] = mapped_column(primary_key=True)  # the order in which they came
    name: Mapped[str] = mapped_column(unique=True)
    turns: Mapped[list[Any]]
    models: Mapped[dict[str, str]]
    context: Mapped[list[Any]]
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
    right: Mapped[int | None]


class AnnotatorRow(Base):
    """A person who judges; the token is the secret part of the person's link."""

    __tablename__ = "annotators"
    number: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    token: Mapped[str] = mapped_column(unique=True)


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
    left: Mapped[int]
    place: Mapped[int]  # 1 for the annotator's first


class AnswerRow(Base):
    """What an annotator said to one question about one pair."""

    __tablename__ = "answers"
    __table_args__ = (UniqueConstraint("assignment", "question"),)
    number: Mapped[int] = mapped_column(primary_key=True)
    assignment: Mapped[int] = mapped_column(ForeignKey("assignments.number"))
    question: Mapped[str]
    choice: Mapped[int]  # the side of the pair, 0 or 1
    reason: Mapped[str]
    seconds: Mapped[float | None]
    answered: Mapped[str]  # when: UTC, ISO 8601


class ChatRow(Base):
    """A person's conversation with a model."""

    __tablename__ = "chats"
    __table_args__ = (UniqueConstraint("annotator", "place"),)
    number: Mapped[int] = mapped_column(primary_key=True)
    annotator: Mapped[int] = mapped_column(ForeignKey("annotators.number"), index=True)
    place: Mapped[int]  # 1 for the annotator's first
    model: Mapped[str]
    personas: Mapped[list[Any]]  # of the person, of the model
    rating: Mapped[int | None]  # of the whole
    ended: Mapped[str | None]  # when: UTC, ISO 8601
    conversation: Mapped[str | None] = mapped_column(ForeignKey("conversations.name"))  # that it became at its end


class MessageRow(Base):
    """A message of a chat; the first, third, ... are the person's."""

    __tablename__ = "messages"
    __table_args__ = (UniqueConstraint("chat", "place"),)
    number: Mapped[int] = mapped_column(primary_key=True)
    chat: Mapped[int] = mapped_column(ForeignKey("chats.number"))
    place: Mapped[int]  # 0 for the first
    text: Mapped[str]
    good: Mapped[bool | None]  # of a reply: what the person said of it
