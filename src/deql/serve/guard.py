"""What stands between the network and the app: who may ask, how much, for how long; and what every answer carries.

A request's body is read here, whole, before the app sees the request. So a slow or endless one is turned away in one
place, holds none of the slots for requests in flight, and no error of reading can surface inside the app.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import hmac
import ipaddress
import logging
import re
import secrets
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deql.serve.errors import ApiError, error_response
from deql.serve.logs import log
from deql.serve.metrics import Metrics
from deql.serve.settings import Settings

__all__ = ["Guard", "internal_message", "is_local", "may_pass"]

_OPEN = "/health"
"""The one path that needs no token and is answered however busy the server is."""

_PAGES = frozenset({"/", "/docs"})
_ELSEWHERE = b"default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
_ON_PAGES = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_ALWAYS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
]
_SANE_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

_HEADERS_OF = {
    401: {"WWW-Authenticate": 'Basic realm="deql", charset="UTF-8"'},
    503: {"Retry-After": "1"},
}

_DRAIN_SECONDS = 5.0
"""How long the rest of a refused body is read: clients look for an answer only once they have sent everything."""

_BODIES = 64
"""Bodies of the largest size that may be held at once; what is held is counted, so many more small ones may be."""


class Guard:
    """The outermost part of the app.

    Parameters
    ----------
    app : ASGI app
        It finds the request's id in ``scope["state"]["request_id"]``.
    settings : Settings
    metrics : Metrics
    """

    def __init__(self, app: ASGIApp, settings: Settings, metrics: Metrics) -> None:
        self._app, self._settings, self._metrics = app, settings, metrics
        self._pending = 0
        self._held = 0
        self._token = None if settings.token is None else settings.token.encode("utf-8", "surrogateescape")
        self._by_any_name = settings.token is not None or not is_local(settings.host)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        request = _Request(scope, receive, send, self._settings.timeout)
        self._metrics.in_flight.inc()
        try:
            await self._answer(request)
        finally:
            self._metrics.in_flight.dec()
            self._tell(request)

    async def _answer(self, request: _Request) -> None:
        try:
            self._check_name(request)
            if request.path != _OPEN:
                self._check_token(request)
            await self._read(request)
            if not request.gone:
                self._check_room(request)
                await self._ask(request)
        except ApiError as error:
            await request.refuse(error)
        finally:
            self._held -= len(request.body)

    def _check_name(self, request: _Request) -> None:
        """Where nobody needs a token, a web page must not get in by having its own name point at this machine."""
        name = re.sub(r":\d*$", "", request.header(b"host").decode("latin-1"))
        if not (self._by_any_name or not name or is_local(name.strip("[]"))):
            raise ApiError(
                421,
                "misdirected",
                "this server answers as localhost only: give it a --token, then it may have any name",
            )

    def _check_token(self, request: _Request) -> None:
        shown = request.header(b"authorization")
        if self._token is not None and not may_pass(shown, self._token, basic=not request.is_admin):
            raise ApiError(401, "unauthorized", "this server wants a token: Authorization: Bearer TOKEN")

    def _check_room(self, request: _Request) -> None:
        if self._pending >= self._settings.pending and request.path != _OPEN:
            raise _overloaded()

    async def _read(self, request: _Request) -> None:
        """Read the body, if there is one."""
        if not request.has_body:
            return
        most = self._settings.limits.body
        declared = request.header(b"content-length")
        if declared.isdigit() and (len(declared) > 18 or int(declared) > most):
            raise _too_large(most)
        try:
            async with asyncio.timeout_at(request.deadline):
                while request.more and not request.gone:
                    piece = await request.piece()
                    if len(request.body) + len(piece) > most:
                        raise _too_large(most)
                    if self._held + len(piece) > _BODIES * most:
                        raise _overloaded()
                    request.body += piece
                    self._held += len(piece)
        except TimeoutError:
            seconds = self._settings.timeout
            raise ApiError(
                408, "request_timeout", f"the request was not complete after {seconds:g} seconds"
            ) from None  # fmt: skip

    async def _ask(self, request: _Request) -> None:
        self._pending += 1
        try:
            # Reading a large model takes as long as it takes, and nobody but its owner waits for it.
            async with asyncio.timeout_at(None if request.is_admin else request.deadline) as limit:
                await self._app(request.scope, request.replay, request.send)
        except Exception as error:
            if not (isinstance(error, TimeoutError) and limit.expired()):
                self._failed(request, error)
            elif not request.status:
                seconds = self._settings.timeout
                raise ApiError(503, "timed_out", f"there was no answer within {seconds:g} seconds") from None
        finally:
            self._pending -= 1

    def _failed(self, request: _Request, error: Exception) -> None:
        log("error", logging.ERROR, error, id=request.id)
        if not request.status:  # else the app has said so itself, or is in the middle of an answer
            raise ApiError(500, "internal", internal_message(request.id)) from None

    def _tell(self, request: _Request) -> None:
        seconds = time.monotonic() - request.started
        # The template, or where a folder of files is mounted.
        route = getattr(request.scope.get("route"), "path", None) or request.scope.get("root_path")
        method = request.scope["method"] if request.scope["method"] in _METHODS else "other"
        # 499, as nginx has it: the client left before there was an answer.
        status = request.status or 499
        self._metrics.answered(route or "none", method, status, seconds)
        if not self._settings.quiet or status >= 500:
            client = request.scope.get("client")
            log(
                "request", id=request.id, method=method, route=route or request.path[:200], status=status,
                ms=round(1000 * seconds, 2), client=client[0] if client else None, bytes=request.sent,
            )  # fmt: skip


class _Request:
    """One request on its way: what is known of it, and the ways to answer it."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, seconds: float) -> None:
        self.scope, self.receive, self._send = scope, receive, send
        self.started = time.monotonic()
        self.deadline = asyncio.get_running_loop().time() + seconds
        self.path: str = scope["path"]
        self.is_admin = self.path.startswith("/admin/")
        self.body = bytearray()
        self.more = True  # of the body is to come
        self.gone = self._replayed = False
        self.status = self.sent = 0
        wanted = self.header(b"x-request-id")
        self.id = wanted.decode() if _SANE_ID.fullmatch(wanted) else secrets.token_hex(8)
        scope.setdefault("state", {})["request_id"] = self.id

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
            message = {**message, "headers": self._headers(list(message.get("headers", ())))}
        elif message["type"] == "http.response.body":
            self.sent += len(message.get("body", b""))
        await self._send(message)

    async def refuse(self, error: ApiError) -> None:
        """Answer with an error; if the body was not read, read its rest for a while, for nobody.

        A connection that is closed while the client still sends is reset, and the answer lost with it.
        """
        headers = dict(_HEADERS_OF.get(error.status, {}))
        if not (self.has_body and self.more):
            await error_response(error.status, error.code, error.message, headers)(self.scope, self.receive, self.send)
            return
        response = error_response(error.status, error.code, error.message, headers | {"Connection": "close"})
        await self.send({"type": "http.response.start", "status": error.status, "headers": response.raw_headers})
        await self.send({"type": "http.response.body", "body": bytes(response.body), "more_body": True})
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_DRAIN_SECONDS if error.code != "request_timeout" else 0.0):
                while self.more:
                    await self.piece()
        await self.send({"type": "http.response.body", "body": b"", "more_body": False})

    def _headers(self, headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        names = {name.lower() for name, _ in headers}
        policy = _ON_PAGES if self.path in _PAGES else _ELSEWHERE
        headers += _ALWAYS
        headers += [(b"content-security-policy", policy), (b"x-request-id", self.id.encode())]
        if b"cache-control" not in names:
            headers.append((b"cache-control", b"no-store"))
        return headers


def is_local(host: str) -> bool:
    """Whether a host is this machine, seen from itself.

    Examples
    --------
    >>> is_local("localhost"), is_local("127.0.0.1"), is_local("::1"), is_local("0.0.0.0"), is_local("127.evil.com")
    (True, True, True, False, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def internal_message(request_id: str) -> str:
    """What a client is told about an error that is ours."""
    return f"something went wrong inside the server; its log says more about the request {request_id}"


def _too_large(most: int) -> ApiError:
    return ApiError(413, "body_too_large", f"a body may have {most:,} bytes at most")


def _overloaded() -> ApiError:
    return ApiError(503, "overloaded", "the server has as many requests as it can hold: try again in a second")


def may_pass(authorization: bytes, token: bytes, *, basic: bool = True) -> bool:
    """Whether a header shows the token: as Bearer, or as the password of Basic, which browsers ask people for.

    The time it takes tells nothing about the token. A browser also sends Basic where another site sends it, so what
    changes something should not accept that.

    Examples
    --------
    >>> may_pass(b"Bearer tea", b"tea"), may_pass(b"Basic " + base64.b64encode(b"me:tea"), b"tea")
    (True, True)
    >>> may_pass(b"Bearer te", b"tea"), may_pass(b"Basic !", b"tea"), may_pass(b"", b"tea")
    (False, False, False)
    """
    scheme, _, shown = authorization.partition(b" ")
    shown = shown.strip(b" ")
    if scheme.lower() == b"basic" and basic:
        try:
            shown = base64.b64decode(shown, validate=True).partition(b":")[2]
        except (binascii.Error, ValueError):
            return False
    elif scheme.lower() != b"bearer":
        return False
    return hmac.compare_digest(shown, token)
