"""What the fakes of both platforms share: a server on loopback that answers in JSON, and how a step is called."""

import contextlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from evaluation import human_eval

from polyagents import InputError


class JsonHandler(BaseHTTPRequestHandler):
    """Answers in JSON, and logs nothing."""

    content_type = "application/json"

    def send(self, status, content, headers=()):
        self.send_response(status)
        for name, value in {"Content-Type": self.content_type, **dict(headers)}.items():
            self.send_header(name, value)
        content = json.dumps(content).encode()
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        """Say nothing."""


@contextlib.contextmanager
def answered_by(handler):
    """The address of a server whose requests a handler answers."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def caller(platform, secret, capsys):
    """Call a platform's step: its lines of JSON, all that it says, and its error; the secret is in none of them.

    The study is in study.json, and before it has an id in draft.json.
    """

    def call(*arguments, study=None):
        capsys.readouterr()
        study = study or ("draft.json" if "create" in arguments else "study.json")
        try:
            human_eval(platform, *arguments, "--study", study, "--database", "s.db")
            error = ""
        except InputError as raised:
            error = str(raised)
        said = capsys.readouterr()
        assert secret not in said.out + said.err + error
        return [json.loads(line) for line in said.out.splitlines() if line.startswith("{")], said.out + said.err, error

    return call
