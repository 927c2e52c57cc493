"""Rows and their records, and queries that several parts of the storage share.

Every function works within the transaction of the session that it is given.
"""

import re
import secrets
from collections.abc import Iterable, Mapping
from typing import TypeVar

from sqlalchemy import case, func, select
from sqlalchemy.orm import Session, load_only

from polyagents.errors import InputError
from polyagents.human_eval.records import PASS_SHARE, ChatMessage, Conversation, ConversationPair, Side, Utterance
from polyagents.human_eval.storage.database_tables import (
    AnnotatorRow,
    AnswerRow,
    AssignmentRow,
    ChatRow,
    ConversationRow,
    MessageRow,
    PairRow,
)

LARGEST = 2**31 - 1  # of a number in PostgreSQL

Owned = TypeVar("Owned", AssignmentRow, ChatRow)

SpeakerModels = Mapping[str, Mapping[str, str]]
"""Conversation -> speaker -> model."""

# ---- rows and records ----------------------------------------------------------------------------------------------


def conversation_row(conversation: Conversation) -> ConversationRow:
    """Make the row that stores a conversation."""
    return ConversationRow(
        name=conversation.name,
        turns=[[turn.speaker, turn.text] for turn in conversation.turns],
        models=dict(conversation.models),
        context=list(conversation.context),
        source=conversation.source,
    )


def conversation_of(row: ConversationRow) -> Conversation:
    """Read a conversation from its row; a ValueError says if somebody has a model and says nothing."""
    if silent := row.models.keys() - {speaker for speaker, _ in row.turns}:
        raise ValueError(f"conversation {row.name!r:.60} has a model of {min(silent)!r:.60}, who says nothing")
    turns = tuple(Utterance(speaker, text) for speaker, text in row.turns)
    return Conversation(row.name, turns, row.models, tuple(row.context), row.source)


def pair_row(pair: ConversationPair) -> PairRow:
    """Make the row that stores a pair."""
    first, second = pair.sides
    return PairRow(
        name=pair.name,
        conversation_0=first.conversation,
        speaker_0=first.speaker,
        conversation_1=second.conversation,
        speaker_1=second.speaker,
        right=pair.right,
    )


def pair_of(row: PairRow) -> ConversationPair:
    """Read a pair from its row."""
    sides = (Side(row.conversation_0, row.speaker_0), Side(row.conversation_1, row.speaker_1))
    return ConversationPair(row.name, sides, row.right)


def messages_by_chat(rows: Iterable[MessageRow]) -> dict[int, list[ChatMessage]]:
    """Read each chat's messages from rows in order; a gap is a ValueError: the next would be the other speaker's."""
    found: dict[int, list[ChatMessage]] = {}
    for row in rows:
        said = found.setdefault(row.chat, [])
        if row.place != len(said):
            raise ValueError(f"row {row.number} of messages has the place {row.place}, and {len(said)} come before it")
        said.append(ChatMessage(row.text, row.good, tuple(row.problems or ())))
    return found


# ---- what is judged ------------------------------------------------------------------------------------------------


def models_by_conversation(session: Session) -> SpeakerModels:
    """Return who spoke in every conversation."""
    rows = session.scalars(select(ConversationRow).options(load_only(ConversationRow.name, ConversationRow.models)))
    return {row.name: row.models for row in rows}


def words_by_conversation(session: Session) -> Mapping[str, int]:
    """Return how many words every conversation has."""
    rows = session.scalars(select(ConversationRow).options(load_only(ConversationRow.name, ConversationRow.turns)))
    return {row.name: sum(len(text.split()) for _, text in row.turns) for row in rows}


def pair_models(row: PairRow, models: SpeakerModels) -> tuple[str, str]:
    """Return the models of a pair's sides; a ValueError says if a side is of nobody."""
    try:
        return models[row.conversation_0][row.speaker_0], models[row.conversation_1][row.speaker_1]
    except KeyError as error:
        raise ValueError(f"pair {row.name!r:.60} has a side whose model is not known") from error


# ---- who judges ----------------------------------------------------------------------------------------------------


def annotator_row(session: Session, token: str) -> AnnotatorRow:
    """Find the annotator of a link; an InputError says if it belongs to nobody."""
    row = session.scalars(select(AnnotatorRow).where(AnnotatorRow.token == token)).first()
    if row is None:
        raise InputError("This link is not known here; ask for a new one where you got it.")
    return row


def own_row(session: Session, kind: type[Owned], number: int, who: AnnotatorRow, name: str) -> Owned:
    """Find an annotator's own row; the InputError does not say whether it is another's, or does not exist."""
    row = session.get(kind, number) if 0 < number <= LARGEST else None
    if row is None or row.annotator != who.number:
        raise InputError(f"{name} {number} is not yours; open your link again.")
    return row


def new_person(session: Session) -> AnnotatorRow:
    """Add an annotator under a pseudonym."""
    who = AnnotatorRow(name=f"person-{secrets.token_hex(6)}", token=new_token())
    session.add(who)
    session.flush()
    return who


def forgotten_name() -> str:
    """Draw the name of a person who was invited, and is forgotten."""
    return f"forgotten-{secrets.token_hex(6)}"


def is_forgotten(name: str) -> bool:
    """Tell whether a name is one of `forgotten_name`."""
    return re.fullmatch("forgotten-[0-9a-f]{12}", name) is not None


def new_token() -> str:
    """Draw the secret part of a link: 128 bits."""
    return secrets.token_urlsafe(16)


def failed_annotators(session: Session) -> set[int]:
    """Return the numbers of the annotators who got too few onboarding checks right."""
    right = func.sum(case((AnswerRow.choice == PairRow.right, 1), else_=0))
    checks = (
        select(AssignmentRow.annotator, right, func.count())
        .join_from(AssignmentRow, AnswerRow)
        .join(PairRow)
        .where(PairRow.right.is_not(None))
        .group_by(AssignmentRow.annotator)
    )
    return {annotator for annotator, correct, count in session.execute(checks) if correct < PASS_SHARE * count}
