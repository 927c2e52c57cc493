"""The web server around an application: its socket, its address, and how it is started."""

import socket
from typing import TYPE_CHECKING

from polyagents.console import say
from polyagents.errors import InputError

if TYPE_CHECKING:
    import uvicorn
    from starlette.types import ASGIApp


def listening(host: str, port: int) -> socket.socket:
    """Open a socket that is bound to a host, by name or address, and a port, 0 for any free one.

    Raises:
        InputError: the address is taken, or none of this machine's.
    """
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        opened = socket.socket(family, kind, protocol)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind(where)
    except (OSError, OverflowError, UnicodeError) as error:  # UnicodeError: no host can have this name
        raise cannot_be_served(host, port, error) from error
    return opened


def listen(opened: socket.socket) -> None:
    """Let a bound socket take connections: from here on, a client waits for the server, and is not refused.

    Raises:
        InputError: the address is taken; two processes may bind one, as long as neither listens.
    """
    try:
        opened.listen()
    except OSError as error:
        host, port = opened.getsockname()[:2]
        raise cannot_be_served(host, port, error) from error


def cannot_be_served(host: str, port: int, error: Exception) -> InputError:
    """Make the error of a host and port that a socket cannot have."""
    reason = getattr(error, "strerror", None) or str(error)
    return InputError(f"{host}, port {port} cannot be served ({reason}); give another --port or --host.")


def address(opened: socket.socket) -> str:
    """Return the address of a page that is served on a socket."""
    host, port = opened.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def server_of(app: "ASGIApp", own_logs: bool = True) -> "uvicorn.Server":
    """Make the web server around an application.

    Args:
        own_logs: whether uvicorn decides how its logs are written; otherwise the caller has.
    """
    import uvicorn  # imported here, so that a wrong --port is reported before the web libraries are loaded

    from polyagents.serving.limits import CONNECTIONS
    from polyagents.serving.patient_protocol import PatientProtocol

    return uvicorn.Server(
        uvicorn.Config(
            app,
            http=PatientProtocol,
            log_level="warning",
            log_config=uvicorn.config.LOGGING_CONFIG if own_logs else None,
            access_log=False,  # addresses may hold the token
            proxy_headers=False,  # else a client could say that it is another one
            server_header=False,
            ws="none",
            limit_concurrency=CONNECTIONS,
            timeout_graceful_shutdown=5,
        )
    )


def run_until_stopped(app: "ASGIApp", opened: socket.socket, own_logs: bool = True) -> None:
    """Serve an application on a socket that listens until Ctrl-C, with logs as in `server_of`."""
    try:
        server_of(app, own_logs).run(sockets=[opened])
    except KeyboardInterrupt:  # uvicorn raises it again after it has ended
        say("Ended.")
