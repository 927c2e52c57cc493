"""How a step serves pages to people who have a link: its flags, the links that it prints, the server."""

import argparse
import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING

from polyagents.arguments import port_number
from polyagents.console import one_line, say
from polyagents.human_eval.records import ANNOTATE_PATH, PROGRESS_PATH
from polyagents.serving.http_server import address, server_of

if TYPE_CHECKING:
    from starlette.types import ASGIApp

EVERYWHERE = ("0.0.0.0", "::")  # an address that a browser cannot open


def add_server_flags(parser: argparse.ArgumentParser) -> None:
    """Add --host and --port."""
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        help="by default only this machine can connect; with 0.0.0.0 everybody can who has a link. The links are "
        "secret, but plain HTTP can be read in transit: outside a trusted network put a proxy with HTTPS in front",
    )
    parser.add_argument("--port", type=port_number, default=8009, help="0 takes any free port")


def serve_pages(opened: socket.socket, app: "ASGIApp", organiser: str, links: Mapping[str, str], what: str) -> None:
    """Print the organiser's link and each name with its link, from its token, and serve until Ctrl-C."""
    opened.listen()  # a browser that opens a link at once waits for the server, and is not refused
    start = reachable(address(opened))
    print(f"organiser\t{start}{PROGRESS_PATH}{organiser}", flush=True)
    for name, token in links.items():
        print(f"{one_line(name)}\t{start}{ANNOTATE_PATH}{token}", flush=True)
    say(f"{what} (Ctrl-C ends it)")
    try:
        server_of(app).run(sockets=[opened])
    except KeyboardInterrupt:  # uvicorn raises it again after it has ended
        say("Ended.")


def reachable(start: str) -> str:
    """Return an address that others can open, if the server listens on all of this machine's."""
    for everywhere in EVERYWHERE:
        host = f"[{everywhere}]" if ":" in everywhere else everywhere
        start = start.replace(f"//{host}:", f"//{socket.gethostname()}:")
    return start
