"""What the store asks its database, within one transaction."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence

from sqlalchemy import ColumnElement, case, func, select, union
from sqlalchemy.orm import Session, aliased

from polyagents.errors import InputError
from polyagents.human_eval.records import Conversation, Pair, Side, Turn
from polyagents.human_eval.tables import AnnotatorRow, AnswerRow, AssignmentRow, ChatRow, ConversationRow, PairRow
from polyagents.human_eval.views import AnnotatorProgress, Assignment, Shown

PASSED = 0.75  # part of the onboarding checks that an annotator must get right (ParlAI's onboarding_threshold)
LARGEST = 2**31 - 1  # of a number in PostgreSQL

Models = Mapping[str, Mapping[str, str]]
"""Conversation -> speaker -> model."""

Given = tuple[AnswerRow, AssignmentRow, AnnotatorRow, PairRow]
"""An answer and what it belongs to."""

# ---- rows and records ----------------------------------------------------------------------------------------------


def conversation_row(conversation: Conversation) -> ConversationRow:
    """A conversation, to be stored."""
    return ConversationRow(
        name=conversation.name,
        turns=[[turn.speaker, turn.text] for turn in conversation.turns],
        models=dict(conversation.models),
        context=list(conversation.context),
        source=conversation.source,
    )


def conversation_of(row: ConversationRow) -> Conversation:
    """A conversation, as it was stored."""
    turns = tuple(Turn(speaker, text) for speaker, text in row.turns)
    return Conversation(row.name, turns, row.models, tuple(row.context), row.source)


def pair_row(pair: Pair) -> PairRow:
    """A pair, to be stored."""
    first, second = pair.sides
    return PairRow(
        name=pair.name,
        conversation_0=first.conversation,
        speaker_0=first.speaker,
        conversation_1=second.conversation,
        speaker_1=second.speaker,
        right=pair.right,
    )


def pair_of(row: PairRow) -> Pair:
    """A pair, as it was stored."""
    return Pair(row.name, (Side(row.conversation_0, row.speaker_0), Side(row.conversation_1, row.speaker_1)), row.right)


# ---- what is judged ------------------------------------------------------------------------------------------------


def models_by_conversation(session: Session) -> Models:
    """Who spoke in every conversation."""
    rows = session.execute(select(ConversationRow.name, ConversationRow.models))
    return {row.name: row.models for row in rows}


def pair_models(row: PairRow, models: Models) -> tuple[str, str]:
    """The models of a pair's sides."""
    return models[row.conversation_0][row.speaker_0], models[row.conversation_1][row.speaker_1]


def matchup(row: PairRow, models: Models) -> tuple[str, str]:
    """The same, whichever side they are on."""
    first, second = sorted(pair_models(row, models))
    return first, second


# ---- who judges ----------------------------------------------------------------------------------------------------


def annotator_row(session: Session, token: str) -> AnnotatorRow:
    """Whose link it is.

    Raises:
        InputError: nobody's.
    """
    row = session.scalars(select(AnnotatorRow).where(AnnotatorRow.token == token)).first()
    if row is None:
        raise InputError("This link is not known here; ask for a new one where you got it.")
    return row


def failed_annotators(session: Session) -> set[int]:
    """Numbers of the annotators who got too few onboarding checks right."""
    right = func.sum(case((AnswerRow.choice == PairRow.right, 1), else_=0))
    checks = (
        select(AssignmentRow.annotator, right, func.count())
        .join(AnswerRow, AnswerRow.assignment == AssignmentRow.number)
        .join(PairRow, PairRow.number == AssignmentRow.pair)
        .where(PairRow.right.is_not(None))
        .group_by(AssignmentRow.annotator)
    )
    return {annotator for annotator, correct, count in session.execute(checks) if correct < PASSED * count}


# ---- judging -------------------------------------------------------------------------------------------------------


def open_assignment(session: Session, who: AnnotatorRow, question: str) -> AssignmentRow | None:
    """What an annotator was shown and did not answer; the first of several."""
    answered = select(AnswerRow.assignment).where(AnswerRow.question == question)
    shown = select(AssignmentRow).where(AssignmentRow.annotator == who.number, AssignmentRow.number.not_in(answered))
    return session.scalars(shown.order_by(AssignmentRow.place)).first()


def next_pair(session: Session, who: AnnotatorRow, question: str) -> PairRow | None:
    """What an annotator should be shown next: checks, then what has the fewest answers that count.

    Of those with equally many answers, what has the fewest conversations that the annotator has read in other pairs;
    then what is before the fewest annotators: it will soon have more.
    """
    seen = select(AssignmentRow.pair).where(AssignmentRow.annotator == who.number)
    counting = AssignmentRow.annotator.not_in(failed_annotators(session))
    shown = (
        select(AssignmentRow.pair, func.count(AnswerRow.number).label("answers"), func.count().label("shown"))
        .outerjoin(AnswerRow, (AnswerRow.assignment == AssignmentRow.number) & (AnswerRow.question == question))
        .where(counting)
        .group_by(AssignmentRow.pair)
        .subquery()
    )
    order = (
        case((PairRow.right.is_(None), 1), else_=0),
        func.coalesce(shown.c.answers, 0),
        already_read(who),
        func.coalesce(shown.c.shown, 0),
        PairRow.number,
    )
    unseen = select(PairRow).outerjoin(shown, shown.c.pair == PairRow.number).where(PairRow.number.not_in(seen))
    return session.scalars(unseen.where(is_not_own(who)).order_by(*order).limit(1)).first()


