"""The application in which annotators judge pairs, with the organiser's page."""

from collections.abc import Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from polyagents.errors import InputError
from polyagents.human_eval.blind import halves
from polyagents.human_eval.records import ANNOTATE_PATH
from polyagents.human_eval.storage.evaluation_store import EvaluationStore
from polyagents.human_eval.web.forms import mark_of, seconds_in, text_field, whole
from polyagents.human_eval.web.questions import AnnotationQuestion
from polyagents.human_eval.web.shared_pages import application, form_route, known_token, organiser_route, page
from polyagents.human_eval.web.study_pages import StudyPages, Verify
from polyagents.human_eval.web.wording import Wording

REASON = 5_000  # characters


def create_app(
    store: EvaluationStore,
    question: AnnotationQuestion,
    organiser: str,
    texts: Wording | None = None,
    verify: Verify | None = None,
) -> ASGIApp:
    """Make an ASGI application that asks one question about the pairs of a store."""
    pages = AnnotationPages(store, question, verify)
    return application(
        [
            *pages.study.routes,
            Route(ANNOTATE_PATH + "{token}", pages.next),
            form_route(ANNOTATE_PATH + "{token}", store, pages.answer, pages.asked),
            Route(ANNOTATE_PATH + "{token}/{place}", pages.pair),
            organiser_route(store, organiser, "progress.html", pages.figures),
        ],
        texts,
        pages.study.headers,
    )


class AnnotationPages:
    """All pages of one evaluation."""

    def __init__(self, store: EvaluationStore, question: AnnotationQuestion, verify: Verify | None):
        self.store, self.question = store, question
        self.asked = mark_of(question.text)
        self.study = StudyPages(store, verify)

    def next(self, request: Request) -> Response:
        """Answer an annotator's link: redirect to the next pair, or thank."""
        token = known_token(self.store, request)
        if instead := self.study.due(request, token):
            return instead
        assignment = self.store.next_assignment(token, self.question.text)
        if assignment is None:
            return self.study.due(request, token) or page(
                request,
                "end.html",
                heading="Thank you!",
                sentence="You have judged all pairs. Every answer is stored; you may close this page.",
                link=ANNOTATE_PATH + token,
                last=self.store.latest(token, self.question.text),
            )
        return RedirectResponse(f"{ANNOTATE_PATH}{token}/{assignment.place}", 303)

    def pair(self, request: Request) -> Response:
        """Show a pair, to be judged, or with the latest answer, to be changed."""
        token, place = known_token(self.store, request), whole(request.path_params["place"])
        if instead := self.study.due(request, token):
            return instead
        found = self.store.visit(token, place, self.question.text)
        if found is None:
            raise HTTPException(404, f"Pair {place} has not been shown to you yet; continue where you are.")
        if found.closed:
            raise HTTPException(409, f"Pair {place} has its answer; only your latest answer can be changed.")
        return page(
            request,
            "pair.html",
            link=ANNOTATE_PATH + token,
            question=self.question.text,
            asked=self.asked,
            shown=found,
            halves=halves(found, self.question.choice),
            longest=REASON,
        )

    def answer(self, token: str, fields: Mapping[str, str]) -> None:
        """Store an answer."""
        choice, reason = fields.get("choice"), text_field(fields, "reason")
        if choice not in ("left", "right"):
            raise InputError("No side is chosen; go back and choose one.")
        if len(reason) > REASON:
            raise InputError(f"The reason has {len(reason):,} characters; at most {REASON:,} are kept, so shorten it.")
        shown, seconds = whole(fields.get("assignment", "")), seconds_in(fields.get("seconds", ""))
        self.store.answer(token, shown, choice, reason, seconds, self.question.text)

    def figures(self) -> dict[str, Any]:
        """Return what the organiser's page shows."""
        return {"question": self.question.text, "progress": self.store.progress(self.question.text)}
