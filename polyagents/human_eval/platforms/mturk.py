"""Amazon Mechanical Turk through boto3, as far as a study needs it; the sandbox, where nobody is paid, by default."""

import json
import re
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any
from xml.sax.saxutils import escape

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, PartialCredentialsError

from polyagents.errors import InputError, first_line
from polyagents.files.hashing import fingerprint
from polyagents.human_eval.platforms.calls import AnswerLost, Call
from polyagents.human_eval.storage.people_records import PersonWork
from polyagents.human_eval.study import Study

SANDBOX = "https://mturk-requester-sandbox.us-east-1.amazonaws.com"
LIVE = "https://mturk-requester.us-east-1.amazonaws.com"
REGION = "us-east-1"  # the only one
WEEK = 7 * 24 * 3600  # seconds in which a HIT is offered, and in which it is approved if nobody does
HEIGHT = 800  # pixels of the frame
QUESTION = (
    '<ExternalQuestion xmlns="http://mechanicalturk.amazonaws.com/AWSMechanicalTurkDataSchemas/2006-07-14/'
    'ExternalQuestion.xsd"><ExternalURL>{}</ExternalURL><FrameHeight>{}</FrameHeight></ExternalQuestion>'
)
HIT = "[A-Z0-9]{20,}"  # the name of one
EXISTS = ("HitAlreadyExists", "already exists", "AlreadyExists", "already been processed")  # of a request's token


class MechanicalTurk:
    """A requester's access to MTurk, whose credentials boto3 finds in the environment."""

    def __init__(self, url: str):
        # boto3 sends again what a busy or failing service has not answered; tokens make that harmless.
        config = Config(retries={"mode": "standard", "total_max_attempts": 4}, connect_timeout=10, read_timeout=30)
        self.url = url
        try:
            self.client = boto3.session.Session().client("mturk", region_name=REGION, endpoint_url=url, config=config)
        except BotoCoreError as error:
            raise InputError(f"The AWS configuration of this machine cannot be used ({first_line(error)}).") from error

    def _asked(self, operation: str, **parameters: Any) -> Mapping[str, Any]:
        """Send a request by boto3's name; AnswerLost if it may have been carried out, InputError if it is refused."""
        try:
            found: Mapping[str, Any] = getattr(self.client, operation)(**parameters)
        except (NoCredentialsError, PartialCredentialsError) as error:
            raise InputError(
                "MTurk asks for credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY to your account's."
            ) from error
        except ClientError as error:
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            if status >= 500:
                raise AnswerLost(f"MTurk failed at {operation} (status {status}); it may have done it.") from error
            said = error.response.get("Error", {})
            raise InputError(f"MTurk refuses {operation} ({said.get('Code')}: {said.get('Message')}).") from error
        except BotoCoreError as error:
            raise AnswerLost(f"MTurk gave no answer to {operation} ({type(error).__name__}).") from error
        return found

    def _call(self, kind: str, key: str, operation: str, parameters: dict[str, Any], **more: Any) -> Call:
        """Make the call of an operation.

        boto3, and we, may send it again although it was carried out. MTurk refuses that: by its token, if it has one,
        or because the submission is no longer what it was, which `look_up` tells.
        """
        has_token, look_up = more.pop("has_token", False), more.pop("look_up", lambda _: False)

        def send(token: str) -> str:
            try:
                given = parameters | ({"UniqueRequestToken": token} if has_token else {})
                return str(self._asked(operation, **given).get("HIT", {}).get("HITId", token))
            except InputError as error:
                if isinstance(error, AnswerLost) or not (any(one in str(error) for one in EXISTS) or look_up(token)):
                    raise
                before = re.search(HIT, str(error))  # of which the error tells
                return before[0] if before else token

        shown = f"POST {self.url} {operation} {json.dumps(parameters, ensure_ascii=False, default=str)}"
        return Call(key, kind, shown, send, look_up, True, **more)

    def submissions(self, study: Study) -> dict[str, str]:
        """Return the status of every submission of a study, by its name."""
        found, more = dict[str, str](), dict[str, str]()
        while True:
            part = self._asked("list_assignments_for_hit", HITId=study.id, MaxResults=100, **more)
            found |= {one["AssignmentId"]: one["AssignmentStatus"] for one in part.get("Assignments", [])}
            if not part.get("NextToken"):
                return found
            more = {"NextToken": part["NextToken"]}

    def create(self, study: Study, address: str) -> Call:
        """Offer a HIT to workers, in a frame around an address."""
        parameters = {
            "Title": study.title,
            "Description": study.description,
            "Reward": f"{study.reward / 100:.2f}",
            "MaxAssignments": study.places,
            "AssignmentDurationInSeconds": 60 * max(study.minutes, study.duration),
            "LifetimeInSeconds": WEEK,
            "AutoApprovalDelayInSeconds": WEEK,
            "Question": QUESTION.format(escape(address), HEIGHT),
        }
        key = f"create {self.url} {fingerprint([json.dumps(parameters, sort_keys=True)])}"
        return self._call("create", key, "create_hit", parameters, has_token=True)

    def approve(self, one: PersonWork) -> Call:
        """Approve a submission, which pays the reward."""
        return self._judge("approve", "approve_assignment", one, {"AssignmentId": one.submission})

    def reject(self, one: PersonWork, message: str) -> Call:
        """Reject a submission, which is not paid."""
        parameters = {"AssignmentId": one.submission, "RequesterFeedback": message}
        return self._judge("reject", "reject_assignment", one, parameters)

    def _judge(self, kind: str, operation: str, one: PersonWork, parameters: dict[str, Any]) -> Call:
        """Approve or reject a submission; one that is approved already is refused, so a lost answer is looked up."""
        wanted = {"approve": "Approved", "reject": "Rejected"}[kind]

        def is_done(_: str) -> bool:
            found = self._asked("get_assignment", AssignmentId=one.submission)
            return bool(found["Assignment"]["AssignmentStatus"] == wanted)

        return self._call(kind, f"{kind} {one.number}", operation, parameters, look_up=is_done, participant=one.number)

    def bonus(self, study: Study, one: PersonWork, cents: int, reason: str) -> Call:
        """Pay a bonus; it is looked up by its amount and reason, because a token is forgotten after a day."""
        amount = f"{cents / 100:.2f}"
        parameters = {"WorkerId": one.person, "AssignmentId": one.submission, "BonusAmount": amount, "Reason": reason}

        def is_paid(_: str) -> bool:
            paid = self._asked("list_bonus_payments", AssignmentId=one.submission).get("BonusPayments", [])
            return any(float(each["BonusAmount"]) == cents / 100 and each["Reason"] == reason for each in paid)

        key, paid_to = f"bonus {one.number} {cents} {reason}", {"participant": one.number, "amount": cents}
        return self._call("bonus", key, "send_bonus", parameters, has_token=True, look_up=is_paid, **paid_to)

    def stop(self, study: Study) -> Call:
        """End the recruitment: the HIT expires."""
        parameters = {"HITId": study.id, "ExpireAt": datetime(2005, 11, 2, tzinfo=timezone.utc)}
        return self._call("stop", f"stop {study.id}", "update_expiration_for_hit", parameters)
