"""The pages of a study around the work: arrival, consent, screening, instructions, and the end.

A platform sends its people to JOIN_PATH, with its names for the person, the study and the submission. Each gets a link
like an invited person's; until the work begins, and after it, that link shows a page of these.
"""

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import quote

from markdown_it import MarkdownIt
from markupsafe import Markup
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from polyagents.errors import InputError
from polyagents.human_eval.records import ANNOTATE_PATH, JOIN_PATH
from polyagents.human_eval.storage.evaluation_store import EvaluationStore
from polyagents.human_eval.study import COMPLETE, DECLINED, PLATFORMS, REJECTED, SCREENED_OUT, Study
from polyagents.human_eval.web.forms import FIELDS, read_fields
from polyagents.human_eval.web.shared_pages import FAILED, HEADERS, POLICY, count_stranger, known_token, page
from polyagents.serving.guard import Refused

PREVIEW = "ASSIGNMENT_ID_NOT_AVAILABLE"  # MTurk's submission of who only looks
SUBMIT = ("https://www.mturk.com", "https://workersandbox.mturk.com")  # where MTurk takes submissions
FRAMES = ("https://worker.mturk.com", "https://workersandbox.mturk.com", "https://www.mturk.com")  # around our pages
MARKDOWN = MarkdownIt("commonmark", {"html": False}).disable("image")  # HTML is shown as text; nothing is loaded

Verify = Callable[[str, str], bool]
"""Whether the platform knows a submission (the second) of a person (the first) that is under way."""

ENDS = {
    COMPLETE: ("Thank you!", "You are done, and every answer is stored."),
    SCREENED_OUT: ("Thank you!", "This study looks for other people this time, so it ends here for you."),
    DECLINED: ("Thank you!", "You did not agree, so the study ends here for you."),
    REJECTED: ("Thank you!", "Your part in this study is over."),
}
RETURN = "Please return your submission on the platform's page."


@dataclass
class StudyPages:
    """The pages of a store's study; without a study, no page of these.

    Attributes:
        verify: confirms submissions; None accepts every one with identifiers of the right form.
    """

    store: EvaluationStore
    verify: Verify | None = None

    @property
    def study(self) -> Study | None:
        """The study, if there is one."""
        return self.store.places.study if self.store.places else None

    @property
    def routes(self) -> list[Route]:
        """The addresses of these pages."""
        return [
            Route(JOIN_PATH, self.join),
            Route(ANNOTATE_PATH + "{token}/step", self.advance, methods=["POST"]),
        ] * bool(self.study)

    @property
    def headers(self) -> dict[str, str]:
        """The headers of all pages. MTurk may show its people's pages in its frame, and gets their last form."""
        if self.study is None or self.study.platform != "mturk":
            return HEADERS
        framed = HEADERS[POLICY].replace("frame-ancestors 'none'", f"frame-ancestors {' '.join(FRAMES)}")
        return HEADERS | {POLICY: framed.replace("form-action 'self'", f"form-action 'self' {' '.join(SUBMIT)}")}

    # ---- arrival ---------------------------------------------------------------------------------------------------

    def join(self, request: Request) -> Response:
        """Lead a person who arrives to the person's own link."""
        study = self.store.places.study  # type: ignore[union-attr]  # the route is there with a study only
        rules, given = PLATFORMS[study.platform], request.query_params
        person, submission = (given.get(name, "").strip() for name in (rules.person, rules.session))
        count_stranger(request)
        if given.get(rules.study) != study.id:
            raise HTTPException(404, "This address does not name the study; open it from the platform's page again.")
        if submission == PREVIEW and study.platform == "mturk":
            return page(request, "step.html", stage="preview", html=shown(study.instructions or study.consent))
        if not person and study.platform == "link":
            return page(request, "who.html", study=study.id)
        if not (re.fullmatch(rules.form, person) and re.fullmatch(rules.form, submission)):
            raise InputError("This address does not say who you are; open it from the platform's page again.")
        back = given.get("turkSubmitTo", "").rstrip("/") if study.platform == "mturk" else ""
        if study.platform == "mturk" and back not in SUBMIT:
            raise InputError("This address names another place than MTurk; open it from the platform's page again.")
        if self.verify and not confirmed(self.verify, person, submission):
            raise InputError("The platform does not know this submission; open the study from its page again.")
        token = self.store.arrive(person, submission, back, rules.renews or self.verify is not None)
        return RedirectResponse(ANNOTATE_PATH + token, 303)

    # ---- before and after the work ---------------------------------------------------------------------------------

    def due(self, request: Request, token: str) -> Response | None:
        """Return the page that a person must see now; None if it is the work, as for everybody who was invited."""
        who = self.store.participant(token)
        study = self.study
        if who is None or study is None or who.stage == "work":
            return None
        if who.stage in ENDS:
            return self.end(request, study, who.stage, who.session, who.back)
        return page(
            request,
            "step.html",
            stage=who.stage,
            link=ANNOTATE_PATH + token,
            html=shown(study.consent if who.stage == "consent" else study.instructions),
            questions=study.questions if who.stage == "screening" else (),
        )

    def end(self, request: Request, study: Study, how: str, submission: str, back: str) -> Response:
        """Show how it ended, with the code of those who have one."""
        code = {COMPLETE: study.code, SCREENED_OUT: study.screen_out_code}.get(how, "")
        address = PLATFORMS[study.platform].back.format(quote(code)) if code else ""
        heading, sentence = ENDS[how]
        return page(
            request,
            "end.html",
            heading=heading,
            sentence=sentence,
            code=code,
            address=address,
            # MTurk has no code: the form itself tells it that the work is done.
            form=f"{back}/mturk/externalSubmit" if back and how == COMPLETE else "",
            submission=submission,
            comes_back=RETURN if study.platform != "link" and not code and how != COMPLETE else "",
        )

    async def advance(self, request: Request) -> Response:
        """Store a stage that a person has done; the same again changes nothing."""
        token = await run_in_threadpool(known_token, self.store, request)
        questions = self.study.questions if self.study else []
        fields = await read_fields(request, FIELDS + len(questions))
        stage = fields.get("stage", "")
        accepted = stage != "consent" or fields.get("agree") == "yes"
        if stage == "consent" and fields.get("agree") not in ("yes", "no"):
            raise InputError("Nothing is chosen; go back and choose.")
        if stage == "screening":
            answers = [fields.get(f"answer{place}", "") for place in range(len(questions))]
            if not all(answer in one.options for answer, one in zip(answers, questions, strict=True)):
                raise InputError("A question has no answer yet; go back and choose one.")
            accepted = all(answer in one.accepted for answer, one in zip(answers, questions, strict=True))
        await run_in_threadpool(self.store.advance, token, stage, accepted)
        return RedirectResponse(ANNOTATE_PATH + token, 303)


def confirmed(verify: Verify, person: str, submission: str) -> bool:
    """Ask the platform about a submission.

    Raises:
        Refused: 503, it does not answer.
    """
    try:
        return verify(person, submission)
    except InputError as error:
        logging.getLogger("uvicorn.error").error("%s", error)
        raise Refused(503, FAILED, {"Retry-After": "10"}) from error


def shown(markdown: str) -> Markup:
    """Make HTML of Markdown; HTML in it is escaped, and links lead nowhere but to addresses."""
    return Markup(MARKDOWN.render(markdown))
