"""The URLs of `--index-url`: the engine, its address, and the name of the candidates."""

import os
import re
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from polyagents.errors import InputError
from polyagents.index.engines.engine import VectorEngine

TOKEN = "POLYAGENTS_INDEX_TOKEN"
NAME = re.compile(r"[a-z_][a-z0-9_]{0,40}")  # what Milvus and PostgreSQL both take, without quotes, as part of a name
EXAMPLES = (
    "milvus:candidates.db/replies (a folder of this machine), milvus://host:19530/replies, "
    "milvus+https://host/replies or postgresql://user@host/database/replies"
)


def open_engine(url: str, make: bool = False) -> VectorEngine:
    """Connect to the engine of a URL, whose last part is the candidates' name.

    A password should not be in the URL, where anyone who lists processes can read it: Milvus's token may be in the
    environment variable POLYAGENTS_INDEX_TOKEN, and PostgreSQL reads PGPASSWORD and ~/.pgpass.

    Args:
        make: whether a folder of Milvus Lite is created if there is none.

    Raises:
        InputError: the URL is wrong, its extra is not installed, or no server answers.
    """
    parts = url_parts(url)
    place, _, name = parts.path.rpartition("/")
    if not NAME.fullmatch(name):
        raise InputError(
            f"The index URL {without_secrets(url)} must end in a name for the candidates: at most 41 lower-case "
            f"letters, digits and underscores, and no digit first; give something like {EXAMPLES}."
        )
    try:
        if parts.scheme == "postgresql" and place.strip("/"):
            from polyagents.index.engines.postgres import Postgres

            return Postgres(f"postgresql://{parts.netloc}{place}?{parts.query}".rstrip("?"), without_secrets(url), name)
        if parts.scheme in ("milvus", "milvus+https") and not parts.query:
            from polyagents.index.engines.milvus import Milvus

            address, token = milvus_address(parts, place)
            if not parts.netloc and not make and not os.path.exists(address):
                raise InputError(f"There is no folder {address}; build the candidates with polyagents index build.")
            return Milvus(address, token, name)
    except ModuleNotFoundError as error:
        extra = "postgres" if parts.scheme == "postgresql" else "milvus"
        raise InputError(
            f"The index URL {without_secrets(url)} needs {error.name}; run pip install 'polyagents[{extra}]'."
        ) from error
    raise InputError(f"The index URL {without_secrets(url)} is not one of an engine; give something like {EXAMPLES}.")


def url_parts(url: str) -> SplitResult:
    """Split a URL; an InputError, which keeps its password to itself, says if it has no such parts."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises ValueError if it is not a number, or not a port's
        unquote(parts.netloc, errors="strict")
    except ValueError as error:  # a UnicodeDecodeError is one
        raise InputError(f"The index URL is not a URL; give something like {EXAMPLES}.") from error
    return parts


def milvus_address(parts: SplitResult, place: str) -> tuple[str, str]:
    """Return address and token, empty if there is none, for Milvus's client; `place` is the path without the name.

    An InputError says if the URL names neither a server nor a folder.
    """
    token = os.environ.get(TOKEN, "")
    if parts.netloc:
        user, _, host = parts.netloc.rpartition("@")
        return f"{'https' if parts.scheme == 'milvus+https' else 'http'}://{host}{place}", unquote(user) or token
    if parts.scheme == "milvus+https" or not place.endswith(".db") or "@" in place:
        raise InputError(
            f"The index URL {parts.scheme}:... names neither a folder of Milvus Lite, which ends in .db, nor a server, "
            f"which follows //; give something like {EXAMPLES}."
        )
    return place, token


def without_secrets(url: str) -> str:
    """Return the URL without secrets: scheme, host, port and path, no users, passwords and parameters."""
    parts = url_parts(url)
    host = parts.netloc.rpartition("@")[2] or "".join(parse_qs(parts.query).get("host", [])[:1])
    path = parts.path.rpartition("@")[2]  # of a // that was forgotten
    return f"{parts.scheme}://{host}{path}" if host or parts.scheme == "postgresql" else f"{parts.scheme}:{path}"
