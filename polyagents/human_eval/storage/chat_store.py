"""The store of chats of people with models, in the evaluation store's database.

    chats = ChatStore(store, plan)
    chat = chats.current(token)                 # the person's open one, or a new one; None when all are done
    chats.say(token, chat.number, 0, "hi")      # on the disk before a model is asked
    chats.reply(chat.number, 1, "hello")
    chats.rate(token, chat.number, 1, good=True)
    chats.finish(token, chat.number, 4)         # from now on it is a stored conversation, too

As in the evaluation store, every call is a transaction of its own, and the same call twice changes nothing more: a
message has a place in its chat, and there is one message at a place. Nothing is stored with an InputError: the link is
not known, the chat is not the person's or has ended, or what else a function names.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from polyagents.console import number_of
from polyagents.errors import InputError
from polyagents.human_eval.conversations import clean, context_lines, make_conversation
from polyagents.human_eval.records import HIGHEST, HUMAN, LOWEST, ChatMessage
from polyagents.human_eval.storage import queries
from polyagents.human_eval.storage.database_tables import AnnotatorRow, ChatRow, ConversationRow, MessageRow
from polyagents.human_eval.storage.evaluation_store import EvaluationStore
from polyagents.human_eval.storage.results import chats_by_model
from polyagents.human_eval.storage.views import MOST, ChatPlan, ChatState
from polyagents.human_eval.study import COMPLETE

RATINGS = range(LOWEST, HIGHEST + 1)  # of the whole


class ChatStore:
    """The chats of one plan. An open chat with a model that is not in the plan waits for a plan that has the model."""

    def __init__(self, store: EvaluationStore, plan: ChatPlan):
        self.store, self.database, self.plan = store, store.database, plan

    # ---- talking ---------------------------------------------------------------------------------------------------

    def current(self, token: str) -> ChatState | None:
        """Return the chat that a person is in, or a new one; None when there is nothing left to do."""
        with self.database.atomic_write() as session:
            who = queries.annotator_row(session, token)
            own = list(session.scalars(select(ChatRow).where(ChatRow.annotator == who.number).order_by(ChatRow.place)))
            planned = [row for row in own if row.model in self.plan.models]
            row = next((row for row in planned if row.ended is None), None)
            if row is None:
                if len(planned) >= self.plan.conversations:
                    self._settle(session, who)  # the study may want less of each person than before
                    return None
                row = self._begin(session, who, own)
                planned.append(row)
            return replace(chat_of(session, row), place=planned.index(row) + 1)

    def _begin(self, session: Session, who: AnnotatorRow, own: Sequence[ChatRow]) -> ChatRow:
        """Begin a chat; until something is said, another model may take its place."""
        chats = sum(chats_by_model(session).values())
        personas = self.plan.personas[chats % len(self.plan.personas)]
        model = self._model(session, who, own)
        row = ChatRow(annotator=who.number, place=len(own) + 1, model=model, personas=list(map(clean, personas)))
        session.add(row)
        session.flush()
        return row

    def _model(self, session: Session, who: AnnotatorRow, own: Sequence[ChatRow]) -> str:
        """Choose the model that this person, and of several such that everybody, has talked to least.

        A chat in which nobody has said anything does not count: its link was only opened.
        """
        everybody = chats_by_model(session, ChatRow.number.in_(select(MessageRow.chat)))

        def order(model: str) -> tuple[int, int, bytes]:
            drawn = hashlib.sha256(f"{self.plan.seed} {who.token} {len(own)} {model}".encode()).digest()
            return sum(row.model == model for row in own), everybody.get(model, 0), drawn

        return min(self.plan.models, key=order)

    def read(self, number: int) -> ChatState:
        """Read a chat that exists."""
        with self.database.reading() as session:
            return chat_of(session, session.get_one(ChatRow, number))

    def say(self, token: str, number: int, place: int, text: str) -> None:
        """Store a person's message at a place, 0 for the first; an InputError says if it cannot be the next message."""
        with self.database.atomic_write() as session:
            who = self.store.worker(session, token)
            row = queries.own_row(session, ChatRow, number, who, "Conversation")
            said, text = messages_of(session, row), clean(text)
            if place % 2 == 0 and place < len(said) and said[place].text == text:
                return
            check_open(row)
            if place != len(said) or place % 2:
                raise InputError("This conversation has continued, maybe in another window; reload the page to see it.")
            if place >= 2 * MOST:
                raise InputError(f"A conversation has at most {MOST} messages of yours; finish this one.")
            if not said:  # others may have begun to talk since the link was opened
                earlier = select(ChatRow).where(ChatRow.annotator == who.number, ChatRow.place < row.place)
                row.model = self._model(session, who, session.scalars(earlier).all())
            session.add(MessageRow(chat=row.number, place=place, text=text))

    def reply(self, number: int, place: int, text: str) -> None:
        """Store a model's reply, unless there is one at this place or the chat has ended in the meantime."""
        with self.database.atomic_write() as session:
            row = session.get_one(ChatRow, number)
            if row.ended is None and place % 2 and place == len(messages_of(session, row)):
                session.add(MessageRow(chat=number, place=place, text=text))

    # ---- rating ----------------------------------------------------------------------------------------------------

    def rate(self, token: str, number: int, place: int, good: bool | None, problems: Sequence[str] = ()) -> None:
        """Store the rating of a reply, which may be changed until the chat is finished.

        Args:
            good: None if only problems are ticked.

        Raises:
            InputError: there is no such reply, or single replies are not rated.
        """
        if not self.plan.rates_replies:
            raise InputError("Single replies are not rated here; rate the whole conversation at its end.")
        with self.database.atomic_write() as session:
            row = queries.own_row(session, ChatRow, number, self.store.worker(session, token), "Conversation")
            at = select(MessageRow).where(MessageRow.chat == row.number, MessageRow.place == place)
            message = session.scalars(at).first() if place % 2 else None
            if message is None:
                raise InputError(f"There is no reply {place} in this conversation; reload the page.")
            if (message.good, message.problems or []) != (good, [*problems]):
                check_open(row)
                message.good, message.problems = good, [*problems]

    def finish(self, token: str, number: int, rating: int | None) -> None:
        """End a chat, which becomes a stored conversation, with a rating of 1 to 5; None if the plan asks for none.

        An InputError says if the chat has ended with another rating, or is too short, or the rating is missing.
        """
        if not self.plan.rates_whole:
            rating = None
        elif rating not in RATINGS:
            raise InputError("The conversation has no rating yet; choose one of 1 to 5, then finish.")
        with self.database.atomic_write() as session:
            who = self.store.worker(session, token)
            row = queries.own_row(session, ChatRow, number, who, "Conversation")
            if row.ended is not None and row.rating == rating:
                return
            check_open(row)
            chat = chat_of(session, row)
            if chat.replies < self.plan.turns:
                raise InputError(
                    f"This conversation has {number_of(chat.replies, 'reply', 'replies')}; it can be finished after "
                    f"{self.plan.turns}."
                )
            speakers = (HUMAN, "model")  # the person is the first
            turns = [(speakers[place % 2], message.text) for place, message in enumerate(chat.messages)]
            models = {HUMAN: HUMAN, "model": chat.model}
            conversation = make_conversation(turns, models, context_lines(chat.personas), "human_eval chat")
            if not session.scalar(select(ConversationRow.number).where(ConversationRow.name == conversation.name)):
                session.add(queries.conversation_row(conversation))
                session.flush()
            row.rating, row.conversation = rating, conversation.name
            row.ended = self.store.clock().isoformat()
            session.flush()
            self._settle(session, who)

    def _settle(self, session: Session, who: AnnotatorRow) -> None:
        """End a person's part in a study if all chats are finished."""
        places = self.store.places
        row = places.row(session, who) if places else None
        if not places or row is None or places.stage(row) != "work":
            return
        own = (ChatRow.annotator == who.number, ChatRow.model.in_(self.plan.models))
        if (session.scalar(select(func.count(ChatRow.ended)).where(*own)) or 0) >= self.plan.conversations:
            places.end(row, COMPLETE)


# ---- rows and records ----------------------------------------------------------------------------------------------


def check_open(row: ChatRow) -> None:
    """Refuse a change of a chat that is finished."""
    if row.ended is not None:
        raise InputError(f"Conversation {row.place} is finished; open your link again to continue.")


def messages_of(session: Session, row: ChatRow) -> list[ChatMessage]:
    """Return the messages of a chat."""
    rows = session.scalars(select(MessageRow).where(MessageRow.chat == row.number).order_by(MessageRow.place))
    return queries.messages_by_chat(rows).get(row.number, [])


def chat_of(session: Session, row: ChatRow) -> ChatState:
    """Read a chat from its row."""
    own, other = row.personas
    return ChatState(row.number, row.place, row.model, (own, other), tuple(messages_of(session, row)))
