"""Stores answers from another tool: each person there gets a pseudonym, as the people of a platform do."""

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from polyagents.errors import InputError
from polyagents.human_eval.records import ToolAnswer
from polyagents.human_eval.storage.assignments import add_assignment, given_answer
from polyagents.human_eval.storage.database_tables import AnswerRow, AssignmentRow, PairRow, ParticipantRow
from polyagents.human_eval.storage.evaluation_store import EvaluationStore
from polyagents.human_eval.storage.queries import new_person
from polyagents.human_eval.study import COMPLETE


def add_answers(store: EvaluationStore, answers: Sequence[ToolAnswer]) -> int:
    """Store answers, of which a person's latest to a question counts; return how many are new.

    If a pair is not in the store, an InputError says so, and nothing is stored.
    """
    new = 0
    with store.database.atomic_write() as session:
        pairs = {row.name: row for row in session.scalars(select(PairRow))}
        for answer in answers:
            if answer.pair not in pairs:
                raise InputError(
                    f"Pair {answer.pair:.40} of {answer.tool} is not in {store.name}; give the --database that the "
                    f"project was exported from."
                )
            who = person_of(session, answer)
            assigned = found_assignment(session, who, pairs[answer.pair], answer.left)
            row = given_answer(session, assigned, answer.question)
            if row is None:
                row = AnswerRow(assignment=assigned.number, question=answer.question, choice=answer.side, reason="")
                row.answered = answer.ended
                new += 1
            if row.answered <= answer.ended:
                row.choice, row.reason, row.answered = answer.side, answer.reason, answer.ended
                row.seconds = answer.seconds
            session.add(row)
            who.ended = max(who.ended or "", answer.ended)
    return new


def person_of(session: Session, answer: ToolAnswer) -> ParticipantRow:
    """Find the person of an answer, or add the person, under a pseudonym."""
    own = select(ParticipantRow).where(ParticipantRow.study == answer.tool, ParticipantRow.person == answer.person)
    row = session.scalars(own).first()
    if row is None:
        number = new_person(session).number
        row = ParticipantRow(annotator=number, study=answer.tool, person=answer.person, back="", stage=COMPLETE)
        row.arrived = row.until = answer.ended
        session.add(row)
    return row


def found_assignment(session: Session, who: ParticipantRow, pair: PairRow, left: int) -> AssignmentRow:
    """Find a person's assignment of a pair, or add it."""
    own = select(AssignmentRow).where(AssignmentRow.annotator == who.annotator)
    row = session.scalars(own.where(AssignmentRow.pair == pair.number)).first()
    return row or add_assignment(session, who.annotator, pair, left)
