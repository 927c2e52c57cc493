"""The places of a study: who takes one, how far each person is, and when a place is offered again.

A place is taken while its person has stored something within the study's minutes, and for good once its person has
completed the study. A place is given within a write, in which nobody else writes: so no place has two people.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from polyagents.errors import InputError
from polyagents.human_eval.storage import queries
from polyagents.human_eval.storage.database import Database
from polyagents.human_eval.storage.database_tables import AnnotatorRow, ParticipantRow
from polyagents.human_eval.storage.views import Participant
from polyagents.human_eval.study import COMPLETE, DECLINED, SCREENED_OUT, STAGES, Study

Clock = Callable[[], datetime]


class NoPlace(InputError):
    """The error for a person for whom the study has no place, or no longer."""


class NotNow(InputError):
    """The error for who does what is past, or not due yet: a page that is open in two windows, or a forged form."""


@dataclass(frozen=True)
class Places:
    """The places of a study: `complete` and `open` (taken by people who are under way); the rest are free."""

    total: int
    complete: int
    open: int


class StudyPlaces:
    """The places of one study. Functions without a session are a transaction of their own.

    A person who needs a place, where none is free, gets NoPlace; what the person has stored stays. A link that belongs
    to nobody is an InputError.
    """

    def __init__(self, database: Database, study: Study, clock: Clock):
        self.database, self.study, self.clock = database, study, clock

    def taken(self) -> Places:
        """Count the places that are taken."""
        with self.database.reading() as session:
            return self.count(session)

    def arrive(self, person: str, submission: str, back: str = "", renew: bool = False) -> str:
        """Return the token of a person whom a platform sends; who comes for the first time takes a place.

        A submission of another person's is an InputError, as is another one than before, unless `renew`: then it is
        this person's from now on, since MTurk gives the next worker the assignment that one has returned. Who has
        completed the study keeps it.
        """
        of_study = select(ParticipantRow).where(ParticipantRow.study == self.study.id)
        with self.database.atomic_write() as session:
            row = session.scalars(of_study.where(ParticipantRow.person == person)).first()
            other = session.scalars(of_study.where(ParticipantRow.session == submission)).first()
            other = None if other is row else other
            is_returned = renew and other is not None and other.stage != COMPLETE
            if (other and not is_returned) or (row and row.session != submission and not renew):
                raise InputError(
                    "This submission does not belong to you; open the study from the platform's page again."
                )
            if other:
                other.session, other.back = None, ""
                other.until = (self.clock() - timedelta(seconds=1)).isoformat()  # the place is free, too
                session.flush()  # no two may have it
            if row is None:
                self.check_free(session)
                who, now = queries.new_person(session), self.clock()
                row = ParticipantRow(annotator=who.number, study=self.study.id, person=person)
                row.stage, row.arrived, row.until = self.study.stage(STAGES[0]), now.isoformat(), self.later(now)
                session.add(row)
            row.session, row.back = submission, back
            return session.get_one(AnnotatorRow, row.annotator).token

    def participant(self, token: str) -> Participant | None:
        """Return how far a person is, who gets a new place if the old one was offered again; None for the invited."""
        with self.database.atomic_write() as session:
            row = self.row(session, queries.annotator_row(session, token))
            if row is None:
                return None
            self.resume(session, row)
            return Participant(self.stage(row), row.session or "", row.back)

    def advance(self, token: str, stage: str, accepted: bool) -> None:
        """Store that a person agreed or answered as required, or did not (`accepted`); a past stage changes nothing."""
        with self.database.atomic_write() as session:
            row = self.row(session, queries.annotator_row(session, token))
            if row is None:
                raise InputError("There is nothing to agree to here; open your link again.")
            if self.stage(row) != stage or stage == "work":
                return
            self.resume(session, row)
            now = self.clock()
            row.until = self.later(now)
            if not accepted:
                self.end(row, DECLINED if stage == "consent" else SCREENED_OUT)
                return
            if stage == "consent":
                row.consent, row.consented = self.study.consent, now.isoformat()
            row.stage = self.study.stage(STAGES[STAGES.index(stage) + 1])

    # ---- within a transaction --------------------------------------------------------------------------------------

    def row(self, session: Session, who: AnnotatorRow) -> ParticipantRow | None:
        """Find a person's row; None for one who was invited, or came for another study."""
        own = select(ParticipantRow).where(
            ParticipantRow.annotator == who.number, ParticipantRow.study == self.study.id
        )
        return session.scalars(own).first()

    def worker(self, session: Session, token: str) -> AnnotatorRow:
        """Find the annotator of a link who stores something now, which keeps the place; NotNow if work is not due."""
        who = queries.annotator_row(session, token)
        row = self.row(session, who)
        if row is not None:
            if self.stage(row) != "work":
                raise NotNow("This is not what comes next; continue where you are.")
            self.resume(session, row)
            row.until = self.later(self.clock())
        return who

    def count(self, session: Session) -> Places:
        """Count the places that are taken."""
        open_places = ParticipantRow.stage.in_(STAGES) & (ParticipantRow.until >= self.clock().isoformat())
        complete = ParticipantRow.stage == COMPLETE
        own = select(func.count()).select_from(ParticipantRow).where(ParticipantRow.study == self.study.id)
        found = [session.scalar(own.where(which)) or 0 for which in (complete, open_places)]
        return Places(self.study.places, *found)

    def check_free(self, session: Session) -> None:
        """Refuse a person if no place is free."""
        places = self.count(session)
        if places.complete >= places.total:
            raise NoPlace("This study is complete: nobody is needed any more. Thank you for your interest!")
        if places.complete + places.open >= places.total:
            raise NoPlace("All places of this study are taken at the moment. One may become free: come back later.")

    def resume(self, session: Session, row: ParticipantRow) -> None:
        """Give a person whose place was offered again another one."""
        now = self.clock()
        if row.stage in STAGES and row.until < now.isoformat():
            self.check_free(session)
            row.until = self.later(now)

    def later(self, now: datetime) -> str:
        """Return when the place of a person who stores something now is offered again."""
        return (now + timedelta(minutes=self.study.minutes)).isoformat()

    def stage(self, row: ParticipantRow) -> str:
        """Return the stage of a person, or how it ended."""
        return self.study.stage(row.stage) if row.stage in STAGES else row.stage

    def end(self, row: ParticipantRow, how: str) -> None:
        """End a person's part in the study."""
        row.stage, row.ended = how, self.clock().isoformat()
