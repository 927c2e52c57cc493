"""The record of the people whom platforms send: what each did and was paid for, and how a person is forgotten."""

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, delete, func, select, update
from sqlalchemy.orm import Session

from polyagents.errors import InputError
from polyagents.human_eval.records import HUMAN, seconds_between
from polyagents.human_eval.storage.database_tables import (
    AnnotatorRow,
    AnswerRow,
    AssignmentRow,
    ChatRow,
    ConversationRow,
    MessageRow,
    ParticipantRow,
    PaymentRow,
)
from polyagents.human_eval.storage.evaluation_store import EvaluationStore
from polyagents.human_eval.storage.queries import failed_annotators, forgotten_name, new_token
from polyagents.human_eval.storage.results import annotator_progress, answers_by_annotator
from polyagents.human_eval.study import DECLINED, STAGES

REMOVED = "…"  # stands for what a person said who is forgotten


@dataclass(frozen=True)
class PersonWork:
    """What a person of a platform did; times are UTC in ISO 8601."""

    number: int  # of the participant in the store
    name: str  # the pseudonym, as in reports
    study: str
    person: str  # the platform's name; "" once it is forgotten
    submission: str  # the same
    stage: str  # one of study.STAGES, or how it ended
    arrived: str
    ended: str | None
    seconds: float | None  # from the arrival to the end; None before that
    judgements: int  # without the checks
    chats: int
    checks: int
    checks_right: int
    passed: bool  # whether enough checks are right; True before the first
    approved: str | None  # when the platform was told; None if it was not
    rejected: str | None  # the same
    bonus: int  # what was paid beyond the reward, in cents


def work_of_people(store: EvaluationStore, study: str | None = None) -> list[PersonWork]:
    """Return what each person of a study did, or of all studies, in the order in which they arrived."""
    with store.database.reading() as session:
        failed, own = failed_annotators(session), answers_by_annotator(session)
        ended_chats = select(ChatRow.annotator, func.count(ChatRow.ended)).group_by(ChatRow.annotator)
        chats = dict(session.execute(ended_chats).all())
        payments = defaultdict[tuple[int | None, str], list[PaymentRow]](list)
        for payment in session.scalars(select(PaymentRow).where(PaymentRow.done.is_not(None))):
            payments[payment.participant, payment.kind].append(payment)
        every = select(ParticipantRow, AnnotatorRow).join(AnnotatorRow)
        if study is not None:
            every = every.where(ParticipantRow.study == study)
        found = []
        for row, who in session.execute(every.order_by(ParticipantRow.number)):
            progress = annotator_progress(who, own[who.number], who.number not in failed)
            one = PersonWork(
                number=row.number,
                name=who.name,
                study=row.study,
                person=row.person or "",
                submission=row.session or "",
                stage=row.stage,
                arrived=row.arrived,
                ended=row.ended,
                seconds=seconds_between(row.arrived, row.ended) if row.ended else None,
                judgements=progress.judged,
                chats=chats.get(who.number, 0),
                checks=progress.checks,
                checks_right=progress.checks_right,
                passed=progress.passed,
                approved=next((paid.done for paid in payments[row.number, "approve"]), None),
                rejected=next((paid.done for paid in payments[row.number, "reject"]), None),
                bonus=sum(paid.amount or 0 for paid in payments[row.number, "bonus"]),
            )
            found.append(one)
        return found


def forget(store: EvaluationStore, person: str, answers: bool) -> dict[str, int]:
    """Remove a person's identifiers, in all studies; return how many people and answers were removed.

    Args:
        person: the platform's name, the pseudonym, or the name that was invited; an InputError says if nobody has it.
        answers: whether to remove what the person judged and said, too.
    """
    owns = select(ParticipantRow.annotator).where(ParticipantRow.person == person)
    removed = forget_all(store, (AnnotatorRow.name == person) | AnnotatorRow.number.in_(owns), answers)
    if not removed["forgotten"]:
        raise InputError(f"Nobody is called {person!r:.80} in {store.name}; give a name that a platform, or you, gave.")
    return removed


def forget_older(store: EvaluationStore, days: int, answers: bool) -> dict[str, int]:
    """Do the same for all people of platforms whose last act is so many days ago."""
    before = (store.clock() - timedelta(days=days)).isoformat()
    last = func.coalesce(ParticipantRow.ended, ParticipantRow.until)
    old = select(ParticipantRow.annotator).where(last < before, ParticipantRow.person.is_not(None))
    return forget_all(store, AnnotatorRow.number.in_(old), answers)


def forget_all(store: EvaluationStore, which: ColumnElement[bool], answers: bool) -> dict[str, int]:
    """Remove the identifiers of some annotators; nothing of them is left in the database's log either."""
    with store.database.atomic_write() as session:
        people = session.scalars(select(AnnotatorRow).where(which)).all()
        removed = [forget_one(session, who, answers, store.clock()) for who in people]
    store.database.checkpoint()
    return {"forgotten": len(people), "answers": sum(removed)}


def forget_one(session: Session, who: AnnotatorRow, answers: bool, now: datetime) -> int:
    """Remove the identifiers of one person, and end the link; return how many answers were removed."""
    row = session.scalars(select(ParticipantRow).where(ParticipantRow.annotator == who.number)).first()
    who.token = new_token()
    if row is None:
        who.name = forgotten_name()
    else:
        row.person = row.session = None
        row.back = ""
        # It may be the name of the submission.
        session.execute(update(PaymentRow).where(PaymentRow.participant == row.number).values(platform_id=None))
        if row.stage in STAGES:
            row.stage, row.ended = DECLINED, now.isoformat()
    return remove_answers(session, who) if answers else 0


def remove_answers(session: Session, who: AnnotatorRow) -> int:
    """Remove what a person judged and said; in chats that others have judged, what the person said is replaced."""
    assigned = select(AssignmentRow.number).where(AssignmentRow.annotator == who.number)
    removed = session.scalar(select(func.count()).where(AnswerRow.assignment.in_(assigned))) or 0
    session.execute(delete(AnswerRow).where(AnswerRow.assignment.in_(assigned)))
    session.execute(delete(AssignmentRow).where(AssignmentRow.annotator == who.number))
    for chat in session.scalars(select(ChatRow).where(ChatRow.annotator == who.number)):
        for row in session.scalars(select(ConversationRow).where(ConversationRow.name == chat.conversation)):
            row.turns = [
                (speaker, REMOVED if row.models.get(speaker) == HUMAN else text) for speaker, text in row.turns
            ]
        removed += 1
    own = select(ChatRow.number).where(ChatRow.annotator == who.number)
    session.execute(delete(MessageRow).where(MessageRow.chat.in_(own)))
    session.execute(delete(ChatRow).where(ChatRow.annotator == who.number))
    return removed
