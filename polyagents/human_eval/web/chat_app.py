"""The application in which people talk with models, blind, and rate them."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from polyagents.errors import InputError
from polyagents.human_eval.chat_replies import ChatModels
from polyagents.human_eval.records import ANNOTATE_PATH, OWN_PERSONA
from polyagents.human_eval.statistics import display
from polyagents.human_eval.statistics.ratings import ratings
from polyagents.human_eval.storage.chat_store import RATINGS, ChatStore
from polyagents.human_eval.storage.results import chatters, open_chats, rated_chats
from polyagents.human_eval.storage.views import MOST, ChatState
from polyagents.human_eval.web.forms import FIELDS, mark_of, text_field, whole
from polyagents.human_eval.web.shared_pages import application, form_route, known_token, organiser_route, page
from polyagents.human_eval.web.study_pages import StudyPages, Verify
from polyagents.human_eval.web.wording import Wording
from polyagents.serving.guard import Refused
from polyagents.serving.limits import WAITING
from polyagents.serving.worker_thread import WorkerThread, contained

GOOD = {"good": True, "bad": False, "": None}
LONGEST = 2_000  # characters of a message
BUSY = "Too many people wait for replies. Your message is kept: open this page again in a while."


def create_app(
    chats: ChatStore, models: ChatModels, organiser: str, texts: Wording | None = None, verify: Verify | None = None
) -> ASGIApp:
    """Make an ASGI application for the chats of a plan."""
    pages, person = ChatPages(chats, models, verify), ANNOTATE_PATH + "{token}"
    most = FIELDS + len(chats.plan.problems)
    return application(
        [
            *pages.study.routes,
            Route(person, pages.show),
            form_route(f"{person}/say", chats.store, pages.say, pages.asked),
            form_route(f"{person}/rate", chats.store, pages.rate, pages.asked, most),
            form_route(f"{person}/finish", chats.store, pages.finish, pages.asked),
            organiser_route(chats.store, organiser, "chat_progress.html", pages.figures),
        ],
        texts,
        pages.study.headers,
    )


class ChatPages:
    """All pages of one plan. One thread owns the models; a person who waits for it does not block others."""

    def __init__(self, chats: ChatStore, models: ChatModels, verify: Verify | None = None):
        self.chats, self.models = chats, models
        self.asked = mark_of([*chats.plan.problems])
        self.study = StudyPages(chats.store, verify)
        self.thread = WorkerThread("models")
        # Chat -> its next reply, for which all windows of the chat wait; so a chat waits in line once.
        self.under_way: dict[int, asyncio.Future[ChatState]] = {}

    async def show(self, request: Request) -> Response:
        """Answer a person's link with the chat as it stands, or thanks; a message without a reply gets one first."""
        token = await run_in_threadpool(known_token, self.chats.store, request)
        if instead := await run_in_threadpool(self.study.due, request, token):
            return instead
        chat = await run_in_threadpool(self.chats.current, token)
        if chat is None:
            sentence = "All your conversations are done. Everything is stored; you may close this page."
            instead = await run_in_threadpool(self.study.due, request, token)
            return instead or page(request, "end.html", heading="Thank you!", sentence=sentence)
        if chat.waits:
            chat = await self.reply_to(chat)
        plan = self.chats.plan
        return page(  # the template gets no record that contains the model
            request,
            "chat.html",
            link=ANNOTATE_PATH + token,
            number=chat.number,
            place=chat.place,
            total=plan.conversations,
            persona=[line.removeprefix(OWN_PERSONA).strip() for line in chat.personas[0].split("\n") if line],
            messages=chat.messages,
            left=plan.turns - chat.replies,
            full=chat.replies >= MOST,
            rates_replies=plan.rates_replies,
            problems=plan.problems,
            asked=self.asked,
            ratings=RATINGS if plan.rates_whole else (),
            longest=LONGEST,
        )

    async def reply_to(self, chat: ChatState) -> ChatState:
        """Return the chat with a reply, which is made even if the person leaves."""
        reply = self.under_way.get(chat.number)
        if reply is None:
            if len(self.under_way) >= WAITING:
                raise Refused(503, BUSY, {"Retry-After": "5"})
            reply = self.thread.do(self.answered, chat)
            self.under_way[chat.number] = reply
            reply.add_done_callback(lambda done: self.replied(chat.number, done))
        return await asyncio.shield(reply)

    def replied(self, number: int, done: "asyncio.Future[ChatState]") -> None:
        """Remove a chat from the queue; an error is reported only to those who still wait."""
        self.under_way.pop(number)
        if not done.cancelled():
            done.exception()

    def answered(self, chat: ChatState) -> ChatState:
        """Return the chat with a reply; this runs in the models' thread. If the model fails, nothing said is lost."""
        latest = self.chats.read(chat.number)  # while this one waited, another window may have got the reply
        if not latest.waits:
            return latest
        try:
            text = contained(self.models.reply, latest)
        except Exception as error:
            logging.getLogger("uvicorn.error").error("%s failed", latest.model, exc_info=error)
            raise Refused(
                503,
                "No reply could be made. Your message is kept: try again in a while, and tell the organiser if this "
                "happens again.",
            ) from error
        self.chats.reply(latest.number, len(latest.messages), text)
        return self.chats.read(latest.number)

    def say(self, token: str, fields: Mapping[str, str]) -> None:
        """Store a message, before the next page asks the model."""
        number, place, text = whole(fields.get("chat", "")), whole(fields.get("place", "")), text_field(fields, "text")
        if not text:
            raise InputError("The message is empty; write something first.")
        if len(text) > LONGEST:
            raise InputError(f"The message has {len(text):,} characters; at most {LONGEST:,} are taken, so shorten it.")
        self.chats.say(token, number, place, text)

    def rate(self, token: str, fields: Mapping[str, str]) -> str:
        """Store a person's rating of a reply; return where it is on the page."""
        offered = self.chats.plan.problems
        rating = fields.get("rating") or fields.get("kept", "")  # a tick is sent with the rating that there is
        if rating not in ("good", "bad") and not (offered and rating == ""):
            raise InputError("A reply can be rated good or bad; go back and choose one.")
        number, place, good = whole(fields.get("chat", "")), whole(fields.get("place", "")), GOOD[rating]
        problems = [label for tick, label in enumerate(offered) if f"problem{tick}" in fields]
        self.chats.rate(token, number, place, good, problems)
        return f"#reply-{place}"

    def finish(self, token: str, fields: Mapping[str, str]) -> None:
        """End a chat, with the rating of the whole."""
        rating = whole(fields["rating"]) if fields.get("rating") else None
        self.chats.finish(token, whole(fields.get("chat", "")), rating)

    def figures(self) -> dict[str, Any]:
        """Return what the organiser's page shows."""
        database, plan = self.chats.store.database, self.chats.plan
        waiting, rated = open_chats(database), {one.model: one for one in ratings(rated_chats(database))}
        every = sorted({*rated, *waiting, *plan.models})
        models = [(model, rated.get(model), waiting.get(model, 0)) for model in every]
        people = chatters(database)
        return {"models": models, "people": people, "conversations": plan.conversations, "display": display}
