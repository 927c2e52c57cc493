"""The queries of judging: the pair that an annotator is shown, and the annotator's answer."""

import hashlib
from datetime import datetime

from sqlalchemy import ColumnElement, case, func, select, union
from sqlalchemy.orm import Session, aliased

from polyagents.errors import InputError
from polyagents.human_eval.storage.database_tables import (
    AnnotatorRow,
    AnswerRow,
    AssignmentRow,
    ChatRow,
    ConversationRow,
    PairRow,
)
from polyagents.human_eval.storage.places import StudyPlaces
from polyagents.human_eval.storage.queries import conversation_of, failed_annotators, pair_of
from polyagents.human_eval.storage.views import Assignment, ShownSide
from polyagents.human_eval.study import COMPLETE, SCREENED_OUT, Study


def next_pair(session: Session, who: AnnotatorRow, question: str, study: Study | None) -> PairRow | None:
    """Choose the next pair for an annotator: checks, then the pair with the fewest answers that count.

    In a study there are as many pairs as it wants of each person, with checks among them.
    Of pairs with equally many answers it is one with the fewest conversations that the annotator has read in other
    pairs; of these the one that the fewest annotators have before them: what others read now will soon have more.
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
    checks = None if study is None else is_check_next(session, who, study)
    order = (
        case((PairRow.right.is_(None), 1), else_=0),
        func.coalesce(shown.c.answers, 0),
        already_read(who),
        func.coalesce(shown.c.shown, 0),
        PairRow.number,
    )
    unseen = select(PairRow).outerjoin(shown, shown.c.pair == PairRow.number).where(PairRow.number.not_in(seen))
    of_kind = () if checks is None else (PairRow.right.is_not(None) if checks else PairRow.right.is_(None),)
    if study and not checks and pairs_of(session, who)[0] >= study.each:
        return None
    return session.scalars(unseen.where(is_not_own(who), *of_kind).order_by(*order).limit(1)).first()


def pairs_of(session: Session, who: AnnotatorRow) -> tuple[int, int]:
    """Count the pairs and the checks that an annotator was shown."""
    shown = select(func.count(), func.count(PairRow.right)).join(AssignmentRow)
    every, checks = session.execute(shown.where(AssignmentRow.annotator == who.number)).one()
    return every - checks, checks


def checks_of(session: Session, study: Study) -> tuple[int, int]:
    """Count the checks that come first, and those among the pairs."""
    checks = session.scalar(select(func.count(PairRow.right))) or 0
    first = checks if study.onboarding is None else min(study.onboarding, checks)
    return first, checks - first


def is_check_next(session: Session, who: AnnotatorRow, study: Study) -> bool:
    """Tell whether a check comes next: the first ones, or one of those that divide the pairs evenly."""
    (pairs, checks), (first, among) = pairs_of(session, who), checks_of(session, study)
    passed = checks - first
    return passed < 0 or (passed < among and pairs * (among + 1) >= (passed + 1) * study.each)


def settle(session: Session, who: AnnotatorRow, question: str, places: StudyPlaces) -> None:
    """End a person's part in a study if the work is done, or if too few of the first checks were right."""
    row = places.row(session, who)
    if row is None or places.stage(row) != "work":
        return
    answered = select(func.count(PairRow.right)).join(AssignmentRow).join(AnswerRow)
    own = answered.where(AssignmentRow.annotator == who.number, AnswerRow.question == question)
    if session.scalar(own) == checks_of(session, places.study)[0] and who.number in failed_annotators(session):
        places.end(row, SCREENED_OUT)
    elif not unanswered(session, who, question) and not next_pair(session, who, question, places.study):
        places.end(row, COMPLETE)


def unanswered(session: Session, who: AnnotatorRow, question: str) -> AssignmentRow | None:
    """Find the first pair that an annotator was shown and has not judged."""
    answered = select(AnswerRow.assignment).where(AnswerRow.question == question)
    own = select(AssignmentRow).where(AssignmentRow.annotator == who.number, AssignmentRow.number.not_in(answered))
    return session.scalars(own.order_by(AssignmentRow.place)).first()


