"""Amazon Mechanical Turk on loopback, as its public documentation describes it; signatures are checked by botocore."""

import contextlib
import datetime
import json
import threading
import time

from botocore import auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from fake_platform import JsonHandler, answered_by

KEY, SECRET = "AKIDEXAMPLE", "secret-key-of-a-test"


def signature(method, url, headers, body):
    """The Authorization header that these credentials give a request, by botocore's own code."""
    signed = headers["Authorization"].split("SignedHeaders=")[1].split(",")[0].split(";")
    request = AWSRequest(
        method, url, {name: headers[name] for name in signed if name not in ("host", "x-amz-date")}, body
    )
    request.headers["X-Amz-Date"] = headers["X-Amz-Date"]
    request.context["timestamp"] = headers["X-Amz-Date"]
    signer = auth.SigV4Auth(Credentials(KEY, SECRET), "mturk-requester", "us-east-1")
    canonical = signer.canonical_request(request)
    mine = signer.signature(signer.string_to_sign(request, canonical), request)
    return f"{mine}"


class FakeMturk:
    """What the platform knows, and how it misbehaves.

    Attributes:
        faults: what happens to the next requests of an operation: (operation, what), each once. What is a status
            that is answered instead of anything, or "lost": it is carried out, and the connection is closed.
    """

    def __init__(self):
        self.hits, self.assignments, self.bonuses, self.tokens, self.faults, self.asked = {}, {}, [], {}, [], []
        self.lock = threading.Lock()

    def add(self, assignment, worker, hit, status="Submitted"):
        self.assignments[assignment] = {
            "AssignmentId": assignment, "WorkerId": worker, "HITId": hit, "AssignmentStatus": status
        }  # fmt: skip

    def answer(self, operation, given):
        """What an operation returns; a string is the message of a RequestError."""
        token = given.get("UniqueRequestToken")
        if token in self.tokens:
            return f"{operation}: the request already exists, HitAlreadyExists {self.tokens[token]}"
        if operation == "CreateHIT":
            hit = f"3HIT{len(self.hits):026d}"
            self.tokens[token], self.hits[hit] = hit, given
            return {"HIT": {"HITId": hit}}
        if operation == "SendBonus":
            self.tokens[token] = "request-1"
            self.bonuses.append(given)
            return {}
        if operation == "ListBonusPayments":
            return {"BonusPayments": [one for one in self.bonuses if one["AssignmentId"] == given["AssignmentId"]]}
        if operation == "ListAssignmentsForHIT":
            own = [one for one in self.assignments.values() if one["HITId"] == given["HITId"]]
            start = int(given.get("NextToken", 0))
            more = {"NextToken": str(start + 2)} if len(own) > start + 2 else {}
            return {"Assignments": own[start : start + 2]} | more
        if operation == "UpdateExpirationForHIT":
            return {}
        found = self.assignments[given["AssignmentId"]]
        if operation == "GetAssignment":
            return {"Assignment": found}
        if found["AssignmentStatus"] != "Submitted":
            return "This operation can be called with a status of: Submitted"
        found["AssignmentStatus"] = {"ApproveAssignment": "Approved", "RejectAssignment": "Rejected"}[operation]
        return {}


@contextlib.contextmanager
def mturk(fake):
    """The address of the interface of a fake."""

    class Handler(JsonHandler):
        content_type = "application/x-amz-json-1.1"

        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            operation = self.headers["X-Amz-Target"].removeprefix("MTurkRequesterServiceV20170117.")
            fake.asked.append(operation)
            given = self.headers["Authorization"].rpartition("Signature=")[2]
            sent = datetime.datetime.strptime(self.headers["X-Amz-Date"], "%Y%m%dT%H%M%SZ").timestamp()
            is_signed = given == signature("POST", f"http://{self.headers['Host']}{self.path}", self.headers, body)
            if (
                not is_signed
                or f"Credential={KEY}/" not in self.headers["Authorization"]
                or abs(sent - time.time()) > 90_000
            ):
                return self.send(403, {"__type": "InvalidSignatureException", "message": "signature"})
            fault = next((one for one in fake.faults if one[0] == operation), None)
            if fault:
                fake.faults.remove(fault)
            if fault and fault[1] != "lost":
                return self.send(fault[1], {"__type": "ServiceFault" if fault[1] >= 500 else "ThrottlingException"})
            with fake.lock:
                found = fake.answer(operation, json.loads(body))
            if fault:
                return self.connection.close()
            if isinstance(found, str):
                return self.send(400, {"__type": "RequestError", "Message": found})
            return self.send(200, found)

    with answered_by(Handler) as url:
        yield url
