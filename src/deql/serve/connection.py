"""One client's connection: it may not take for ever to say what it wants, or to listen.

uvicorn waits without limit for the end of a request's headers, so that a byte now and then holds a connection for good.
Here its protocol is put between a protocol and a transport that have clocks. It is the middleware that says when a
request begins, which is when its headers are complete, and when it is answered.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import logging
from functools import cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from deql.serve.middleware import CONNECTION, STARTED, new_id, refusal, with_security_headers
from deql.serve.monitoring import log
from deql.serve.schemas import ApiError

if TYPE_CHECKING:
    from uvicorn import Config
    from uvicorn.server import ServerState

    from deql.serve.settings import Settings

__all__ = ["ClientConnection"]

_MOST_HEADER_BYTES = 2**16

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
        self._http = (parser or _parser())(config, server_state, self._state, **given)
        self._loop = asyncio.get_running_loop()
        self._due: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None
        self._unparsed = 0  # bytes of a request whose headers are not complete
        self._in_flight = False

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
            self._refuse(503, "overloaded", "the server has as many connections as it can hold: try again in a second")
        else:
            self._wait()

    def connection_lost(self, error: Exception | None) -> None:
        self._stop_waiting()
        self._stop_stalling()
        self._http.connection_lost(error)

    def data_received(self, data: bytes) -> None:
        if self._transport.is_closing():  # turned away already
            return
        is_first = not self._unparsed
        if is_first:
            self._state[STARTED] = self._loop.time()
        if not self._in_flight:
            self._unparsed += len(data)
            if is_first:
                self._wait()
        self._http.data_received(data)
        if self._unparsed > _MOST_HEADER_BYTES:
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
            self._refuse(400, "invalid_request", "this is not a request that HTTP/1.1 knows")
        else:  # a request was given up when the server had to end
            self._refuse(503, "overloaded", "the server ends: try again in a second")

    def close(self) -> None:
        """Close the connection; that waits until the client has read everything, which it may never do."""
        if not self._transport.is_closing():
            self._stop_waiting()
            self._transport.close()
            self._stop_stalling()
            self._stalled = self._loop.call_later(self._seconds, self._transport.abort)

    # Our own

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
            self._refuse(408, "request_timeout", f"the headers were not complete after {self._seconds:g} seconds")
        else:  # nothing was said, so nothing is answered
            self.close()

    def _check_size(self) -> None:
        if self._unparsed > _MOST_HEADER_BYTES:
            most = f"the headers of a request may have {_MOST_HEADER_BYTES:,} bytes at most"
            self._refuse(431, "invalid_request", most)

    def _refuse(self, status: int, code: str, message: str) -> None:
        """Answer with an error that no app was asked about, and close the connection."""
        if self._transport.is_closing():
            return
        request_id = new_id()
        response = refusal(ApiError(status, code, message), last=True)
        lines = [b"%b: %b" % header for header in with_security_headers(response.raw_headers, request_id)]
        head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}".encode()
        self._transport.write(b"\r\n".join([head, *lines, b"", bytes(response.body)]))
        client = self._transport.get_extra_info("peername")
        log("refused", logging.WARNING, id=request_id, status=status, reason=message, client=client and client[0])
        self.close()


class _TimedTransport:
    """The transport as uvicorn sees it: writes and closes through the connection."""

    def __init__(self, connection: ClientConnection, transport: Any) -> None:
        self.write, self.close = connection.write, connection.close
        self._transport = transport

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


@cache
def _parser() -> Any:
    name, kind = ("httptools", "HttpToolsProtocol") if importlib.util.find_spec("httptools") else ("h11", "H11Protocol")
    return getattr(importlib.import_module(f"uvicorn.protocols.http.{name}_impl"), kind)
