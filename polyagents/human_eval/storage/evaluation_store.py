"""The store of human evaluation: conversations, pairs, annotators, their assignments and answers.

The annotation page needs:

    store = EvaluationStore("human_eval.db")    # or postgresql://...; one per process, shared by its threads
    store.annotator(token)                      # the annotator of a link; InputError for an unknown one
    shown = store.next_assignment(token)        # left and right conversation; None when all pairs are judged
    store.answer(token, shown.number, "left", "it asks back", 31.5)
    store.progress()                            # for the organiser, whose link has store.organiser()
    store.judgements()                          # for the report

Every call is a transaction of its own. What a call has stored is on the disk when it returns, and a process that dies
in the middle of one leaves nothing behind. Any number of threads and processes may call all of them at once. A token
that nobody has is an InputError everywhere.
"""

import math
from collections.abc import Iterable
from datetime import datetime, timezone

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from polyagents.errors import InputError
from polyagents.human_eval.conversations import clean
from polyagents.human_eval.records import DEFAULT_QUESTION, Conversation, ConversationPair, Judgement
from polyagents.human_eval.storage import assignments, queries, results
from polyagents.human_eval.storage.database import Database
from polyagents.human_eval.storage.database_tables import (
    AnnotatorRow,
    AnswerRow,
    AssignmentRow,
    ConversationRow,
    OrganiserRow,
    PairRow,
    ParticipantRow,
)
from polyagents.human_eval.storage.places import Clock, StudyPlaces
from polyagents.human_eval.storage.views import Assignment, InvitedAnnotator, Progress
from polyagents.human_eval.study import Study

LONGEST = 200  # characters of a name; PostgreSQL keeps unique ones up to some 2,000 bytes


