"""The results of an evaluation so far: every judgement, every finished chat, and everybody's progress."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from polyagents.human_eval.records import Judgement, RatedChat
from polyagents.human_eval.storage.database import Database
from polyagents.human_eval.storage.database_tables import (
    AnnotatorRow,
    AnswerRow,
    AssignmentRow,
    ChatRow,
    MessageRow,
    PairRow,
)
from polyagents.human_eval.storage.queries import (
    SpeakerModels,
    failed_annotators,
    messages_by_chat,
    models_by_conversation,
    pair_models,
    words_by_conversation,
)
from polyagents.human_eval.storage.views import AnnotatorProgress, ChatterProgress, Progress

# ---- judgements ----------------------------------------------------------------------------------------------------


def every_answer(session: Session) -> Iterator[tuple[AnswerRow, AssignmentRow, AnnotatorRow, PairRow]]:
    """Read all answers, including those to checks, with what they belong to, in the order in which they came."""
    rows = select(AnswerRow, AssignmentRow, AnnotatorRow, PairRow).select_from(AnswerRow)
    rows = rows.join(AssignmentRow).join(AnnotatorRow).join(PairRow)
    return iter(session.execute(rows.order_by(AnswerRow.number)))


def answers_by_annotator(session: Session) -> Mapping[int, list[tuple[AnswerRow, PairRow]]]:
    """Read all answers, including those to checks, by the number of their annotator; none for who has given none."""
    found = defaultdict[int, list[tuple[AnswerRow, PairRow]]](list)
    for answer, assignment, _, pair in every_answer(session):
        found[assignment.annotator].append((answer, pair))
    return found


def judgements(database: Database) -> list[Judgement]:
    """Return all answers about pairs that are not checks, in the order in which they were first given."""
    with database.reading() as session:
        failed, models = failed_annotators(session), models_by_conversation(session)
        found, words = [], words_by_conversation(session)
        for answer, assignment, annotator, pair in every_answer(session):
            if pair.right is None:
                both = pair_models(pair, models)
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
                        started=answer.started or "",
                        ended=answer.answered,
                        words=words[pair.conversation_0] + words[pair.conversation_1],
                    )
                )
        return found


def progress(database: Database, question: str) -> Progress:
    """Count the progress of the evaluation of a question, and of each annotator."""
    with database.reading() as session:
        failed, models = failed_annotators(session), models_by_conversation(session)
        pairs, own = list(session.scalars(select(PairRow))), answers_by_annotator(session)
        real = [pair for pair in pairs if pair.right is None]
        valid = [
            pair
            for annotator in own.keys() - failed
            for answer, pair in own[annotator]
            if answer.question == question and pair.right is None
        ]
        matchups = Counter({matchup(pair, models): 0 for pair in real})
        matchups.update(matchup(pair, models) for pair in valid)
        annotators = session.scalars(select(AnnotatorRow).order_by(AnnotatorRow.number))
        return Progress(
            conversations=len(models),
            pairs=len(real),
            checks=len(pairs) - len(real),
            judged=len({pair.number for pair in valid}),
            matchups=dict(sorted(matchups.items())),
            annotators=[
                annotator_progress(row, own[row.number], row.number not in failed, question) for row in annotators
            ],
        )


def matchup(row: PairRow, models: SpeakerModels) -> tuple[str, str]:
    """Return the models of a pair's sides in alphabetical order."""
    first, second = sorted(pair_models(row, models))
    return first, second


def annotator_progress(
    who: AnnotatorRow, own: Sequence[tuple[AnswerRow, PairRow]], passed: bool, question: str | None = None
) -> AnnotatorProgress:
    """Count one annotator's progress with a question, or with all; `own` has the answers to all questions."""
    checks = [answer.choice == pair.right for answer, pair in own if pair.right is not None]
    return AnnotatorProgress(
        name=who.name,
        token=who.token,
        judged=sum(pair.right is None for answer, pair in own if question in (None, answer.question)),
        checks=len(checks),
        checks_right=sum(checks),
        passed=passed,
        last=max((answer.answered for answer, _ in own), default=None),
    )


# ---- chats ---------------------------------------------------------------------------------------------------------


def rated_chats(database: Database) -> list[RatedChat]:
    """Return all finished chats, in the order in which they began."""
    finished = select(ChatRow, AnnotatorRow).join(AnnotatorRow).where(ChatRow.ended.is_not(None))
    with database.reading() as session:
        failed = failed_annotators(session)
        said = messages_by_chat(session.scalars(select(MessageRow).order_by(MessageRow.chat, MessageRow.place)))
        return [
            RatedChat(
                number=row.number,
                annotator=who.name,
                model=row.model,
                messages=tuple(said.get(row.number, ())),
                rating=row.rating,
                conversation=row.conversation or "",
                passed=row.annotator not in failed,
            )
            for row, who in session.execute(finished.order_by(ChatRow.number))
        ]


def open_chats(database: Database) -> dict[str, int]:
    """Count the chats of each model that are not finished."""
    with database.reading() as session:
        return chats_by_model(session, ChatRow.ended.is_(None))


def chats_by_model(session: Session, *which: ColumnElement[bool]) -> dict[str, int]:
    """Count the chats of each model; `which` selects some of them."""
    counts = select(ChatRow.model, func.count()).where(*which).group_by(ChatRow.model)
    return dict(session.execute(counts).all())


def chatters(database: Database) -> list[ChatterProgress]:
    """Return the progress in chats of everybody who was invited, in the order of the invitations."""
    counts = (
        select(AnnotatorRow, func.count(ChatRow.ended), func.count(ChatRow.number), func.max(ChatRow.ended))
        .outerjoin(ChatRow)
        .group_by(AnnotatorRow.number)
        .order_by(AnnotatorRow.number)
    )
    with database.reading() as session:
        return [
            ChatterProgress(who.name, who.token, finished, every - finished, last)
            for who, finished, every, last in session.execute(counts)
        ]
