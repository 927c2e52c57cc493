"""Where human evaluation is kept: conversations, pairs, annotators, what they were shown, what they answered.

What the annotation page needs:

    store = Store("human_eval.db")              # or postgresql://...; one per process, shared by its threads
    store.annotator(token)                      # the annotator of a link; InputError for an unknown one
    shown = store.next_assignment(token)        # left and right conversation; None when all pairs are judged
    store.answer(token, shown.number, "left", "it asks back", 31.5)
    store.progress()                            # for the organiser, whose link has store.organiser()
    store.judgements()                          # for the report

Every call is a transaction of its own. A call that has returned is on the disk, and a process that dies in the middle
of one leaves nothing behind. All of them may be called from any number of threads and processes at once.
"""

import math
import secrets
from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timezone
from typing import Literal

from sqlalchemy import select

from polyagents.errors import InputError
from polyagents.human_eval import queries
from polyagents.human_eval.conversations import clean
from polyagents.human_eval.database import Database
from polyagents.human_eval.records import Conversation, Judgement, Pair
from polyagents.human_eval.tables import AnnotatorRow, AnswerRow, Base, ConversationRow, OrganiserRow, PairRow
from polyagents.human_eval.views import Annotator, Assignment, Progress, Visit

QUESTION = "Who would you prefer to talk to for a long conversation?"  # ParlAI's default: "engaging"
LONGEST = 200  # characters of a name; PostgreSQL keeps unique ones up to some 2,000 bytes


