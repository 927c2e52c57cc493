"""`polyagents serve`: a chat page for one model, and JSON endpoints."""

import socket
from typing import TYPE_CHECKING
from urllib.parse import quote

from parlai.core.params import ParlaiParser
from parlai.core.script import ParlaiScript, register_script

from polyagents.arguments import positive_int
from polyagents.console import say
from polyagents.errors import InputError

if TYPE_CHECKING:
    import uvicorn
    from starlette.types import ASGIApp


@register_script("serve")
class Serve(ParlaiScript):
    """Chat with a model in a browser; rank with it over HTTP."""

    @classmethod
    def setup_args(cls) -> ParlaiParser:
        """A model, candidates, and who may ask."""
        parser = ParlaiParser(
            False, False, "A chat page for one model, and JSON endpoints POST /rank and /chat (polyagents)"
        )
        # Not `required`: ParlAI parses every command's flags with an empty line to write its list of commands.
        parser.add_argument("-mf", "--model-file", help="a trained model")
        parser.add_argument(
            "--candidates-file",
            help="UTF-8 text, one reply per line; by default, as in interactive, all labels of the model's task",
        )
        parser.add_argument("--index-dir", help="candidates encoded earlier by build_index, in place of a file")
        parser.add_argument("--host", default="127.0.0.1", help="another address than this machine's own needs --token")
        parser.add_argument("--port", type=int, default=8008, help="0 takes any that is free")
        parser.add_argument("--token", help="what every request must bring")
        parser.add_argument(
            "--requests-per-minute", type=positive_int, default=600, help="of one client; more are told to wait"
        )
        return parser

    def run(self) -> None:
        """Load, serve until Ctrl-C."""
        from polyagents.serving.app import create_app  # the web libraries: only this command needs them
        from polyagents.serving.guard import is_loopback
        from polyagents.serving.served import Served

        opt = self.opt
        token, host = opt.get("token"), opt["host"]
        if not opt.get("model_file") or (opt.get("candidates_file") and opt.get("index_dir")):
            raise InputError("serve needs --model-file, and --candidates-file or --index-dir, not both.")
        if token is not None and not token.strip():
            raise InputError("--token is empty; give one that cannot be guessed, or leave it out on this machine.")
        if not token and not is_loopback(host):
            raise InputError(
                f"--host {host} lets other machines in, which needs --token; give one, or leave out --host to serve "
                f"this machine only."
            )
        with listening(host, opt["port"]) as opened:  # what is wrong with it is said before the model is loaded
            served = Served.load(opt["model_file"], opt.get("candidates_file"), opt.get("index_dir"))
            app = create_app(served, token, opt["requests_per_minute"])
            opened.listen()  # who opens the address at once waits for the server, and is not turned away
            query = f"?token={quote(token, safe='')}" if token else ""
            say(
                f"{served.model} ({served.kind}) with {len(served.candidates):,} candidates of {served.source}: "
                f"{address(opened)}/{query} (Ctrl-C ends it)"
            )
            try:
                server_of(app).run(sockets=[opened])
            except KeyboardInterrupt:  # which uvicorn raises again once it has ended
                say("Ended.")


def listening(host: str, port: int) -> socket.socket:
    """A socket that is bound to an address.

    Raises:
        InputError: it is taken, or none of this machine's.
    """
    if not 0 <= port <= 65535:  # getaddrinfo would take the rest of a division
        raise InputError(f"--port {port} is none; give one from 1 to 65535, or 0 for any that is free.")
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        opened = socket.socket(family, kind, protocol)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind(where)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"{host}, port {port} cannot be served ({reason}); give another --port or --host.") from error
    return opened


def address(opened: socket.socket) -> str:
    """Of a page served there."""
    host, port = opened.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def server_of(app: "ASGIApp") -> "uvicorn.Server":
    """The web server around the application."""
    import uvicorn

    from polyagents.serving.limits import CONNECTIONS

    return uvicorn.Server(
        uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,  # addresses may hold the token
            proxy_headers=False,  # else a client could say that it is another one
            server_header=False,
            ws="none",
            limit_concurrency=CONNECTIONS,
            timeout_graceful_shutdown=5,
        )
    )
