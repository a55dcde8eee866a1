"""One client's connection: it may not take for ever to say what it wants, or to listen.

uvicorn waits without limit for the end of a request's headers, so that a byte now and then holds a connection for good.
Here its protocol is put between a protocol and a transport that have clocks. It is the middleware that says when a
request begins, which is when its headers are complete, and when it is answered.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import importlib.util
import logging
from functools import cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from deql.serve.monitoring import log
from deql.serve.request_context import (
    CONNECTION,
    MOST_HEADER_BYTES,
    STARTED,
    TARGET,
    new_id,
    refusal,
    too_long,
    with_security_headers,
)
from deql.serve.schemas import ApiError

if TYPE_CHECKING:
    from uvicorn import Config
    from uvicorn.server import ServerState

    from deql.serve.settings import Settings

__all__ = ["ClientConnection"]

_LINGER_SECONDS = 2.0
"""For a client to read why it is refused: one that still sends looks later, and would find the connection reset."""

_MOST_PIPELINED = 100
"""Requests that a client may send before it has the answer to the first; browsers and libraries wait for each."""


class ClientConnection(asyncio.Protocol):
    """Limits around a protocol of uvicorn, to be given as its setting ``http``.

    A client has ``settings.timeout`` seconds from connecting to the first byte; from there to the end of the headers;
    and for reading some of an answer that is being sent. There are ``settings.connections`` at once.

    Parameters
    ----------
    config, server_state
        What uvicorn gives to its protocols. The app of the one is a :class:`~deql.serve.middleware.RequestMiddleware`,
        whose settings say how long and how many.
    app_state : dict
        Copied by uvicorn into the state of each request, with the time of the request's first byte and this connection.
    parser : type, optional
        The protocol of uvicorn: on httptools if not given and installed, else on h11, which uvicorn always brings.
    **given
        Whatever else uvicorn gives to its protocols.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        parser: Any = None,
        **given: Any,
    ) -> None:
        settings: Settings = config.loaded_app.settings
        self._seconds, self._most = settings.timeout, settings.connections
        self._connections = server_state.connections
        self._state = {**app_state, CONNECTION: self}
        self._http = _with_target(parser or _parser())(config, server_state, self._state, **given)
        self._loop = asyncio.get_running_loop()
        self._due: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None
        self._unparsed = 0  # bytes of a request whose headers are not complete
        self._in_flight = self._lingers = False

    # What the middleware says

    def begin(self) -> None:
        """The headers of a request are complete."""
        self._in_flight = True
        self._stop_waiting()

    def finish(self) -> None:
        """The request is answered."""
        self._in_flight = False

    # What the event loop says

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport
        self._http.connection_made(_TimedTransport(self, transport))
        if len(self._connections) > self._most:
            full = "the server has as many connections as it can hold: try again in a second"
            self._refuse(ApiError(503, "overloaded", full))
        else:
            self._wait()

    def connection_lost(self, error: Exception | None) -> None:
        self._stop_waiting()
        self._stop_stalling()
        self._http.connection_lost(error)

    def data_received(self, data: bytes) -> None:
        if self._transport.is_closing() or self._lingers:  # turned away already
            return
        is_first = not self._unparsed
        if is_first:
            self._state[STARTED] = self._loop.time()
        if not self._in_flight:
            self._unparsed += len(data)
            if is_first:
                self._wait()
        self._http.data_received(data)
        if self._unparsed > MOST_HEADER_BYTES:
            self._loop.call_soon(self._check_size)  # if the headers are complete, the request begins before that
        if len(getattr(self._http, "pipeline", ())) > _MOST_PIPELINED:  # uvicorn reads on; h11 keeps no such queue
            self._transport.abort()

    def eof_received(self) -> bool | None:
        end: bool | None = self._http.eof_received()
        return end

    def pause_writing(self) -> None:
        # Whoever sends waits now until the client has read something.
        self._stalled = self._loop.call_later(self._seconds, self._transport.abort)
        self._http.pause_writing()

    def resume_writing(self) -> None:
        self._stop_stalling()
        self._http.resume_writing()

    # What uvicorn says

    def write(self, data: bytes) -> None:
        """Pass on what belongs to the answer of a request; say the rest ourselves, in the form of all our errors."""
        if self._in_flight:
            self._transport.write(data)
        elif data[9:12] == b"400":
            not_http = ApiError(400, "invalid_request", "this is not a request that HTTP/1.1 knows")
            self._refuse(too_long() if self._unparsed > MOST_HEADER_BYTES else not_http, linger=True)
        else:  # a request was given up when the server had to end
            self._refuse(ApiError(503, "overloaded", "the server ends: try again in a second"))

    def close(self) -> None:
        """Close the connection, unless what it was refused for is still being told."""
        if not self._lingers:
            self._close()

    # Our own

    def _close(self) -> None:
        """That waits until the client has read everything, which it may never do."""
        if not self._transport.is_closing():
            self._stop_waiting()
            self._transport.close()
            self._stop_stalling()
            self._stalled = self._loop.call_later(self._seconds, self._transport.abort)

    def _wait(self) -> None:
        """Begin to wait for the end of a request's headers, or for its first byte."""
        if self._due is not None:
            self._due.cancel()
        self._due = self._loop.call_later(self._seconds, self._too_slow)

    def _stop_waiting(self) -> None:
        self._unparsed = 0
        if self._due is not None:
            self._due.cancel()
            self._due = None

    def _stop_stalling(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def _too_slow(self) -> None:
        if self._unparsed:
            late = f"the headers were not complete after {self._seconds:g} seconds"
            self._refuse(ApiError(408, "request_timeout", late))
        else:  # nothing was said, so nothing is answered
            self._close()

    def _check_size(self) -> None:
        if self._unparsed > MOST_HEADER_BYTES:
            self._refuse(too_long(), linger=True)

    def _refuse(self, error: ApiError, *, linger: bool = False) -> None:
        """Answer with an error that no app was asked about, and close the connection: later, if the client sends on."""
        if self._transport.is_closing() or self._lingers:
            return
        request_id = new_id()
        response = refusal(error, last=True)
        lines = [b"%b: %b" % header for header in with_security_headers(response.raw_headers, request_id)]
        head = f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}".encode()
        self._transport.write(b"\r\n".join([head, *lines, b"", bytes(response.body)]))
        client = self._transport.get_extra_info("peername")
        log(
            "refused",
            logging.WARNING,
            id=request_id,
            status=error.status,
            reason=error.message,
            client=client and client[0],
        )
        if linger:
            self._stop_waiting()
            self._lingers = True
            with contextlib.suppress(OSError, NotImplementedError):
                self._transport.write_eof()
            self._due = self._loop.call_later(_LINGER_SECONDS, self._close)
        else:
            self._close()


class _TimedTransport:
    """The transport as uvicorn sees it: writes and closes through the connection."""

    def __init__(self, connection: ClientConnection, transport: Any) -> None:
        self.write, self.close = connection.write, connection.close
        self._transport = transport

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


@cache
def _with_target(parser: Any) -> Any:
    """A protocol of uvicorn that tells of addresses with a host in them; the one on h11 does so in the path."""
    if not hasattr(parser, "on_headers_complete"):
        return parser

    def on_headers_complete(self: Any) -> None:
        if not self.url.startswith(b"/"):
            self.scope["state"][TARGET], self.url = self.url, b"/"
        parser.on_headers_complete(self)

    return type(parser.__name__, (parser,), {"on_headers_complete": on_headers_complete})


@cache
def _parser() -> Any:
    name, kind = ("httptools", "HttpToolsProtocol") if importlib.util.find_spec("httptools") else ("h11", "H11Protocol")
    return getattr(importlib.import_module(f"uvicorn.protocols.http.{name}_impl"), kind)
