"""The checks before the application: who may send a request, how often, from which page, and how much.

A request is refused before its body is read, and a body before it is longer than it may be.
"""

import asyncio
import hmac
import ipaddress
import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from urllib.parse import parse_qs, quote, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from polyagents.serving.access_tokens import MAY_ADMINISTER, MAY_ASK, AccessTokens, cookie_of
from polyagents.serving.limits import BODY_BYTES, BODY_SECONDS, Rate
from polyagents.serving.problems import problem

COOKIE = "polyagents_serve"
HEADERS = {
    # Nothing from elsewhere, nothing inline: a text that got into the page as HTML could still do nothing.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Refused(Exception):
    """A request that is refused: status, one sentence, and additional headers."""

    def __init__(self, status: int, sentence: str, headers: dict[str, str] | None = None):
        super().__init__(sentence)
        self.status, self.sentence, self.headers = status, sentence, headers

    def response(self, path: str) -> Response:
        """Make the JSON answer to a request for a path."""
        return problem(path, self.sentence, self.status, self.headers)


class Guard:
    """An ASGI application around another one, which it protects.

    Args:
        tokens: one of these must come with every request; or the text of such a file. None, or none in it, accepts
            every request that is addressed to this machine itself.
        per_minute: how many requests a client may send.
        open_to_all: paths of pages without secrets, for a proxy's probes, which send no token.
        scopes: of a token that certain paths need, instead of `ask`; without any token, nobody has `admin`.
    """

    def __init__(
        self,
        app: ASGIApp,
        tokens: AccessTokens | str | None,
        per_minute: int,
        open_to_all: Sequence[str] = (),
        scopes: Mapping[str, str] = MappingProxyType({}),
    ):
        self.app, self.rate, self.refusals = app, Rate(per_minute), Rate(per_minute)
        self.open_to_all, self.scopes = open_to_all, scopes
        self.tokens = tokens if isinstance(tokens, AccessTokens) else AccessTokens(tokens or "")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request, pass it on, and add HEADERS to the response."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        if scope["method"] == "HEAD":  # monitors ask so; uvicorn, which has its own copy, leaves the body out
            scope = {**scope, "method": "GET"}
        more = dict(HEADERS)
        answer = adding_headers(send, more)
        try:
            if cookie := self.check(scope):
                more["Set-Cookie"] = f"{COOKIE}={cookie.decode()}; Path=/; HttpOnly; SameSite=Strict"
            if scope["method"] == "POST":
                check_sender(scope)
            ended = problem(scope["path"], "The server is ending; ask again when it is back.", 503)
            await answer_or(ended, self.once_whole, scope, receive, answer)
        except Refused as refusal:
            await refusal.response(scope["path"])(scope, receive, answer)

    async def once_whole(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the application answer a request once its whole body has been read."""
        if scope["method"] == "POST":
            content = scope["state"]["body"] = await body(scope, receive)  # there for logs
            receive = replay(content, receive)
        await self.app(scope, receive, send)

    def check(self, scope: Scope) -> bytes | None:
        """Refuse (403, 429, 401) a wrong host, one request too many, or one without the token; note its client.

        A client is its token, by name or number, if it has a name or there are several; otherwise its address.

        Returns:
            The cookie to set if the request carries a token in its address, as the printed link does; otherwise None.
        """
        if scope["path"] in self.open_to_all and scope["method"] == "GET":
            return None
        known = self.tokens.current  # which another thread may replace
        if not known and not is_loopback(hostname(Headers(scope=scope).get("host", ""))):
            # Otherwise a site whose name points to this machine could read the answers (DNS rebinding).
            raise Refused(403, "This server answers to localhost only; start it with --token to use another name.")
        client = client_address(scope)
        given, links = credentials(scope)
        tokens = [(place, token) for place, token in enumerate(known) if is_among(token.cookie, [*links, *given])]
        if known and not tokens:
            count_use(self.refusals, client)  # counted separately: people with the token may share this address
            raise Refused(
                401,
                "The token is missing or wrong; send the header Authorization: Bearer TOKEN, or open /?token=TOKEN in "
                "a browser.",
                {"WWW-Authenticate": "Bearer"},
            )
        needed = self.scopes.get(scope["path"], MAY_ASK)
        able = [(place, token) for place, token in tokens if needed in token.scopes]
        for place, token in (able or tokens)[:1]:
            client = token.name or (f"token {place}" if len(known) > 1 else client)
        scope.setdefault("state", {})["client"] = client
        count_use(self.rate, client)
        if not able and (known or needed == MAY_ADMINISTER):
            instead = "; without one, send the server SIGHUP" if needed == MAY_ADMINISTER else ""
            raise Refused(403, f"This needs a token with the scope {needed}{instead}.")
        return next((token.cookie for _, token in able if is_among(token.cookie, links)), None)


def credentials(scope: Scope) -> tuple[list[bytes], list[bytes]]:
    """Return the cookie of a request, and the tokens that it sends: in headers, and in its address."""
    headers = Headers(scope=scope)
    cookie = cookie_parser(headers.get("cookie", "")).get(COOKIE, "")
    given, links = [cookie.encode("latin-1", "replace")], []
    scheme, _, bearer = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        given.append(cookie_of(bearer.strip().encode("latin-1")))  # as ASGI decoded the header
    if scope["path"] == "/" and scope["method"] == "GET":
        links = parse_qs(scope["query_string"].decode("latin-1")).get("token", [])
    return given, [cookie_of(link.encode("utf-8")) for link in links]


def is_among(cookie: bytes, given: Sequence[bytes]) -> bool:
    """Return whether a cookie is one of those given; the time says nothing about how alike they are."""
    return any(hmac.compare_digest(cookie, one) for one in given)


async def answer_or(ended: Response, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Let an application answer; if the server ends before the answer has begun, send `ended` instead."""
    begun = False

    async def noted(message: Message) -> None:
        nonlocal begun
        begun = True
        await send(message)

    try:
        await app(scope, receive, noted)
    except asyncio.CancelledError:  # after SIGTERM, the time for unfinished requests is over
        if not begun:
            await ended(scope, receive, send)


def count_use(rate: Rate, client: str, amount: int = 1, what: str = "requests", instead: str | None = None) -> None:
    """Count what a client, an address or a token, uses; refuse it (429) if it is more than the client may use now.

    Args:
        instead: what can be done other than wait, as the end of the sentence; None names the flag of `serve`.
    """
    if wait := rate.wait(client, amount):
        seconds = math.ceil(wait)
        instead = f", or start the server with more --{what}-per-minute" if instead is None else instead
        raise Refused(429, f"Too many {what}; ask again in {seconds} s{instead}.", {"Retry-After": str(seconds)})


def client_address(scope: Scope) -> str:
    """Return the address that a request comes from."""
    return (scope.get("client") or ("unknown",))[0]


def hostname(host: str) -> str:
    """Return `localhost` of `localhost:8008`, `::1` of `[::1]:8008`, and "" for anything else."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def is_loopback(host: str) -> bool:
    """Return whether a name or address is this machine's loopback, which no other machine can reach."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_sender(scope: Scope) -> None:
    """Refuse (403, 415) requests that another site's page may send on behalf of a visitor.

    Only types are accepted for which a page must ask first (CORS), which is never allowed.
    """
    headers = Headers(scope=scope)
    origin = headers.get("origin")
    if origin is not None and origin.partition("://")[2] != headers.get("host"):
        raise Refused(403, "This request comes from a page of another site; only this server's own page may ask.")
    if content_type(headers) != "application/json":
        raise Refused(415, "The body must be JSON; send it with the header Content-Type: application/json.")
    if (coding := headers.get("content-encoding", "identity").lower()) != "identity":
        raise Refused(415, f"The body has Content-Encoding: {coding[:20]}; send it without, not compressed.")


def content_type(headers: Headers) -> str:
    """Return the type of a request's body, without its parameters."""
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def header_value(text: str) -> str:
    """Return a text as a header can have it: what is not printable ASCII is percent-encoded."""
    return quote(text, safe="".join(map(chr, range(0x21, 0x7F))).replace("%", ""))


def adding_headers(send: Send, headers: Mapping[str, str]) -> Send:
    """Make an ASGI `send` that adds headers, as they are when the response begins."""

    async def answer(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).update(headers)
        await send(message)

    return answer


async def body(scope: Scope, receive: Receive) -> bytes:
    """Read the whole body; Refused says 413 before more than BODY_BYTES of it are read, or 408 if it does not come."""
    announced = Headers(scope=scope).get("content-length", "0")
    if int(announced) > BODY_BYTES:  # h11 has checked that it is a number
        raise too_large()
    try:
        return await asyncio.wait_for(collected(receive), BODY_SECONDS)
    except asyncio.TimeoutError as error:  # another class in Python 3.10
        raise Refused(408, f"The body did not arrive within {BODY_SECONDS:.0f} s.", {"Connection": "close"}) from error


async def collected(receive: Receive) -> bytes:
    """Read a body whose length may be unknown beforehand."""
    parts, size, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Refused(400, "The connection was closed before the whole body had come.")
        part, more = message.get("body", b""), message.get("more_body", False)
        size += len(part)
        if size > BODY_BYTES:
            raise too_large()
        parts.append(part)
    return b"".join(parts)


def too_large() -> Refused:
    """Make the refusal of a body beyond the limit."""
    return Refused(413, f"The body is larger than {BODY_BYTES:,} bytes; send fewer or shorter texts.")


def replay(content: bytes, receive: Receive) -> Receive:
    """Make an ASGI `receive` that gives a body that was already read, and then whatever follows."""
    unread = [content]

    async def again() -> Message:
        if unread:
            return {"type": "http.request", "body": unread.pop(), "more_body": False}
        return await receive()

    return again
