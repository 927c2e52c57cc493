"""The application: the annotators' pages and the organiser's."""

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from polyagents.human_eval.store import Store
from polyagents.human_eval.views import PATH
from polyagents.human_eval.web.blind import halves
from polyagents.human_eval.web.forms import REASON, read_answer, whole
from polyagents.human_eval.web.pages import PROGRESS, ago, application, check_organiser, known_token, page
from polyagents.human_eval.web.questions import Question


def create_app(store: Store, question: Question, organiser: str) -> ASGIApp:
    """An ASGI application that asks one question about the pairs of a store.

    Args:
        store: stays open as long as the application runs.
        question: to all annotators.
        organiser: the secret part of the organiser's link.
    """
    pages = Pages(store, question, organiser)
    return application(
        [
            Route(PATH + "{token}", pages.next),
            Route(PATH + "{token}", pages.answer, methods=["POST"]),
            Route(PATH + "{token}/{place}", pages.pair),
            Route(PROGRESS + "{token}", pages.progress),
        ]
    )


class Pages:
    """All pages of one evaluation."""

    def __init__(self, store: Store, question: Question, organiser: str):
        self.store, self.question, self.organiser = store, question, organiser

    def next(self, request: Request) -> Response:
        """An annotator's link: on to the pair that is next, or thanks."""
        token = known_token(self.store, request)
        assignment = self.store.next_assignment(token, self.question.text)
        if assignment is None:
            return page("thanks.html", link=PATH + token, last=self.store.latest(token, self.question.text))
        return RedirectResponse(f"{PATH}{token}/{assignment.place}", 303)

    def pair(self, request: Request) -> Response:
        """A pair, to be judged, or with the latest answer, to be changed."""
        token, place = known_token(self.store, request), whole(request.path_params["place"])
        found = self.store.visit(token, place, self.question.text)
        if found is None:
            raise HTTPException(404, f"Pair {place} has not been shown to you yet; go on where you are.")
        if found.closed:
            raise HTTPException(409, f"Pair {place} has its answer; only your latest answer can be changed.")
        return page(
            "pair.html",
            link=PATH + token,
            question=self.question.text,
            visit=found,
            halves=halves(found.assignment, self.question.choice),
            longest=REASON,
        )

    async def answer(self, request: Request) -> Response:
        """Keep an answer; it is on the disk before anything is said. The same one again changes nothing."""
        token = await run_in_threadpool(known_token, self.store, request)
        given = await read_answer(request)
        await run_in_threadpool(
            self.store.answer,
            token,
            given.assignment,
            given.choice,
            given.reason,
            given.seconds,
            question=self.question.text,
        )
        return RedirectResponse(PATH + token, 303)

    def progress(self, request: Request) -> Response:
        """The organiser's page."""
        check_organiser(request, self.organiser)
        return page(
            "progress.html",
            question=self.question.text,
            progress=self.store.progress(self.question.text),
            links=str(request.base_url).rstrip("/") + PATH,
            ago=ago,
        )
