"""What stands between the network and the app: who may ask, how much, and for how long.

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
from contextlib import AbstractAsyncContextManager, nullcontext
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deql.serve.monitoring import Metrics, log
from deql.serve.schemas import ApiError, error_response
from deql.serve.settings import Settings

__all__ = [
    "CHECKSUM",
    "CONNECTION",
    "MOST_HEADER_BYTES",
    "STARTED",
    "TARGET",
    "RequestContext",
    "RequestMiddleware",
    "host_is_allowed",
    "internal_message",
    "new_id",
    "refusal",
    "shows_token",
    "too_long",
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

MOST_HEADER_BYTES = 2**16
"""Of a request's address and headers together."""

_ABSOLUTE = re.compile(
    rb"https?://(?:[^/?#@]*@)?(?P<host>(?:\[[0-9a-f:.]+\]|[^\]\[/?#@:]+)(?::[0-9]*)?)"
    rb"(?P<path>/[^?#]*)?(?:\?(?P<query>[^#]*))?(?:#.*)?",
    re.IGNORECASE,
)

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

_OPEN = "/health"
"""The one path that needs no token and is answered however busy the server is."""

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

_BODIES = 64
"""Bodies of the largest size that may be held at once; what is held is counted, so many more small ones may be."""

_LONG_BODY = 2**16
_LONG_AT_ONCE = 2
"""Requests with longer bodies that are worked on at once; others wait, so that the first are answered in time."""


class RequestMiddleware:
    """The outermost part of the app.

    Parameters
    ----------
    app : ASGI app
    settings : Settings
    metrics : Metrics
    """

    def __init__(self, app: ASGIApp, settings: Settings, metrics: Metrics) -> None:
        self._app, self.settings, self._metrics = app, settings, metrics
        self._pending = 0
        self._held = 0
        self._long = asyncio.Semaphore(_LONG_AT_ONCE)
        self._token = None if settings.token is None else settings.token.encode("utf-8", "surrogateescape")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        request = RequestContext(scope, receive, send, self.settings.timeout)
        self._metrics.in_flight.inc()
        try:
            await self._answer(request)
        finally:
            request.finish()
            self._metrics.in_flight.dec()
            self._tell(request)

    async def _answer(self, request: RequestContext) -> None:
        try:
            _check_form(request)
            self._check_host(request)
            if request.path != _OPEN:
                self._check_token(request)
            await self._read(request)
            if not request.gone:
                self._check_load(request)
                await self._ask(request)
        except ApiError as error:
            await request.refuse(error)
        finally:
            self._held -= len(request.body)

    def _check_host(self, request: RequestContext) -> None:
        """Where nobody needs a token, a web page must not get in by having its own name point at this machine."""
        if self._token is None and not host_is_allowed(request.host, self.settings.host):
            raise ApiError(
                421,
                "misdirected",
                "without a --token this server answers only as localhost, as its --host or by its address",
            )

    def _check_token(self, request: RequestContext) -> None:
        shown = request.header(b"authorization")
        if self._token is not None and not shows_token(shown, self._token, basic=not request.is_admin):
            raise ApiError(401, "unauthorized", "this server wants a token: Authorization: Bearer TOKEN")

    def _check_load(self, request: RequestContext) -> None:
        if self._pending >= self.settings.pending and request.path != _OPEN:
            raise _overloaded()

    async def _read(self, request: RequestContext) -> None:
        """Read the body, if there is one."""
        if not request.has_body:
            return
        most = self.settings.limits.body
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
            seconds = self.settings.timeout
            raise ApiError(
                408, "request_timeout", f"the request was not complete after {seconds:g} seconds"
            ) from None  # fmt: skip

    async def _ask(self, request: RequestContext) -> None:
        self._pending += 1
        try:
            # Reading a large model takes as long as it takes, and nobody but its owner waits for it.
            async with asyncio.timeout_at(None if request.is_admin else request.deadline) as limit, self._turn(request):
                await self._app(request.scope, request.replay, request.send)
        except Exception as error:
            if not (isinstance(error, TimeoutError) and limit.expired()):
                self._failed(request, error)
            elif not request.status:
                seconds = self.settings.timeout
                raise ApiError(503, "timed_out", f"there was no answer within {seconds:g} seconds") from None
        finally:
            self._pending -= 1

    def _turn(self, request: RequestContext) -> AbstractAsyncContextManager[Any]:
        """Parsing a long body stops the event loop for a moment: others are answered between two of them."""
        return self._long if len(request.body) > _LONG_BODY else nullcontext()

    def _failed(self, request: RequestContext, error: Exception) -> None:
        log("error", logging.ERROR, error, id=request.id)
        if not request.status:  # else the app has said so itself, or is in the middle of an answer
            raise ApiError(500, "internal", internal_message(request.id)) from None

    def _tell(self, request: RequestContext) -> None:
        seconds = time.monotonic() - request.started
        # The template, or where a folder of files is mounted.
        route = getattr(request.scope.get("route"), "path", None) or request.scope.get("root_path")
        method = request.method if request.method in _METHODS else "other"
        # 499, as nginx has it: the client left before there was an answer.
        status = request.status or 499
        self._metrics.answered(route or "none", method, status, seconds)
        if not self.settings.quiet or status >= 500:
            client = request.scope.get("client")
            log(
                "request", id=request.id, method=method, route=route or request.path[:200], status=status,
                ms=round(1000 * seconds, 2), client=client[0] if client else None, bytes=request.sent,
            )  # fmt: skip


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
        if self._connection is not None:
            self._connection.begin()
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

    @property
    def is_admin(self) -> bool:
        """Whether something is to be changed."""
        return _is_admin(self.path)

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


