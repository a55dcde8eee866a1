"""One request and its answer, between uvicorn and the app; and what every answer carries, whoever gives it."""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
import time

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from deql.serve.errors import ApiError, error_response

__all__ = ["BEGAN", "Exchange", "new_id", "refusal", "with_our_headers"]

BEGAN = "began"
"""Where, in a scope's state, the protocol puts the event loop's time of the request's first byte."""

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


class Exchange:
    """A request on its way: what is known of it, and the ways to answer it.

    Parameters
    ----------
    scope, receive, send
        As the server gave them. The app finds the request's id in ``scope["state"]["request_id"]``.
    seconds : float
        How long it may take, from its first byte on.
    """

    def __init__(self, scope: Scope, receive: Receive, send: Send, seconds: float) -> None:
        self.scope, self.receive, self._send = scope, receive, send
        self.started = time.monotonic()
        state = scope.setdefault("state", {})
        self.deadline = state.get(BEGAN, asyncio.get_running_loop().time()) + seconds
        self.path: str = scope["path"]
        self.is_admin = self.path.startswith("/admin/")
        self.body = bytearray()
        self.more = True  # of the body is to come
        self.gone = self._replayed = False
        self.status = self.sent = 0
        wanted = self.header(b"x-request-id")
        self.id = state["request_id"] = wanted.decode() if _SANE_ID.fullmatch(wanted) else new_id()

    def header(self, name: bytes) -> bytes:
        """The first header of this name; empty without one."""
        return next((value for key, value in self.scope["headers"] if key == name), b"")

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
            message = {**message, "headers": with_our_headers(message.get("headers", []), self.id, self.path)}
        elif message["type"] == "http.response.body":
            self.sent += len(message.get("body", b""))
        await self._send(message)

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
    >>> refusal(ApiError(401, "unauthorized", "who is there?"), "/admin/reload").headers["www-authenticate"]
    'Bearer realm="deql"'
    """
    headers = {}
    if error.status == 401:  # what administers takes no Basic: browsers send it unasked
        asked_for = "Bearer" if path.startswith("/admin/") else "Basic"
        charset = ', charset="UTF-8"' if asked_for == "Basic" else ""
        headers["WWW-Authenticate"] = f'{asked_for} realm="deql"{charset}'
    if error.status == 503:
        headers["Retry-After"] = "1"
    if last:
        headers["Connection"] = "close"
    return error_response(error.status, error.code, error.message, headers)


def with_our_headers(headers: Headers, request_id: str, path: str = "") -> Headers:
    """Headers, and those that every answer has."""
    policy = _ON_PAGES if path in _PAGES else _ELSEWHERE
    ours = [*_ALWAYS, (b"content-security-policy", policy), (b"x-request-id", request_id.encode())]
    if not any(name.lower() == b"cache-control" for name, _ in headers):
        ours.append((b"cache-control", b"no-store"))
    return [*headers, *ours]


def new_id() -> str:
    """An id for a request that brings none."""
    return secrets.token_hex(8)
