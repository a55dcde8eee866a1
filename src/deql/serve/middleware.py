"""What stands between the network and the app: who may ask, how much, and for how long.

A request's body is read here, whole, before the app sees the request. So a slow or endless one is turned away in one
place, holds none of the slots for requests in flight, and no error of reading can surface inside the app.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, nullcontext

from starlette.types import ASGIApp, Receive, Scope, Send

from deql.serve.access import host_is_allowed, shows_token
from deql.serve.monitoring import Metrics, log
from deql.serve.request_context import PARSED, RequestContext, too_many_connections
from deql.serve.schemas import ApiError
from deql.serve.settings import Settings

__all__ = ["RequestMiddleware", "internal_message"]

_OPEN = "/health"
"""The one path that needs no token."""

_PROBES = frozenset({_OPEN, "/ready", "/metrics"})
"""What is answered however busy the server is: were it not, whoever watches would restart a server that is well."""

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

_BODIES = 64
"""Bodies of the largest size that may be held at once; what is held is counted, so many more small ones may be."""

_LONG_BODY = 2**16
_LONG_AT_ONCE = 2
"""Longer bodies that are parsed before the event loop turns to something else."""


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
            request.check_form()
            if request.is_spare and request.path not in _PROBES:
                raise too_many_connections()
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
        if self._pending >= self.settings.pending and request.path not in _PROBES:
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

    def _turn(self, request: RequestContext) -> AbstractAsyncContextManager[None]:
        """Parsing a long body stops the event loop for a moment: others are answered between two of them.

        A reload parses none, and may take minutes.
        """
        return self._parsing(request) if len(request.body) > _LONG_BODY and request.is_parsed else nullcontext()

    @asynccontextmanager
    async def _parsing(self, request: RequestContext) -> AsyncIterator[None]:
        """Have a slot until the app says that it has parsed the body: who waits to be ranked holds none."""
        await self._long.acquire()
        with ExitStack() as slot:
            slot.callback(self._long.release)
            request.scope["state"][PARSED] = slot.close  # which does so once
            yield

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


def internal_message(request_id: str) -> str:
    """What a client is told about an error that is ours."""
    return f"something went wrong inside the server; its log says more about the request {request_id}"


def _too_large(most: int) -> ApiError:
    return ApiError(413, "body_too_large", f"a body may have {most:,} bytes at most")


def _overloaded() -> ApiError:
    return ApiError(503, "overloaded", "the server has as many requests as it can hold: try again in a second")