def _check_form(request: RequestContext) -> None:
    """Refuse what parsers let through although HTTP does not; take an absolute address apart."""
    scope = request.scope
    target = scope["state"].pop(TARGET, None)
    if target is None and not request.path.startswith("/"):  # h11 takes it for a path
        target = scope["raw_path"] + b"?" * bool(scope["query_string"]) + scope["query_string"]
    in_address = target or scope.get("raw_path", b"") + scope.get("query_string", b"")
    size = len(in_address) + sum(len(name) + len(value) + 4 for name, value in scope["headers"])
    if size > MOST_HEADER_BYTES:
        raise too_long()
    if sum(name == b"host" for name, _ in scope["headers"]) > 1:
        raise ApiError(400, "invalid_request", "there is more than one Host header: send one")
    if target is not None:
        _use_absolute(request, target)


def _use_absolute(request: RequestContext, target: bytes) -> None:
    """An address with a host in it is asked of that host, whatever the header says."""
    found = _ABSOLUTE.fullmatch(target)
    if found is None:
        raise ApiError(400, "invalid_request", "the address must begin with a slash, or with http:// and a host")
    raw_path, request.host = found["path"] or b"/", found["host"]
    request.path = unquote(raw_path.decode("latin-1"))
    request.scope.update({"path": request.path, "raw_path": raw_path, "query_string": found["query"] or b""})


def refusal(error: ApiError, path: str = "", *, last: bool = False) -> Response:
    """The answer to a request that goes no further; ``last`` on its connection if that is closed then.

    Examples
    --------
    >>> refusal(ApiError(401, "unauthorized", "who is there?"), "/v1/admin/reload").headers["www-authenticate"]
    'Bearer realm="deql"'
    """
    headers = {}
    if error.status == 401:  # what administers takes no Basic: browsers send it unasked
        asked_for = "Bearer" if _is_admin(path) else "Basic"
        charset = ', charset="UTF-8"' if asked_for == "Basic" else ""
        headers["WWW-Authenticate"] = f'{asked_for} realm="deql"{charset}'
    if error.status == 503:
        headers["Retry-After"] = "1"
    if last:
        headers["Connection"] = "close"
    return error_response(error.status, error.code, error.message, headers)


def _is_admin(path: str) -> bool:
    return path.startswith(("/v1/admin/", "/admin/"))


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


def internal_message(request_id: str) -> str:
    """What a client is told about an error that is ours."""
    return f"something went wrong inside the server; its log says more about the request {request_id}"


def too_long() -> ApiError:
    """What is said about too many bytes before the body."""
    message = f"the headers of a request may have {MOST_HEADER_BYTES:,} bytes at most"
    return ApiError(431, "invalid_request", message)


def _too_large(most: int) -> ApiError:
    return ApiError(413, "body_too_large", f"a body may have {most:,} bytes at most")


def _overloaded() -> ApiError:
    return ApiError(503, "overloaded", "the server has as many requests as it can hold: try again in a second")


def host_is_allowed(host: bytes, own: str) -> bool:
    """Whether the Host header of a request without a token is one that no web page can make up.

    A page of another site reaches this server by having that site's name point here. An address is nobody's name,
    ``localhost`` neither, and the name that the server was told to listen at is its own.

    Examples
    --------
    >>> [host_is_allowed(host, "shop.lan") for host in (b"localhost:8000", b"10.0.0.7", b"[::1]:80", b"Shop.lan:8000")]
    [True, True, True, True]
    >>> host_is_allowed(b"evil.example", "shop.lan"), host_is_allowed(b"10.0.0.7.evil.example", "0.0.0.0")
    (False, False)
    """
    name = re.sub(r":\d*$", "", host.decode("latin-1")).lower()
    if name in ("", "localhost", own.lower()):  # browsers always send one
        return True
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


def shows_token(authorization: bytes, token: bytes, *, basic: bool = True) -> bool:
    """Whether a header shows the token: as Bearer, or as the password of Basic, which browsers ask people for.

    The time it takes tells nothing about the token. A browser also sends Basic where another site sends it, so what
    changes something should not accept that.

    Examples
    --------
    >>> shows_token(b"Bearer tea", b"tea"), shows_token(b"Basic " + base64.b64encode(b"me:tea"), b"tea")
    (True, True)
    >>> shows_token(b"Bearer te", b"tea"), shows_token(b"Basic !", b"tea"), shows_token(b"", b"tea")
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
