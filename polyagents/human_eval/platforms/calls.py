"""Calls that change something on a platform: each is stored before it is sent, so that it is carried out once."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import select

from polyagents.errors import InputError
from polyagents.human_eval.storage.database_tables import ParticipantRow, PaymentRow
from polyagents.human_eval.storage.evaluation_store import EvaluationStore
from polyagents.human_eval.study import REJECTED

LEASE = timedelta(minutes=10)  # in which a call that must not be sent twice belongs to the process that began it


class AnswerLost(InputError):
    """The error for a request that may have been carried out."""


@dataclass(frozen=True)
class Call:
    """Something that a platform is asked to do once."""

    key: str  # what must not happen twice; it names no person by the platform's name
    kind: str
    shown: str  # the request as it is printed
    send: Callable[[str], str]  # sends it, with what `prepare` returned; returns the platform's name of what was made
    look_up: Callable[[str], bool] = lambda _: False  # tells, with the same, whether the platform has carried it out
    repeatable: bool = True  # whether the platform carries it out once however often it is sent
    # Makes what the call needs, and costs nothing if it is done twice. None for a token, which is stored before
    # anything is sent, so that two processes that send it at once send the same one.
    prepare: Callable[[], str] | None = None
    participant: int | None = None
    amount: int | None = None


def perform(store: EvaluationStore, call: Call) -> tuple[str, str]:
    """Carry out a call unless that has been done; return how it ended, and the platform's name of what was made.

    It ends as "sent", as "done before", or as "unknown": it may have been carried out, which only the platform knows
    later. It is then looked up with the next try, and not sent again unless it is repeatable. If the platform refuses
    it, with an InputError, it is forgotten.
    """
    now, own = store.clock(), select(PaymentRow).where(PaymentRow.key == call.key)
    with store.database.atomic_write() as session:
        row = session.scalars(own).first()
        if row is not None and row.done and call.kind != "stop":  # who recruits again must be able to stop again
            return "done before", row.platform_id or ""
        is_first = row is None
        if row is None:
            row = PaymentRow(key=call.key, participant=call.participant, kind=call.kind, amount=call.amount)
            row.platform_id = None if call.prepare else secrets.token_hex(16)
            session.add(row)
        elif not call.repeatable and row.sent > (now - LEASE).isoformat():
            return "unknown", ""
        row.sent = now.isoformat()
        prepared = row.platform_id
    if not is_first and prepared is not None:
        if call.look_up(prepared):
            return "done before", done(store, call, prepared)
        if not call.repeatable:
            return "unknown", ""
    try:
        if prepared is None and call.prepare:
            prepared = call.prepare()
            with store.database.atomic_write() as session:
                session.scalars(own).one().platform_id = prepared
        made = call.send(prepared or "")
    except AnswerLost:
        return "unknown", ""
    except InputError:
        with store.database.atomic_write() as session:
            session.delete(session.scalars(own).one())
        raise
    return "sent", done(store, call, made)


def done(store: EvaluationStore, call: Call, made: str) -> str:
    """Store that a call was carried out; who is rejected leaves a place. Return what was made."""
    with store.database.atomic_write() as session:
        row = session.scalars(select(PaymentRow).where(PaymentRow.key == call.key)).one()
        row.done, row.platform_id = store.clock().isoformat(), made
        if call.kind == "reject":
            session.get_one(ParticipantRow, call.participant).stage = REJECTED
    return made