def is_not_own(who: AnnotatorRow) -> ColumnElement[bool]:
    """Whether a pair has no chat of the annotator's own in it: who talked to a model is no blind judge of that talk."""
    own = select(ChatRow.conversation).where(ChatRow.annotator == who.number, ChatRow.conversation.is_not(None))
    return PairRow.conversation_0.not_in(own) & PairRow.conversation_1.not_in(own)


def already_read(who: AnnotatorRow) -> ColumnElement[int]:
    """Of a pair's two conversations, how many an annotator was shown before."""
    earlier = aliased(PairRow)
    shown = [
        select(conversation).join(AssignmentRow, AssignmentRow.pair == earlier.number)
        for conversation in (earlier.conversation_0, earlier.conversation_1)
    ]
    read = union(*(each.where(AssignmentRow.annotator == who.number) for each in shown))
    first, second = (case((side.in_(read), 1), else_=0) for side in (PairRow.conversation_0, PairRow.conversation_1))
    return first + second


def assign(session: Session, who: AnnotatorRow, pair: PairRow) -> AssignmentRow:
    """Give an annotator a pair.

    Which side is left is drawn by the secret token and the pair: evenly, and nobody can tell it beforehand.
    """
    seen = session.scalar(select(func.count()).where(AssignmentRow.annotator == who.number)) or 0
    left = hashlib.sha256(f"{who.token} {pair.name}".encode()).digest()[0] % 2
    row = AssignmentRow(annotator=who.number, pair=pair.number, left=left, place=seen + 1)
    session.add(row)
    session.flush()
    return row


def assignment_of(session: Session, row: AssignmentRow) -> Assignment:
    """What the annotator sees of an assignment."""
    pair = pair_of(session.get_one(PairRow, row.pair))
    left, right = (shown(session, pair.sides[side]) for side in (row.left, 1 - row.left))
    who = session.get_one(AnnotatorRow, row.annotator)
    total = session.scalar(select(func.count()).select_from(PairRow).where(is_not_own(who))) or 0
    return Assignment(row.number, row.place, total, left, right)


def shown(session: Session, side: Side) -> Shown:
    """One side."""
    row = session.scalars(select(ConversationRow).where(ConversationRow.name == side.conversation)).one()
    return Shown(conversation_of(row), side.speaker)


def assignment_row(session: Session, who: AnnotatorRow, number: int) -> AssignmentRow:
    """An annotator's own assignment.

    Raises:
        InputError: there is none, or it is another's; which of the two is not told.
    """
    row = session.get(AssignmentRow, number) if 0 < number <= LARGEST else None
    if row is None or row.annotator != who.number:
        raise InputError(f"Assignment {number} is none of yours; open your link again.")
    return row


def given_answer(session: Session, row: AssignmentRow, question: str) -> AnswerRow | None:
    """What was answered before."""
    given = select(AnswerRow).where(AnswerRow.assignment == row.number, AnswerRow.question == question)
    return session.scalars(given).first()


def assignment_at(session: Session, who: AnnotatorRow, place: int) -> AssignmentRow | None:
    """What an annotator was shown at a place."""
    at = select(AssignmentRow).where(AssignmentRow.annotator == who.number, AssignmentRow.place == place)
    return session.scalars(at).first()


def last_place(session: Session, annotator: int, question: str) -> int | None:
    """The place of the latest answer of an annotator, by number."""
    answered = (
        select(func.max(AssignmentRow.place))
        .join(AnswerRow, AnswerRow.assignment == AssignmentRow.number)
        .where(AssignmentRow.annotator == annotator, AnswerRow.question == question)
    )
    return session.scalar(answered)


# ---- what came of it -----------------------------------------------------------------------------------------------


def every_answer(session: Session) -> Iterator[Given]:
    """All answers, those to checks included, in the order in which they were first given."""
    rows = (
        select(AnswerRow, AssignmentRow, AnnotatorRow, PairRow)
        .join(AssignmentRow, AssignmentRow.number == AnswerRow.assignment)
        .join(AnnotatorRow, AnnotatorRow.number == AssignmentRow.annotator)
        .join(PairRow, PairRow.number == AssignmentRow.pair)
        .order_by(AnswerRow.number)
    )
    return iter(session.execute(rows))


def annotator_progress(who: AnnotatorRow, every: Sequence[Given], passed: bool, question: str) -> AnnotatorProgress:
    """How far one annotator is with a question; `every` has the answers to all questions."""
    own = [(answer, pair) for answer, assignment, _, pair in every if assignment.annotator == who.number]
    checks = [answer.choice == pair.right for answer, pair in own if pair.right is not None]
    return AnnotatorProgress(
        name=who.name,
        token=who.token,
        judged=sum(pair.right is None for answer, pair in own if answer.question == question),
        checks=len(checks),
        checks_right=sum(checks),
        passed=passed,
        last=max((answer.answered for answer, _ in own), default=None),
    )
