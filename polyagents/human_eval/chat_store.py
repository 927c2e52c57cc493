"""Where chats of people with models are kept: in the store's database, with its annotators and conversations.

    chats = Chats(store, plan)
    chat = chats.current(token)                 # the person's open one, or a new one; None when all are done
    chats.say(token, chat.number, 0, "hi")      # on the disk before a model is asked
    chats.reply(chat.number, 1, "hello")
    chats.rate(token, chat.number, 1, good=True)
    chats.finish(token, chat.number, 4)         # from now on it is a conversation of the store

As in the store, every call is a transaction of its own, and the same call twice is one: a message has a place in its
chat, and there is one message at a place.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from polyagents.errors import InputError
from polyagents.human_eval import queries
from polyagents.human_eval.conversations import clean, make_conversation
from polyagents.human_eval.parlai_format import context_lines
from polyagents.human_eval.records import HIGHEST, HUMAN, LOWEST, Conversation, Message, RatedChat
from polyagents.human_eval.store import Store
from polyagents.human_eval.tables import AnnotatorRow, ChatRow, ConversationRow, MessageRow

MOST = 100  # messages of the person in one chat
RATINGS = range(LOWEST, HIGHEST + 1)  # of the whole
RATE = ("replies", "whole", "both")

Personas = tuple[str, str]
"""What the person is to be, and what the model reads; "" where the task has no personas."""


@dataclass(frozen=True)
class Plan:
    """What people are asked to do.

    Attributes:
        models: their names; who may be talked to.
        personas: of the chats, in turn.
        turns: messages of the person after which a chat may be finished.
        conversations: of each person.
        rate: replies, whole or both.
        seed: draws who of the models comes first to whom.
    """

    models: Sequence[str]
    personas: Sequence[Personas] = (("", ""),)
    turns: int = 6
    conversations: int = 2
    rate: str = "both"
    seed: int = 0

    @property
    def rates_whole(self) -> bool:
        """Whether a chat needs a rating to be finished."""
        return self.rate != "replies"

    @property
    def rates_replies(self) -> bool:
        """Whether replies are called good or bad."""
        return self.rate != "whole"


@dataclass(frozen=True)
class Chat:
    """A chat as it stands.

    Attributes:
        number: tells it from all others.
        place: 1 for the person's first; of `Chats.current`, among those with models of the plan.
        model: not for the person's eyes.
        personas: of the person and of the model.
        messages: in order; the first, third, ... are the person's.
    """

    number: int
    place: int
    model: str
    personas: Personas
    messages: tuple[Message, ...]

    @property
    def waits(self) -> bool:
        """Whether the last message has no reply yet."""
        return len(self.messages) % 2 == 1

    @property
    def replies(self) -> int:
        """How many there are."""
        return len(self.messages) // 2


class Chats:
    """The chats of one plan. Open ones with models that are not in the plan wait for a plan that has them."""

    def __init__(self, store: Store, plan: Plan):
        self.store, self.database, self.plan = store, store.database, plan

    # ---- talking ---------------------------------------------------------------------------------------------------

    def current(self, token: str) -> Chat | None:
        """The chat that a person is in, or a new one; None when there is nothing left to do.

        Raises:
            InputError: the link is not known.
        """
        with self.database.atomic_write() as session:
            who = queries.annotator_row(session, token)
            own = list(session.scalars(select(ChatRow).where(ChatRow.annotator == who.number).order_by(ChatRow.place)))
            planned = [row for row in own if row.model in self.plan.models]
            row = next((row for row in planned if row.ended is None), None)
            if row is None:
                if len(planned) >= self.plan.conversations:
                    return None
                row = self._begin(session, who, own)
                planned.append(row)
            return replace(chat_of(session, row), place=planned.index(row) + 1)

    def _begin(self, session: Session, who: AnnotatorRow, own: Sequence[ChatRow]) -> ChatRow:
        """A new chat: with the model that this person, and of these everybody, has talked to least."""
        everybody = by_model(session)

        def order(model: str) -> tuple[int, int, bytes]:
            drawn = hashlib.sha256(f"{self.plan.seed} {who.token} {len(own)} {model}".encode()).digest()
            return sum(row.model == model for row in own), everybody.get(model, 0), drawn

        personas = self.plan.personas[sum(everybody.values()) % len(self.plan.personas)]
        model = min(self.plan.models, key=order)
        row = ChatRow(annotator=who.number, place=len(own) + 1, model=model, personas=list(map(clean, personas)))
        session.add(row)
        session.flush()
        return row

    def read(self, number: int) -> Chat:
        """A chat that there is."""
        with self.database.reading() as session:
            return chat_of(session, session.get_one(ChatRow, number))

    def say(self, token: str, number: int, place: int, text: str) -> None:
        """Keep a person's message.

        Args:
            token: of the link.
            number: of the chat.
            place: of the message in the chat, 0 for the first.
            text: not empty.

        Raises:
            InputError: the link is not known, the chat is not the person's, has ended or has as many messages as it
                may, or the place is not the next or has another message. Nothing is kept then.
        """
        with self.database.atomic_write() as session:
            row = own_chat(session, token, number)
            said, text = messages_of(session, row), clean(text)
            if place % 2 == 0 and place < len(said) and said[place].text == text:
                return
            check_open(row)
            if place != len(said) or place % 2:
                raise InputError("This conversation has gone on, maybe in another window; reload the page to see it.")
            if place >= 2 * MOST:
                raise InputError(f"A conversation has at most {MOST} messages of yours; finish this one.")
            session.add(MessageRow(chat=row.number, place=place, text=text))

    def reply(self, number: int, place: int, text: str) -> None:
        """Keep what a model replied, unless there is a reply at this place already, or the chat has ended meanwhile."""
        with self.database.atomic_write() as session:
            row = session.get_one(ChatRow, number)
            if row.ended is None and place % 2 and place == len(messages_of(session, row)):
                session.add(MessageRow(chat=number, place=place, text=text))

    # ---- rating ----------------------------------------------------------------------------------------------------

    def rate(self, token: str, number: int, place: int, good: bool) -> None:
        """Keep what a person says of a reply; it may be changed until the chat is finished.

        Raises:
            InputError: the link is not known, the chat is not the person's or has ended, or has no reply there, or the
                plan asks for no such ratings.
        """
        if not self.plan.rates_replies:
            raise InputError("Single replies are not rated here; rate the whole conversation at its end.")
        with self.database.atomic_write() as session:
            row = own_chat(session, token, number)
            at = select(MessageRow).where(MessageRow.chat == row.number, MessageRow.place == place)
            message = session.scalars(at).first() if place % 2 else None
            if message is None:
                raise InputError(f"There is no reply {place} in this conversation; reload the page.")
            if message.good != good:
                check_open(row)
                message.good = good

    def finish(self, token: str, number: int, rating: int | None) -> None:
        """End a chat; it becomes a conversation of the store.

        Args:
            token: of the link.
            number: of the chat.
            rating: of the whole, 1 to 5; None where the plan asks for none.

        Raises:
            InputError: the link is not known, the chat is not the person's, has ended with another rating, or is too
                short, or the rating is missing.
        """
        if not self.plan.rates_whole:
            rating = None
        elif rating not in RATINGS:
            raise InputError("The conversation has no rating yet; choose one of 1 to 5, then finish.")
        with self.database.atomic_write() as session:
            row = own_chat(session, token, number)
            if row.ended is not None and row.rating == rating:
                return
            check_open(row)
            chat = chat_of(session, row)
            if chat.replies < self.plan.turns:
                raise InputError(
                    f"This conversation has {chat.replies} replies; it can be finished after {self.plan.turns}."
                )
            conversation = conversation_of(chat)
            if not session.scalar(select(ConversationRow.number).where(ConversationRow.name == conversation.name)):
                session.add(queries.conversation_row(conversation))
                session.flush()
            row.rating, row.conversation = rating, conversation.name
            row.ended = datetime.now(timezone.utc).isoformat()


# ---- what came of it -----------------------------------------------------------------------------------------------


def rated_chats(store: Store) -> list[RatedChat]:
    """All that are finished, in the order in which they began."""
    with store.database.reading() as session:
        failed = queries.failed_annotators(session)
        messages = every_message(session)
        rows = session.execute(
            select(ChatRow, AnnotatorRow.name)
            .join(AnnotatorRow, AnnotatorRow.number == ChatRow.annotator)
            .where(ChatRow.ended.is_not(None))
            .order_by(ChatRow.number)
        )
        return [
            RatedChat(
                row.number,
                name,
                row.model,
                tuple(messages.get(row.number, ())),
                row.rating,
                row.conversation or "",
                row.annotator not in failed,
            )
            for row, name in rows
        ]


@dataclass(frozen=True)
class PersonProgress:
    """How far one person is: finished and open chats; when the last was finished, UTC in ISO 8601."""

    name: str
    token: str
    finished: int
    open: int
    last: str | None


def open_chats(store: Store) -> dict[str, int]:
    """Model -> chats that are not finished."""
    with store.database.reading() as session:
        return by_model(session, ChatRow.ended.is_(None))


def people(store: Store) -> list[PersonProgress]:
    """Everybody who was invited, in that order."""
    finished = func.count(ChatRow.ended)
    counts = (
        select(AnnotatorRow.name, AnnotatorRow.token, finished, func.count(ChatRow.number), func.max(ChatRow.ended))
        .outerjoin(ChatRow, ChatRow.annotator == AnnotatorRow.number)
        .group_by(AnnotatorRow.number, AnnotatorRow.name, AnnotatorRow.token)
        .order_by(AnnotatorRow.number)
    )
    with store.database.reading() as session:
        return [
            PersonProgress(name, token, ended, every - ended, last)
            for name, token, ended, every, last in session.execute(counts)
        ]


# ---- rows and records ----------------------------------------------------------------------------------------------


def own_chat(session: Session, token: str, number: int) -> ChatRow:
    """A person's own chat.

    Raises:
        InputError: there is none, or it is another's; which of the two is not told.
    """
    who = queries.annotator_row(session, token)
    row = session.get(ChatRow, number) if 0 < number <= queries.LARGEST else None
    if row is None or row.annotator != who.number:
        raise InputError(f"Conversation {number} is none of yours; open your link again.")
    return row


def check_open(row: ChatRow) -> None:
    """Refuse what comes too late."""
    if row.ended is not None:
        raise InputError(f"Conversation {row.place} is finished; open your link again to go on.")


def messages_of(session: Session, row: ChatRow) -> list[Message]:
    """What was said in a chat."""
    rows = session.scalars(select(MessageRow).where(MessageRow.chat == row.number).order_by(MessageRow.place))
    return [Message(one.text, one.good) for one in rows]


def by_model(session: Session, *which: ColumnElement[bool]) -> dict[str, int]:
    """Model -> how many chats."""
    counts = select(ChatRow.model, func.count()).where(*which).group_by(ChatRow.model)
    return {model: count for model, count in session.execute(counts)}  # noqa: C416  a row is no pair to mypy


def every_message(session: Session) -> Mapping[int, list[Message]]:
    """Number of a chat -> what was said in it."""
    found: dict[int, list[Message]] = {}
    for row in session.scalars(select(MessageRow).order_by(MessageRow.chat, MessageRow.place)):
        found.setdefault(row.chat, []).append(Message(row.text, row.good))
    return found


def chat_of(session: Session, row: ChatRow) -> Chat:
    """A chat, as it is stored."""
    own, other = row.personas
    return Chat(row.number, row.place, row.model, (own, other), tuple(messages_of(session, row)))


def conversation_of(chat: Chat) -> Conversation:
    """A chat as a conversation of the store, the person as its first speaker."""
    speakers = (HUMAN, "model")
    turns = [(speakers[place % 2], message.text) for place, message in enumerate(chat.messages)]
    context = context_lines(list(chat.personas)) if any(chat.personas) else []
    return make_conversation(turns, {HUMAN: HUMAN, "model": chat.model}, context, "human_eval chat")
