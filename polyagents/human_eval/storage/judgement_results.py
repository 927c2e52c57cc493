"""The results of judging: every judgement, and everybody's progress.

Every function works within the transaction of the session that it is given.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from polyagents.human_eval.records import Judgement
from polyagents.human_eval.storage.database_tables import AnnotatorRow, AnswerRow, AssignmentRow, PairRow
from polyagents.human_eval.storage.queries import (
    SpeakerModels,
    failed_annotators,
    models_by_conversation,
    pair_models,
    words_by_conversation,
)
from polyagents.human_eval.storage.views import AnnotatorProgress, Progress

JoinedAnswer = tuple[AnswerRow, AssignmentRow, AnnotatorRow, PairRow]
"""An answer and what it belongs to."""


def every_answer(session: Session) -> Iterator[JoinedAnswer]:
    """Read all answers, including those to checks, in the order in which they were first given."""
    rows = (
        select(AnswerRow, AssignmentRow, AnnotatorRow, PairRow)
        .join(AssignmentRow, AssignmentRow.number == AnswerRow.assignment)
        .join(AnnotatorRow, AnnotatorRow.number == AssignmentRow.annotator)
        .join(PairRow, PairRow.number == AssignmentRow.pair)
        .order_by(AnswerRow.number)
    )
    return iter(session.execute(rows))


def judgements(session: Session) -> list[Judgement]:
    """Return all answers about pairs that are not checks, in the order in which they were first given."""
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


def progress(session: Session, question: str) -> Progress:
    """Count the progress of the evaluation of a question, and of each annotator."""
    failed, models = failed_annotators(session), models_by_conversation(session)
    rows = list(every_answer(session))
    pairs = list(session.scalars(select(PairRow)))
    real = [pair for pair in pairs if pair.right is None]
    valid = [
        pair
        for answer, assignment, _, pair in rows
        if answer.question == question and pair.right is None and assignment.annotator not in failed
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
        annotators=[annotator_progress(row, rows, row.number not in failed, question) for row in annotators],
    )


def matchup(row: PairRow, models: SpeakerModels) -> tuple[str, str]:
    """Return the models of a pair's sides in alphabetical order."""
    first, second = sorted(pair_models(row, models))
    return first, second


def annotator_progress(
    who: AnnotatorRow, every: Sequence[JoinedAnswer], passed: bool, question: str
) -> AnnotatorProgress:
    """Count one annotator's progress with a question; `every` has the answers to all questions."""
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