class EvaluationStore:
    """All data of an evaluation of pairs, in one database; `places` are those of a study, if people come for one."""

    def __init__(self, url: str, study: Study | None = None, clock: Clock = lambda: datetime.now(timezone.utc)):
        """Open a store, as `Database` does; `study` is None if all who take part are invited."""
        self.database = Database(url)
        self.name, self.clock = self.database.name, clock
        self.places = StudyPlaces(self.database, study, clock) if study else None

    def close(self) -> None:
        """Close all connections."""
        self.database.close()

    # ---- what is judged --------------------------------------------------------------------------------------------

    def add_conversations(self, conversations: Iterable[Conversation]) -> int:
        """Add the conversations (of `make_conversation`) that are missing; return how many they were."""
        with self.database.atomic_write() as session:
            there = set(session.scalars(select(ConversationRow.name)))
            new = {conversation.name: conversation for conversation in conversations if conversation.name not in there}
            session.add_all(queries.conversation_row(conversation) for conversation in new.values())
        return len(new)

    def add_pairs(self, pairs: Iterable[ConversationPair]) -> int:
        """Add the pairs (of `make_pair`) that are missing, after all others; return how many they were.

        If a conversation or the model of a judged speaker is not known, an InputError says so, and nothing is added.
        """
        with self.database.atomic_write() as session:
            there = set(session.scalars(select(PairRow.name)))
            new = {pair.name: pair for pair in pairs if pair.name not in there}
            models = queries.models_by_conversation(session)
            for side in (side for pair in new.values() for side in pair.sides):
                if side.speaker not in models.get(side.conversation, {}):
                    raise InputError(
                        f"Pairs cannot be added: conversation {side.conversation} is not stored, or no model of its "
                        f"{side.speaker} is known; import it first."
                    )
            session.add_all(queries.pair_row(pair) for pair in new.values())
        return len(new)

    def conversations(self) -> dict[str, Conversation]:
        """Return all conversations by name, in the order in which they came."""
        with self.database.reading() as session:
            rows = session.scalars(select(ConversationRow).order_by(ConversationRow.number))
            return {row.name: queries.conversation_of(row) for row in rows}

    def pairs(self) -> list[ConversationPair]:
        """Return all pairs, checks included, in the order in which they came."""
        with self.database.reading() as session:
            models = queries.models_by_conversation(session)
            # All at once: while an error is handled, a half-read cursor would keep an old state of the database.
            rows = session.scalars(select(PairRow).order_by(PairRow.number)).all()
            return [queries.pair_of(row) for row in rows if queries.pair_models(row, models)]

    # ---- who judges ------------------------------------------------------------------------------------------------

    def invite(self, names: Iterable[str]) -> list[InvitedAnnotator]:
        """Invite annotators of these names, of up to LONGEST characters; who was invited before keeps the token."""
        wanted = list(dict.fromkeys(clean(name).strip() for name in names))
        if not all(0 < len(name) <= LONGEST for name in wanted):
            raise InputError(
                f"An annotator's name is empty or too long; give each a name of up to {LONGEST} characters."
            )
        with self.database.atomic_write() as session:
            rows = {row.name: row for row in session.scalars(select(AnnotatorRow))}
            for name in wanted:
                if name not in rows:
                    rows[name] = AnnotatorRow(name=name, token=queries.new_token())
                    session.add(rows[name])
                    session.flush()  # one by one, so that they stay in order
            return [InvitedAnnotator(name, rows[name].token) for name in wanted]

    def invited(self) -> dict[str, str]:
        """Return name and token of who was invited and is not forgotten, in the order of the invitations."""
        came = select(ParticipantRow.annotator)
        rows = select(AnnotatorRow).where(AnnotatorRow.number.not_in(came)).order_by(AnnotatorRow.number)
        with self.database.reading() as session:
            return {row.name: row.token for row in session.scalars(rows) if not queries.is_forgotten(row.name)}

    def annotator(self, token: str) -> InvitedAnnotator:
        """Return the annotator of a link; an InputError says if it belongs to nobody, or who came for another study."""
        with self.database.reading() as session:
            who = queries.annotator_row(session, token)
            studies = session.scalars(select(ParticipantRow.study).where(ParticipantRow.annotator == who.number))
            if any(not self.places or study != self.places.study.id for study in studies):
                raise InputError("This link belongs to a study that is not open at the moment; ask where you got it.")
            return InvitedAnnotator(who.name, token)

    def organiser(self) -> str:
        """Return the secret part of the organiser's link, which stays the same as long as the store exists."""
        with self.database.atomic_write() as session:
            row = session.scalars(select(OrganiserRow)).first()
            if row is None:
                row = OrganiserRow(token=queries.new_token())
                session.add(row)
            return row.token

    def worker(self, session: Session, token: str) -> AnnotatorRow:
        """Find the annotator of a link who stores something now; see `StudyPlaces.worker`."""
        return self.places.worker(session, token) if self.places else queries.annotator_row(session, token)

    def _study_of(self, session: Session, who: AnnotatorRow) -> Study | None:
        """Return the study that an annotator came for; None for the invited."""
        return self.places.study if self.places and self.places.row(session, who) else None

    # ---- judging ---------------------------------------------------------------------------------------------------

    def next_assignment(self, token: str, question: str = DEFAULT_QUESTION) -> Assignment | None:
        """Return an annotator's next assignment; None when there is nothing left.

        What was shown and not answered comes again, with the same side on the left. Then come the onboarding checks,
        then the pairs with the fewest answers of annotators who passed the checks (`assignments.next_pair`). An answer
        to another question does not answer this one.
        """
        with self.database.atomic_write() as session:
            who = queries.annotator_row(session, token)
            study, row = self._study_of(session, who), assignments.unanswered(session, who, question)
            if row is None:
                pair = assignments.next_pair(session, who, question, study)
                if pair is None:
                    if self.places:  # the study may want less of each person than before
                        assignments.settle(session, who, question, self.places)
                    return None
                row = assignments.assign(session, who, pair)
            answered = session.scalar(select(func.max(AnswerRow.answered)).where(AnswerRow.assignment == row.number))
            if row.shown is None or (answered and answered >= row.shown):  # now for another question
                row.shown = self.clock().isoformat()
            return assignments.assignment_of(session, row, question, study)

    def answer(
        self,
        token: str,
        assignment: int,
        choice: str,
        reason: str = "",
        seconds: float | None = None,
        question: str = DEFAULT_QUESTION,
    ) -> None:
        """Store an answer, left or right; the latest one may be changed, to correct a slip, and older ones may not.

        Args:
            seconds: the time from seeing the pair to the answer; None if it is not known.

        Raises:
            InputError: the assignment is another's or too old, or the choice or seconds are invalid; nothing is stored.
        """
        if choice not in ("left", "right"):
            raise InputError(f"{choice!r} is not a choice; give left or right.")
        if seconds is not None and not (math.isfinite(seconds) and seconds >= 0):
            raise InputError(f"{seconds!r} seconds is not a time; give 0 or more, or none.")
        with self.database.atomic_write() as session:
            who = self.worker(session, token)
            row = queries.own_row(session, AssignmentRow, assignment, who, "Assignment")
            side = row.left if choice == "left" else 1 - row.left
            assignments.store_answer(session, row, side, clean(reason), seconds, clean(question), self.clock())
            if self.places:
                session.flush()
                assignments.settle(session, who, clean(question), self.places)

    def visit(self, token: str, place: int, question: str = DEFAULT_QUESTION) -> Assignment | None:
        """Return an annotator's view of a place (1 for the first pair); None if nothing was shown yet."""
        with self.database.reading() as session:
            who = queries.annotator_row(session, token)
            at = select(AssignmentRow).where(AssignmentRow.annotator == who.number, AssignmentRow.place == place)
            row = session.scalars(at).first()
            study = self._study_of(session, who)
            return None if row is None else assignments.assignment_of(session, row, question, study)

    def latest(self, token: str, question: str = DEFAULT_QUESTION) -> int | None:
        """Return the place of an annotator's latest answer; None before the first."""
        with self.database.reading() as session:
            return assignments.last_place(session, queries.annotator_row(session, token).number, question)

    # ---- what came of it -------------------------------------------------------------------------------------------

    def judgements(self) -> list[Judgement]:
        """Return all answers about pairs that are not checks, in the order in which they were first given."""
        return results.judgements(self.database)

    def progress(self, question: str = DEFAULT_QUESTION) -> Progress:
        """Count the progress with a question, also of each annotator; the checks of all questions say who passed."""
        return results.progress(self.database, question)
