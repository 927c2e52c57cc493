"""Tells whether servers can be reached. It asks each once: without a network, clients would try for a minute."""

import functools
import socket
import urllib.request
from urllib.parse import urlsplit

WAIT = 3.0  # seconds for a connection; on a network that has one it takes a tenth of a second


def is_offline() -> bool:
    """Return whether files come from the hub's cache only, because the user says so or the hub cannot be reached.

    If it cannot, huggingface_hub's offline mode is switched on for this process, in which a model that is in the cache
    is loaded at once, and one that is not is refused at once.
    """
    from huggingface_hub import constants

    if not constants.HF_HUB_OFFLINE and not is_reachable(constants.ENDPOINT):
        constants.HF_HUB_OFFLINE = True
    return bool(constants.HF_HUB_OFFLINE)


@functools.cache
def is_reachable(endpoint: str) -> bool:
    """Return whether a server answers at http(s)://HOST[:PORT]; True without asking if a proxy would be in between."""
    parts = urlsplit(endpoint)
    if parts.hostname is None or urllib.request.getproxies().keys() & {parts.scheme, "all"}:
        return True
    try:
        socket.create_connection((parts.hostname, parts.port or (80 if parts.scheme == "http" else 443)), WAIT).close()
    except OSError:
        return False
    return True
