"""A request on its way: what is known of it, and how it is answered."""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
import time
from http import HTTPStatus
from urllib.parse import unquote

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from deql.serve.schemas import ApiError, error_response

__all__ = [
    "CHECKSUM",
    "CONNECTION",
    "MOST_HEADER_BYTES",
    "PARSED",
    "STARTED",
    "TARGET",
    "UPDATE",
    "RequestContext",
    "is_admin",
    "new_id",
    "refusal",
    "too_long",
    "too_many_connections",
    "with_security_headers",
]

STARTED = "started"
"""Where, in a scope's state, :mod:`deql.serve.connection` puts the event loop's time of the request's first byte."""

CONNECTION = "connection"
"""Where, in a scope's state, the connection is, which is told when a request begins and when it is answered."""

TARGET = "target"
"""Where, in a scope's state, an address is that does not begin with a slash, as far as its parser tells it apart."""

CHECKSUM = "checksum"
"""Where, in a scope's state, the app says which model is asked; its answer, be it an error, has that as a header."""

PARSED = "parsed"
"""Where, in a scope's state, what the app calls once it has parsed a long body is: others may parse theirs then."""

MOST_HEADER_BYTES = 2**16
"""Of a request's address and headers together."""

_ABSOLUTE = re.compile(
    rb"https?://(?:[^/?#@]*@)?(?P<host>(?:\[[0-9a-f:.]+\]|[^\]\[/?#@:]+)(?::[0-9]*)?)"
    rb"(?P<path>/[^?#]*)?(?:\?(?P<query>[^#]*))?(?:#.*)?",
    re.IGNORECASE,
)

_UNVERSIONED = re.compile(r"/(recommend|explain|items|model|admin|update)(?=/|\Z)")
"""Paths without a version, as they were before there were any; they mean the first."""

UPDATE = "/v1/update"
"""Where batches of changes are sent."""

_ADMIN = "/v1/admin/"

_PAGES = frozenset({"/", "/docs"})
_ELSEWHERE = b"default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
_ON_PAGES = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_ALWAYS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
]
_SANE_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")

_DRAIN_SECONDS = 5.0
"""How long the rest of a refused body is read: clients look for an answer only once they have sent everything."""

Headers = list[tuple[bytes, bytes]]


