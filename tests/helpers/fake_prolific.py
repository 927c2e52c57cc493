"""Prolific on loopback, as its public documentation describes it, as far as our client asks it."""

import contextlib
import json
import re

from fake_platform import JsonHandler, answered_by

TOKEN = "secret-token-of-a-test"


class FakeProlific:
    """What the platform knows, and how it misbehaves.

    Attributes:
        submissions: name -> {"study_id", "participant", "status", "bonus_payments"}.
        faults: what happens to the next requests whose "METHOD path" matches: (pattern, what), each once. What is a
            status that is answered instead of anything, or JSON, or "lost": it is carried out, and the connection is
            closed.
        asked: every request, as "METHOD path".
    """

    def __init__(self):
        self.studies, self.submissions, self.bonuses, self.faults, self.asked = {}, {}, {}, [], []

    def add(self, submission, participant, study):
        self.submissions[submission] = {
            "id": submission, "study_id": study, "participant": participant, "status": "ACTIVE", "bonus_payments": []
        }  # fmt: skip

    def fault(self, request):
        """What goes wrong with a request, if anything."""
        for fault in self.faults:
            if re.fullmatch(fault[0], request):
                self.faults.remove(fault)
                return fault[1]
        return None

    def answer(self, method, path, body, query):
        """Status and content of the answer."""
        parts = path.strip("/").split("/")
        if method == "GET" and parts[0] == "submissions":
            found = self.submissions.get(parts[1])
            return (200, found) if found else (404, {"error": {"title": "Not found"}})
        if method == "GET" and parts == ["studies"]:
            return 200, {"results": list(self.studies.values())}
        if method == "GET":
            own = [one for one in self.submissions.values() if one["study_id"] == parts[1]]
            page, size = int(query["page"]), int(query["page_size"])
            return 200, {"results": own[(page - 1) * size : page * size]}
        if parts == ["studies"]:
            needed = {
                "name",
                "description",
                "external_study_url",
                "completion_codes",
                "total_available_places",
                "reward",
            }
            if not needed <= body.keys():
                return 400, {"error": {"detail": sorted(needed - body.keys())}}
            number = f"{len(self.studies) + 1:024x}"
            self.studies[number] = body | {"id": number, "status": "UNPUBLISHED"}
            return 201, self.studies[number]
        if parts[0] == "studies":
            self.studies.setdefault(parts[1], {})["status"] = "AWAITING REVIEW"
            return 200, {"status": "AWAITING REVIEW"}
        if parts[-1] == "transition":
            found = self.submissions[parts[1]]
            wanted = {"APPROVE": "APPROVED", "REJECT": "REJECTED"}[body["action"]]
            if found["status"] not in ("AWAITING REVIEW", wanted):  # idempotent
                return 400, {"error": {"detail": f"{found['status']} cannot become {wanted}"}}
            if wanted == "REJECTED" and (len(body.get("message", "")) < 100 or not body.get("rejection_category")):
                return 400, {"error": {"detail": "message"}}
            found["status"] = wanted
            return 200, found
        if parts == ["submissions", "bonus-payments"]:
            payment = f"bonus-{len(self.bonuses)}"
            self.bonuses[payment] = [line.split(",") for line in body["csv_bonuses"].split("\n") if line]
            return 201, {"id": payment}
        for submission, amount in self.bonuses[parts[1]]:  # not idempotent: each call pays
            self.submissions[submission]["bonus_payments"].append(round(float(amount) * 100))
        return 202, {}


@contextlib.contextmanager
def prolific(fake):
    """The address of the interface of a fake."""

    class Handler(JsonHandler):
        def handle_any(self):
            path, _, query = self.path.removeprefix("/api/v1").partition("?")
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or "{}")
            request = f"{self.command} {path}"
            fake.asked.append(request)
            fault = fake.fault(request)
            if self.headers.get("Authorization") != f"Token {TOKEN}":
                return self.send(401, {"error": "token"})
            if isinstance(fault, int):
                return self.send(fault, {"error": "fault"}, {"Retry-After": "7"} if fault == 429 else {})
            if fault is not None and fault != "lost":
                return self.send(200, fault)
            found = fake.answer(self.command, path, body, dict(part.split("=") for part in query.split("&") if part))
            if fault == "lost":
                self.close_connection = True
                return self.connection.close()
            return self.send(*found)

        do_GET = do_POST = handle_any

    with answered_by(Handler) as url:
        yield f"{url}/api/v1"
