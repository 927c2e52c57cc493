"""`polyagents human_eval serve`: the annotation page."""

import socket
from collections.abc import Iterable
from typing import Protocol

from parlai.core.params import ParlaiParser
from parlai.core.script import ParlaiScript
from starlette.types import ASGIApp

from polyagents.commands.serve import address, listening, server_of
from polyagents.console import say
from polyagents.errors import InputError
from polyagents.human_eval.steps.database_flag import add_database_flag, existing_store
from polyagents.human_eval.views import PATH
from polyagents.human_eval.web.app import create_app
from polyagents.human_eval.web.pages import PROGRESS
from polyagents.human_eval.web.questions import PRESETS, question_of

EVERYWHERE = ("0.0.0.0", "::")  # no address to be opened in a browser


class Serve(ParlaiScript):
    """Ask annotators."""

    @classmethod
    def setup_args(cls) -> ParlaiParser:
        """Where everything is, who may come, what they are asked."""
        parser = ParlaiParser(
            False,
            False,
            "Ask annotators which of two speakers they prefer, in their browsers. Prints the organiser's link, and one "
            "for each annotator that was invited; who has a link needs nothing else, so hand them out with care "
            "(polyagents)",
        )
        add_database_flag(parser)
        add_server_flags(parser)
        parser.add_argument(
            "--question",
            default="engaging",
            help=f"ACUTE-Eval's {', '.join(PRESETS)}, or a sentence of your own; each has its own answers",
        )
        return parser

    def run(self) -> None:
        """Print the links, serve until Ctrl-C."""
        question = question_of(self.opt["question"])
        store = existing_store(self.opt["database"])
        progress = store.progress(question.text)
        if not progress.pairs:
            raise InputError(f"{store.name} has no pairs to judge; make some with polyagents human_eval pairs.")
        with listening(self.opt["host"], self.opt["port"]) as opened:
            told = f"{question.text} {progress.pairs:,} pairs, {progress.checks:,} checks of {store.name}"
            organiser = store.organiser()
            serve(opened, create_app(store, question, organiser), organiser, progress.annotators, told)
        store.close()


def add_server_flags(parser: ParlaiParser) -> None:
    """Where pages for people who have a link are served."""
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        help="by default only this machine gets in; 0.0.0.0 lets everybody in who has a link. The links are "
        "secret, but plain HTTP can be read on its way: outside a trusted network put a proxy with HTTPS before it",
    )
    parser.add_argument("--port", type=int, default=8009, help="0 takes any that is free")


class HasLink(Protocol):
    """Somebody with a name and the secret part of a link."""

    @property
    def name(self) -> str:
        """As invited."""

    @property
    def token(self) -> str:
        """The secret part."""


def serve(opened: socket.socket, app: ASGIApp, organiser: str, people: Iterable[HasLink], told: str) -> None:
    """Print the links, serve until Ctrl-C.

    Args:
        opened: bound to an address.
        app: what is served.
        organiser: the secret part of the organiser's link.
        people: who else has a link.
        told: what is served, in words.
    """
    opened.listen()  # who opens a link at once waits for the server, and is not turned away
    start = reachable(address(opened))
    print(f"organiser\t{start}{PROGRESS}{organiser}", flush=True)
    for person in people:
        print(f"{person.name}\t{start}{PATH}{person.token}", flush=True)
    say(f"{told} (Ctrl-C ends it)")
    try:
        server_of(app).run(sockets=[opened])
    except KeyboardInterrupt:  # which uvicorn raises again once it has ended
        say("Ended.")


def reachable(start: str) -> str:
    """An address that others can open, where the server listens on all that this machine has."""
    for everywhere in EVERYWHERE:
        host = f"[{everywhere}]" if ":" in everywhere else everywhere
        start = start.replace(f"//{host}:", f"//{socket.gethostname()}:")
    return start