class RequestContext:
    """A request on its way: what is known of it, and the ways to answer it.

    Parameters
    ----------
    scope, receive, send
        As the server gave them. The app finds the request's id in ``scope["state"]["request_id"]``, and is asked for
        GET where the client wants HEAD, which is the same without a body.
    seconds : float
        How long it may take, from its first byte on.
    """

    def __init__(self, scope: Scope, receive: Receive, send: Send, seconds: float) -> None:
        self.receive, self._send, self.method = receive, send, scope["method"]
        self.started = time.monotonic()
        state = scope.setdefault("state", {})
        self.scope = scope if self.method != "HEAD" else {**scope, "method": "GET"}
        self._connection = state.pop(CONNECTION, None)
        self.is_spare = False  # whether its connection is one beyond the limit
        if self._connection is not None:
            self._connection.begin()
            self.is_spare = self._connection.is_spare
        self.deadline = state.get(STARTED, asyncio.get_running_loop().time()) + seconds
        self.path: str = scope["path"]
        self.host = self.header(b"host")
        self.body = bytearray()
        self.more = True  # of the body is to come
        self.gone = self._replayed = False
        self.status = self.sent = 0
        self._instead: bytes | None = None
        wanted = self.header(b"x-request-id")
        self.id = state["request_id"] = wanted.decode() if _SANE_ID.fullmatch(wanted) else new_id()

    def header(self, name: bytes) -> bytes:
        """The first header of this name; empty without one."""
        return next((value for key, value in self.scope["headers"] if key == name), b"")

    def check_form(self) -> None:
        """Refuse what parsers let through although HTTP does not; find the path in an absolute or an old address."""
        scope = self.scope
        target = scope["state"].pop(TARGET, None)
        if target is None and not self.path.startswith("/"):  # h11 takes it for a path
            target = scope["raw_path"] + b"?" * bool(scope["query_string"]) + scope["query_string"]
        in_address = target or scope.get("raw_path", b"") + scope.get("query_string", b"")
        size = len(in_address) + sum(len(name) + len(value) + 4 for name, value in scope["headers"])
        if size > MOST_HEADER_BYTES:
            raise too_long()
        if sum(name == b"host" for name, _ in scope["headers"]) > 1:
            raise ApiError(400, "invalid_request", "there is more than one Host header: send one")
        if target is not None:
            self._use_absolute(target)
        if _UNVERSIONED.match(self.path):
            self.path = scope["path"] = "/v1" + self.path
            scope["raw_path"] = b"/v1" + scope.get("raw_path", b"")

    def _use_absolute(self, target: bytes) -> None:
        """An address with a host in it is asked of that host, whatever the header says."""
        found = _ABSOLUTE.fullmatch(target)
        if found is None:
            raise ApiError(400, "invalid_request", "the address must begin with a slash, or with http:// and a host")
        raw_path, self.host = found["path"] or b"/", found["host"]
        self.path = unquote(raw_path.decode("latin-1"))
        self.scope.update({"path": self.path, "raw_path": raw_path, "query_string": found["query"] or b""})

    @property
    def is_admin(self) -> bool:
        """Whether something is to be changed."""
        return is_admin(self.path)

    @property
    def is_parsed(self) -> bool:
        """Whether the body, if there is one, is looked at."""
        return not self.path.startswith(_ADMIN)

    @property
    def has_body(self) -> bool:
        """Whether the client says that it sends one."""
        return self.header(b"content-length") not in (b"", b"0") or bool(self.header(b"transfer-encoding"))

    async def piece(self) -> bytes:
        """The next piece of the body."""
        message = await self.receive()
        self.gone = message["type"] == "http.disconnect"
        self.more = not self.gone and message.get("more_body", False)
        piece: bytes = message.get("body", b"")
        return piece

    async def replay(self) -> Message:
        """The body as the app receives it; after it, whatever the connection has to say."""
        if self._replayed or self.more:
            return await self.receive()
        self._replayed = True
        return {"type": "http.request", "body": bytes(self.body), "more_body": False}

    async def send(self, message: Message) -> None:
        """Send a part of the answer, its headers completed."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = with_security_headers(self._in_our_form(message.get("headers", [])), self.id, self.path)
            checksum = self.scope["state"].get(CHECKSUM)
            if checksum is not None:
                headers.append((b"x-model-checksum", checksum.encode()))
            closes = self._connection is not None and self._connection.is_last
            if closes and not any(name.lower() == b"connection" for name, _ in headers):
                headers.append((b"connection", b"close"))
            message = {**message, "headers": headers}
        elif message["type"] == "http.response.body":
            if self._instead is not None:
                message, self._instead = {**message, "body": self._instead}, b""
            if self.method == "HEAD":
                message = {**message, "body": b""}
            self.sent += len(message.get("body", b""))
        await self._send(message)
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            self.finish()

    def _in_our_form(self, headers: Headers) -> Headers:
        """The headers of an answer; if it is an error that a library has put into words of its own, of ours instead."""
        kinds = [value for name, value in headers if name.lower() == b"content-type"]
        if self.status < 400 or kinds == [b"application/json"]:
            return headers
        about_range = "the Range header must be such as bytes=0-99, and within the file"
        message = about_range if self.header(b"range") else HTTPStatus(self.status).phrase
        ours = error_response(self.status, "invalid_request", message)
        self._instead = bytes(ours.body)
        return [*ours.raw_headers, *((name, value) for name, value in headers if name.lower() == b"content-range")]

    def finish(self) -> None:
        """Tell the connection, once, that nothing more is answered."""
        if self._connection is not None:
            self._connection.finish()
            self._connection = None

    async def refuse(self, error: ApiError) -> None:
        """Answer with an error; if the body was not read, read its rest for a while, for nobody.

        A connection that is closed while the client still sends is reset, and the answer lost with it.
        """
        if not (self.has_body and self.more):
            await refusal(error, self.path)(self.scope, self.receive, self.send)
            return
        response = refusal(error, self.path, last=True)
        await self.send({"type": "http.response.start", "status": error.status, "headers": response.raw_headers})
        await self.send({"type": "http.response.body", "body": bytes(response.body), "more_body": True})
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_DRAIN_SECONDS if error.code != "request_timeout" else 0.0):
                while self.more:
                    await self.piece()
        await self.send({"type": "http.response.body", "body": b"", "more_body": False})


def refusal(error: ApiError, path: str = "", *, last: bool = False) -> Response:
    """The answer to a request that goes no further; ``last`` on its connection if that is closed then.

    Examples
    --------
    >>> refusal(ApiError(401, "unauthorized", "who is there?"), "/v1/admin/reload").headers["www-authenticate"]
    'Bearer realm="deql"'
    """
    headers = {}
    if error.status == 401:  # what administers takes no Basic: browsers send it unasked
        asked_for = "Bearer" if is_admin(path) else "Basic"
        charset = ', charset="UTF-8"' if asked_for == "Basic" else ""
        headers["WWW-Authenticate"] = f'{asked_for} realm="deql"{charset}'
    if error.status == 503:
        headers["Retry-After"] = "1"
    if last:
        headers["Connection"] = "close"
    return error_response(error.status, error.code, error.message, headers)


def is_admin(path: str) -> bool:
    """Whether something is to be changed at this path: for that a token must be shown as no browser does by itself."""
    return path.startswith(_ADMIN) or path == UPDATE


def with_security_headers(headers: Headers, request_id: str, path: str = "") -> Headers:
    """Headers, and those that every answer has."""
    policy = _ON_PAGES if path in _PAGES else _ELSEWHERE
    ours = [*_ALWAYS, (b"content-security-policy", policy), (b"x-request-id", request_id.encode())]
    if not any(name.lower() == b"cache-control" for name, _ in headers):
        ours.append((b"cache-control", b"no-store"))
    return [*headers, *ours]


def new_id() -> str:
    """An id for a request that brings none."""
    return secrets.token_hex(8)


def too_many_connections() -> ApiError:
    """Why somebody is turned away who has just come."""
    full = "the server has as many connections as it can hold: try again in a second"
    return ApiError(503, "overloaded", full)


def too_long() -> ApiError:
    """What is said about too many bytes before the body."""
    message = f"the headers of a request may have {MOST_HEADER_BYTES:,} bytes at most"
    return ApiError(431, "invalid_request", message)
