"""Ports of loopback, for servers that a benchmark starts."""

import contextlib
import socket


def free_port() -> int:
    """Return a free port."""
    with socket.create_server(("127.0.0.1", 0)) as one:
        return int(one.getsockname()[1])


def answers(port: int) -> bool:
    """Return whether somebody accepts connections at a port."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False
