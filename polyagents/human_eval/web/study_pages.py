"""The pages of a study around the work: arrival, consent, screening, instructions, and the end.

A platform sends its people to JOIN_PATH, with its names for the person, the study and the submission. Each gets a link
like an invited person's; until the work begins, and after it, that link shows a page of these.
"""

import logging
import re
from collections.abc import Callable, Mapping
from urllib.parse import quote

from markdown_it import MarkdownIt
from markupsafe import Markup
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from polyagents.errors import InputError
from polyagents.human_eval.records import ANNOTATE_PATH, JOIN_PATH
from polyagents.human_eval.storage.evaluation_store import EvaluationStore
from polyagents.human_eval.storage.views import Participant
from polyagents.human_eval.study import COMPLETE, DECLINED, PLATFORMS, REJECTED, SCREENED_OUT, Study
from polyagents.human_eval.web.forms import FIELDS, mark_of
from polyagents.human_eval.web.shared_pages import FAILED, HEADERS, POLICY, count_stranger, form_route, page
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


class StudyPages:
    """The pages of a store's study; without a study, no page of these.

    Attributes:
        verify: confirms submissions; None accepts every one with identifiers of the right form.
        headers: of all pages. MTurk may show its people's pages in its frame, and gets their last form.
    """

    def __init__(self, store: EvaluationStore, verify: Verify | None = None):
        self.places, self.verify = store.places, verify
        self.routes, self.headers = [], HEADERS
        if self.places:
            study, step = self.places.study, ANNOTATE_PATH + "{token}/step"
            self.asked = mark_of([study.consent, study.screening])
            most = FIELDS + len(study.questions)
            self.routes = [Route(JOIN_PATH, self.join), form_route(step, store, self.advance, self.asked, most)]
            if study.platform == "mturk":
                policy = HEADERS[POLICY].replace("frame-ancestors 'none'", f"frame-ancestors {' '.join(FRAMES)}")
                policy = policy.replace("form-action 'self'", f"form-action 'self' {' '.join(SUBMIT)}")
                self.headers = HEADERS | {POLICY: policy}

    # ---- arrival ---------------------------------------------------------------------------------------------------

    def join(self, request: Request) -> Response:
        """Lead a person who arrives to the person's own link."""
        assert self.places  # the route is there with a study only
        study = self.places.study
        rules, given = PLATFORMS[study.platform], request.query_params
        person, submission = (given.get(name, "").strip() for name in (rules.person, rules.session))
        count_stranger(request)
        if given.get(rules.study) != study.id:
            raise HTTPException(404, "This address does not name the study; open it from the platform's page again.")
        if submission == PREVIEW and study.platform == "mturk":
            return page(
                request, "step.html", stage="preview", html=rendered_markdown(study.instructions or study.consent)
            )
        if not person and study.platform == "link":
            return page(request, "who.html", study=study.id)
        if not (re.fullmatch(rules.form, person) and re.fullmatch(rules.form, submission)):
            raise InputError("This address does not say who you are; open it from the platform's page again.")
        back = given.get("turkSubmitTo", "").rstrip("/") if study.platform == "mturk" else ""
        if study.platform == "mturk" and back not in SUBMIT:
            raise InputError("This address names another place than MTurk; open it from the platform's page again.")
        if self.verify and not confirmed(self.verify, person, submission):
            raise InputError("The platform does not know this submission; open the study from its page again.")
        token = self.places.arrive(person, submission, back, rules.renews or self.verify is not None)
        return RedirectResponse(ANNOTATE_PATH + token, 303)

    # ---- before and after the work ---------------------------------------------------------------------------------

    def due(self, request: Request, token: str) -> Response | None:
        """Return the page that a person must see now; None if it is the work, as for everybody who was invited."""
        who = self.places and self.places.participant(token)
        if not self.places or not who or who.stage == "work":
            return None
        study = self.places.study
        if who.stage in ENDS:
            return self.end(request, study, who)
        return page(
            request,
            "step.html",
            stage=who.stage,
            link=ANNOTATE_PATH + token,
            asked=self.asked,
            html=rendered_markdown(study.consent if who.stage == "consent" else study.instructions),
            questions=study.questions if who.stage == "screening" else (),
        )

    def end(self, request: Request, study: Study, who: Participant) -> Response:
        """Show how it ended, with the code of those who have one."""
        code = {COMPLETE: study.code, SCREENED_OUT: study.screen_out_code}.get(who.stage, "")
        address = PLATFORMS[study.platform].back.format(quote(code)) if code else ""
        heading, sentence = ENDS[who.stage]
        return page(
            request,
            "end.html",
            heading=heading,
            sentence=sentence,
            code=code,
            address=address,
            # MTurk has no code: the form itself tells it that the work is done.
            form=f"{who.back}/mturk/externalSubmit" if who.back and who.stage == COMPLETE else "",
            submission=who.session,
            comes_back=RETURN if study.platform != "link" and not code and who.stage != COMPLETE else "",
        )

    def advance(self, token: str, fields: Mapping[str, str]) -> None:
        """Store a stage that a person has done."""
        assert self.places
        questions, stage = self.places.study.questions, fields.get("stage", "")
        accepted = stage != "consent" or fields.get("agree") == "yes"
        if stage == "consent" and fields.get("agree") not in ("yes", "no"):
            raise InputError("Nothing is chosen; go back and choose.")
        if stage == "screening":
            answers = [fields.get(f"answer{place}", "") for place in range(len(questions))]
            if not all(answer in one.options for answer, one in zip(answers, questions, strict=True)):
                raise InputError("A question has no answer yet; go back and choose one.")
            accepted = all(answer in one.accepted for answer, one in zip(answers, questions, strict=True))
        self.places.advance(token, stage, accepted)


def confirmed(verify: Verify, person: str, submission: str) -> bool:
    """Ask the platform about a submission; 503 if it does not answer."""
    try:
        return verify(person, submission)
    except InputError as error:
        logging.getLogger("uvicorn.error").error("%s", error)
        raise Refused(503, FAILED, {"Retry-After": "10"}) from error


def rendered_markdown(markdown: str) -> Markup:
    """Make HTML of Markdown; HTML in it is escaped, and links lead nowhere but to addresses."""
    return Markup(MARKDOWN.render(markdown))
