"""The results of the chats: the ratings of finished ones, and everybody's progress."""

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from polyagents.human_eval.records import ChatMessage, RatedChat
from polyagents.human_eval.storage.database_tables import AnnotatorRow, ChatRow, MessageRow
from polyagents.human_eval.storage.evaluation_store import EvaluationStore
from polyagents.human_eval.storage.queries import failed_annotators, messages_by_chat


def rated_chats(store: EvaluationStore) -> list[RatedChat]:
    """Return all finished chats, in the order in which they began."""
    with store.database.reading() as session:
        failed = failed_annotators(session)
        messages = every_message(session)
        rows = session.execute(
            select(ChatRow, AnnotatorRow)
            .join(AnnotatorRow, AnnotatorRow.number == ChatRow.annotator)
            .where(ChatRow.ended.is_not(None))
            .order_by(ChatRow.number)
        )
        return [
            RatedChat(
                row.number,
                who.name,
                row.model,
                tuple(messages.get(row.number, ())),
                row.rating,
                row.conversation or "",
                row.annotator not in failed,
            )
            for row, who in rows
        ]


@dataclass(frozen=True)
class PersonProgress:
    """The progress of one person.

    Attributes:
        name: the name that was invited.
        token: the secret part of the person's link.
        finished: how many chats the person has finished.
        open: how many chats are not finished.
        last: when the last one was finished, UTC in ISO 8601; None before the first.
    """

    name: str
    token: str
    finished: int
    open: int
    last: str | None


def open_chats(store: EvaluationStore) -> dict[str, int]:
    """Count the chats of each model that are not finished."""
    with store.database.reading() as session:
        return chats_by_model(session, ChatRow.ended.is_(None))


def people(store: EvaluationStore) -> list[PersonProgress]:
    """Return the progress of everybody who was invited, in the order of the invitations."""
    finished = func.count(ChatRow.ended)
    counts = (
        select(AnnotatorRow, finished, func.count(ChatRow.number), func.max(ChatRow.ended))
        .outerjoin(ChatRow, ChatRow.annotator == AnnotatorRow.number)
        .group_by(AnnotatorRow.number)
        .order_by(AnnotatorRow.number)
    )
    with store.database.reading() as session:
        return [
            PersonProgress(who.name, who.token, ended, every - ended, last)
            for who, ended, every, last in session.execute(counts)
        ]


def chats_by_model(session: Session, *which: ColumnElement[bool]) -> dict[str, int]:
    """Count the chats of each model; `which` selects some of them."""
    counts = select(ChatRow.model, func.count()).where(*which).group_by(ChatRow.model)
    return {model: count for model, count in session.execute(counts)}  # noqa: C416  a row is not a pair to mypy


def every_message(session: Session) -> Mapping[int, list[ChatMessage]]:
    """Return the messages of every chat, by its number."""
    return messages_by_chat(session.scalars(select(MessageRow).order_by(MessageRow.chat, MessageRow.place)))