def is_not_own(who: AnnotatorRow) -> ColumnElement[bool]:
    """Select the pairs without a chat of the annotator's own: who talked to a model is not a blind judge."""
    own = select(ChatRow.conversation).where(ChatRow.annotator == who.number, ChatRow.conversation.is_not(None))
    return PairRow.conversation_0.not_in(own) & PairRow.conversation_1.not_in(own)


def already_read(who: AnnotatorRow) -> ColumnElement[int]:
    """Count how many of a pair's two conversations an annotator was shown before."""
    earlier = aliased(PairRow)
    shown = [select(side).join(AssignmentRow) for side in (earlier.conversation_0, earlier.conversation_1)]
    read = union(*(each.where(AssignmentRow.annotator == who.number) for each in shown))
    first, second = (case((side.in_(read), 1), else_=0) for side in (PairRow.conversation_0, PairRow.conversation_1))
    return first + second


def assign(session: Session, who: AnnotatorRow, pair: PairRow) -> AssignmentRow:
    """Give an annotator a pair; the token and the pair draw its left side: evenly, and nobody can know it before."""
    left = hashlib.sha256(f"{who.token} {pair.name}".encode()).digest()[0] % 2
    return add_assignment(session, who.number, pair, left)


def add_assignment(session: Session, annotator: int, pair: PairRow, left: int) -> AssignmentRow:
    """Store that an annotator, by number, has a pair next, with this side (0 or 1) on the left."""
    seen = session.scalar(select(func.count()).where(AssignmentRow.annotator == annotator)) or 0
    row = AssignmentRow(annotator=annotator, pair=pair.number, left=left, place=seen + 1)
    session.add(row)
    session.flush()
    return row


def assignment_of(session: Session, row: AssignmentRow, question: str, study: Study | None) -> Assignment:
    """Read the annotator's view of an assignment and its answer, of a study if the annotator came for one."""
    pair = pair_of(session.get_one(PairRow, row.pair))
    sides = [pair.sides[side] for side in (row.left, 1 - row.left)]
    shown = [select(ConversationRow).where(ConversationRow.name == side.conversation) for side in sides]
    left, right = (
        ShownSide(conversation_of(session.scalars(rows).one()), side.speaker)
        for rows, side in zip(shown, sides, strict=True)
    )
    who = session.get_one(AnnotatorRow, row.annotator)
    total = session.scalar(select(func.count()).select_from(PairRow).where(is_not_own(who))) or 0
    if study:
        total = min(total, study.each + sum(checks_of(session, study)))
    given, last = given_answer(session, row, question), last_place(session, row.annotator, question)
    choice, reason = ("left" if given.choice == row.left else "right", given.reason) if given else ("", "")
    return Assignment(row.number, row.place, total, left, right, choice, reason, last)


def given_answer(session: Session, row: AssignmentRow, question: str) -> AnswerRow | None:
    """Find the answer to an assignment."""
    given = select(AnswerRow).where(AnswerRow.assignment == row.number, AnswerRow.question == question)
    return session.scalars(given).first()


def store_answer(
    session: Session, row: AssignmentRow, side: int, reason: str, seconds: float | None, question: str, now: datetime
) -> None:
    """Store an answer, the preferred side (0 or 1); it replaces an earlier one, unless a later pair has an answer."""
    given = given_answer(session, row, question)
    if given is None:
        given = AnswerRow(assignment=row.number, question=question, started=row.shown)
        session.add(given)
    elif (given.choice, given.reason) == (side, reason):
        return
    elif (last_place(session, row.annotator, question) or 0) > row.place:
        raise InputError(f"Pair {row.place} has its answer, and so has a later one; only the latest can be changed.")
    given.choice, given.reason, given.seconds = side, reason, seconds
    given.answered = now.isoformat()


def last_place(session: Session, annotator: int, question: str) -> int | None:
    """Return the place of an annotator's latest answer."""
    answered = select(func.max(AssignmentRow.place)).join(AnswerRow)
    return session.scalar(answered.where(AssignmentRow.annotator == annotator, AnswerRow.question == question))