class Store:
    """All of it, in one database."""

    def __init__(self, url: str):
        """Open a store, and make it where it is missing.

        Args:
            url: the file of an SQLite database, or `postgresql://USER:PASSWORD@HOST/NAME`.

        Raises:
            InputError: it cannot be opened.
        """
        self.database = Database(url, Base)
        self.name = self.database.name

    def close(self) -> None:
        """Close its connections."""
        self.database.close()

    # ---- what is judged --------------------------------------------------------------------------------------------

    def add_conversations(self, conversations: Iterable[Conversation]) -> int:
        """Add those that are not there yet, made by `make_conversation`; returns how many that were."""
        with self.database.atomic_write() as session:
            there = set(session.scalars(select(ConversationRow.name)))
            new = {conversation.name: conversation for conversation in conversations if conversation.name not in there}
            session.add_all(queries.conversation_row(conversation) for conversation in new.values())
        return len(new)

    def add_pairs(self, pairs: Iterable[Pair]) -> int:
        """Add those that are not there yet, made by `make_pair`, after all others; returns how many that were.

        Raises:
            InputError: a conversation is missing, or its judged speaker's model is not known; nothing is added.
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
        """All of them, by name, in the order in which they came."""
        with self.database.reading() as session:
            rows = session.scalars(select(ConversationRow).order_by(ConversationRow.number))
            return {row.name: queries.conversation_of(row) for row in rows}

    def pairs(self) -> list[Pair]:
        """All of them, checks included, in the order in which they came."""
        with self.database.reading() as session:
            return [queries.pair_of(row) for row in session.scalars(select(PairRow).order_by(PairRow.number))]

    # ---- who judges ------------------------------------------------------------------------------------------------

    def invite(self, names: Iterable[str]) -> list[Annotator]:
        """Annotators of these names; who was invited before keeps the token.

        Raises:
            InputError: a name is empty, or too long.
        """
        wanted = list(dict.fromkeys(clean(name).strip() for name in names))
        if not all(0 < len(name) <= LONGEST for name in wanted):
            raise InputError(
                f"An annotator's name is empty or too long; give each a name of up to {LONGEST} characters."
            )
        with self.database.atomic_write() as session:
            rows = {row.name: row for row in session.scalars(select(AnnotatorRow))}
            for name in wanted:
                if name not in rows:
                    rows[name] = AnnotatorRow(name=name, token=new_token())
                    session.add(rows[name])
                    session.flush()  # one by one, so that they stay in order
            return [Annotator(name, rows[name].token) for name in wanted]

    def annotator(self, token: str) -> Annotator:
        """Whose link it is.

        Raises:
            InputError: nobody's.
        """
        with self.database.reading() as session:
            return Annotator(queries.annotator_row(session, token).name, token)

    def organiser(self) -> str:
        """The secret part of the organiser's link: the same as long as the store is."""
        with self.database.atomic_write() as session:
            row = session.scalars(select(OrganiserRow)).first()
            if row is None:
                row = OrganiserRow(token=new_token())
                session.add(row)
            return row.token

    # ---- judging ---------------------------------------------------------------------------------------------------

    def next_assignment(self, token: str, question: str = QUESTION) -> Assignment | None:
        """What an annotator is to judge now; None when there is nothing left.

        What was shown and not answered comes again, the same side on the left. Then come the onboarding checks, then
        the pairs with the fewest answers of annotators who passed the checks; of these one of whose two conversations
        the annotator has read the fewest, and of these the one that is before the fewest others now.

        Args:
            token: of the link.
            question: that is asked; an answer to another question is none to this one.

        Raises:
            InputError: the link is not known.
        """
        with self.database.atomic_write() as session:
            who = queries.annotator_row(session, token)
            row = queries.open_assignment(session, who, question)
            if row is None:
                pair = queries.next_pair(session, who, question)
                if pair is None:
                    return None
                row = queries.assign(session, who, pair)
            return queries.assignment_of(session, row)

    def answer(
        self,
        token: str,
        assignment: int,
        choice: Literal["left", "right"],
        reason: str = "",
        seconds: float | None = None,
        question: str = QUESTION,
    ) -> None:
        """Keep an answer. The same one twice is one.

        The annotator's latest answer may be changed, so that a slip can be patched; older ones may not.

        Args:
            token: of the link.
            assignment: its number.
            choice: the side that was preferred.
            reason: in the annotator's words; may be "".
            seconds: from seeing the pair to the answer; None where it is not known.
            question: that was asked.

        Raises:
            InputError: the link is not known, the assignment is not the annotator's, it has been answered otherwise
                before a later one, or the choice or seconds are none. Nothing is kept then.
        """
        if choice not in ("left", "right"):
            raise InputError(f"{choice!r} is no choice; give left or right.")
        if seconds is not None and not (math.isfinite(seconds) and seconds >= 0):
            raise InputError(f"{seconds!r} seconds is no time; give 0 or more, or none.")
        with self.database.atomic_write() as session:
            row = queries.assignment_row(session, queries.annotator_row(session, token), assignment)
            side, reason, question = row.left if choice == "left" else 1 - row.left, clean(reason), clean(question)
            given = queries.given_answer(session, row, question)
            if given is None:
                given = AnswerRow(assignment=row.number, question=question)
                session.add(given)
            elif (given.choice, given.reason) == (side, reason):
                return
            elif (queries.last_place(session, row.annotator, question) or 0) > row.place:
                raise InputError(
                    f"Pair {row.place} has its answer, and so has a later one; only the latest can be changed."
                )
            given.choice, given.reason, given.seconds = side, reason, seconds
            given.answered = datetime.now(timezone.utc).isoformat()

    def visit(self, token: str, place: int, question: str = QUESTION) -> Visit | None:
        """What an annotator was shown at a place (1 for the first pair); None where nothing was shown yet.

        Raises:
            InputError: the link is not known.
        """
        with self.database.reading() as session:
            who = queries.annotator_row(session, token)
            row = queries.assignment_at(session, who, place)
            if row is None:
                return None
            given, last = (
                queries.given_answer(session, row, question),
                queries.last_place(session, who.number, question),
            )
            assignment = queries.assignment_of(session, row)
            if given is None:
                return Visit(assignment, "", "", last)
            return Visit(assignment, "left" if given.choice == row.left else "right", given.reason, last)

    def latest(self, token: str, question: str = QUESTION) -> int | None:
        """The place of an annotator's latest answer; None before the first.

        Raises:
            InputError: the link is not known.
        """
        with self.database.reading() as session:
            return queries.last_place(session, queries.annotator_row(session, token).number, question)

    # ---- what came of it -------------------------------------------------------------------------------------------

    def judgements(self) -> list[Judgement]:
        """All answers about pairs that are no checks, in the order in which they were first given."""
        with self.database.reading() as session:
            failed, models = queries.failed_annotators(session), queries.models_by_conversation(session)
            found = []
            for answer, assignment, annotator, pair in queries.every_answer(session):
                if pair.right is None:
                    both = queries.pair_models(pair, models)
                    found.append(
                        Judgement(
                            annotator=annotator.name,
                            pair=pair.name,
                            models=both,
                            winner=both[answer.choice],
                            question=answer.question,
                            reason=answer.reason,
                            seconds=answer.seconds,
                            passed=assignment.annotator not in failed,
                        )
                    )
            return found

    def progress(self, question: str = QUESTION) -> Progress:
        """How far the evaluation is, and each annotator.

        Args:
            question: of which the judgements are counted; whether somebody passed the checks is told from all.
        """
        with self.database.reading() as session:
            failed, models = queries.failed_annotators(session), queries.models_by_conversation(session)
            rows = list(queries.every_answer(session))
            pairs = list(session.scalars(select(PairRow)))
            real = [pair for pair in pairs if pair.right is None]
            valid = [
                row
                for row in rows
                if row[0].question == question and row[3].right is None and row[1].annotator not in failed
            ]
            matchups = Counter({queries.matchup(pair, models): 0 for pair in real})
            matchups.update(queries.matchup(pair, models) for *_, pair in valid)
            annotators = session.scalars(select(AnnotatorRow).order_by(AnnotatorRow.number))
            return Progress(
                conversations=len(models),
                pairs=len(real),
                checks=len(pairs) - len(real),
                judged=len({pair.number for *_, pair in valid}),
                matchups=dict(sorted(matchups.items())),
                annotators=[
                    queries.annotator_progress(row, rows, row.number not in failed, question) for row in annotators
                ],
            )


def new_token() -> str:
    """The secret part of a link: 128 bits."""
    return secrets.token_urlsafe(16)
