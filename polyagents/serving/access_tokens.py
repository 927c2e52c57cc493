"""The tokens of a server, by which clients may ask, read figures or reload; a file lists them and may change.

A line is `NAME SCOPE[,SCOPE] TOKEN`, or only a token: the first line of all may do everything, any other may ask and
read figures.
"""

import hashlib
import hmac
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from polyagents.errors import InputError, did_you_mean
from polyagents.files.lines import opened
from polyagents.properties import cached_property
from polyagents.serving.logs import LOG

MAY_ASK, MAY_READ_METRICS, MAY_ADMINISTER = SCOPES = ("ask", "metrics", "admin")
MOST = 100_000  # bytes of a file
PURPOSE = b"polyagents serve: the cookie of the chat page"


@dataclass(frozen=True)
class Token:
    """A token, and what it may do.

    Attributes:
        name: of the client in logs and limits; "" for a line without one.
    """

    secret: str = field(repr=False)
    scopes: frozenset[str]
    name: str = ""

    @cached_property
    def cookie(self) -> bytes:
        """Proves that a browser had the token. Equal on all servers with the token, which it does not reveal."""
        return cookie_of(self.secret.encode("utf-8", "surrogateescape"))


def cookie_of(secret: bytes) -> bytes:
    """Return the cookie of a token, an HMAC, 64 characters.

    Its key is a digest of the token: HMAC pads a key with zeros, so a token and one with zeros after it would be equal.
    """
    return hmac.digest(hashlib.sha256(secret).digest(), PURPOSE, "sha256").hex().encode()


class AccessTokens:
    """The tokens of a server, which its file can change at any time.

    Attributes:
        current: those that are valid now; replaced as a whole.
        refused: why the file was refused when it was last read; "" if it was not.
    """

    def __init__(self, text: str = "", path: str | None = None):
        """Take the tokens of a text, none if it is empty, or of a file; an InputError says what is wrong with it."""
        self.path, self.refused = path, ""
        self.current = parsed_tokens(text.split("\n")) if path is None else read_tokens(path)
        self._seen = (self.current, "")
        self._lock = threading.Lock()

    def renew(self, at_once: bool = True) -> None:
        """Use what the file holds now; if it is refused, the old tokens stay, and the log says why, once.

        Args:
            at_once: False leaves a change to the next call, which finds it complete if it is just being written.
        """
        if self.path is None:
            return
        with self._lock:
            try:
                found, reason = read_tokens(self.path), ""
            except InputError as error:
                found, reason = self.current, str(error)
            before, self._seen = self._seen, (found, reason)
            if not at_once and before != self._seen:
                return
            if reason and reason != self.refused:
                LOG.error("The token file was refused, the old tokens stay: %s", reason)
            if found != self.current:
                fields = {"tokens": len(found), "names": ",".join(token.name for token in found if token.name)}
                LOG.info("Other tokens are valid", extra={"fields": fields})
            self.current, self.refused = found, reason


def read_tokens(path: str) -> tuple[Token, ...]:
    """Read a file of tokens; an InputError, which never quotes a token, says if it cannot be read or has none."""
    try:
        with opened(path) as file:
            content = file.read(MOST + 1)
        lines = [line.strip() for line in content.decode("utf-8-sig").strip().split("\n")]
        if len(content) > MOST or not all(line.isprintable() for line in lines):
            raise ValueError
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or f"it is not text, or over {MOST:,} bytes"
        raise InputError(
            f"--token-file {path} cannot be read ({reason}); give a file with one token per line."
        ) from error
    try:
        found = parsed_tokens(lines)
    except InputError as error:
        raise InputError(f"--token-file {path}: {error}") from error
    if not found:
        raise InputError(f"--token-file {path} is empty; give a file with one token per line.")
    return found


def parsed_tokens(lines: Iterable[str]) -> tuple[Token, ...]:
    """Return the tokens of lines, without empty ones. An InputError says which line is wrong, or if two are alike."""
    found: list[Token] = []
    for number, line in enumerate(lines, 1):
        if not (words := line.split()):
            continue
        if words[0].startswith("#"):
            raise InputError(f"line {number} begins with #; there are tokens only, and no comments.")
        if is_token(words):
            found.append(Token(line.strip(), frozenset((MAY_ASK, MAY_READ_METRICS) if found else SCOPES)))
            continue
        if len(words) != 3:
            raise InputError(f"line {number} is not NAME SCOPE[,SCOPE] TOKEN, such as grafana metrics 3f9c...")
        name, scopes, secret = words
        if unknown := [scope for scope in scopes.split(",") if scope not in SCOPES]:
            hint = did_you_mean(unknown[0], SCOPES)
            raise InputError(f"line {number} has an unknown scope{hint}; there are {', '.join(SCOPES)}.")
        found.append(Token(secret, frozenset(scopes.split(",")), name))
    if len({token.secret for token in found}) < len(found):
        raise InputError("two lines have the same token, so nobody could tell whose rights it has; give each its own.")
    return tuple(found)


def is_token(words: Sequence[str]) -> bool:
    """Return whether a line is only a token, which may have several words; but no word, nor a slip of it, is a scope.

    Otherwise a slip would turn the line into a token with more rights.
    """
    has_scope = any({*word.split(",")} & {*SCOPES} for word in words)
    has_slip = len(words) == 3 and any(did_you_mean(scope, SCOPES) for scope in words[1].split(","))
    return len(words) == 1 or not (has_scope or has_slip)
