"""uvicorn's HTTP protocols, less patient: a client may not take for ever to say what it wants, or to listen.

uvicorn waits without limit for the end of a request's headers, so that a byte now and then holds a connection for good.
"""

from __future__ import annotations

import asyncio
import importlib.util
import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from deql.serve.errors import ApiError
from deql.serve.exchange import BEGAN, new_id, refusal, with_our_headers
from deql.serve.logs import log

__all__ = ["Impatient", "protocol_class"]

_MOST_HEADER_BYTES = 2**16

_MOST_PIPELINED = 100
"""Requests that a client may send before it has the answer to the first; browsers and libraries wait for each."""


class Impatient:
    """Mixed into a protocol of uvicorn, before it.

    Attributes
    ----------
    seconds : float
        From connecting to the first byte; from there to the end of the headers (and of the request, see
        :mod:`deql.serve.exchange`, which is told when it began); and for reading some of an answer that is being sent.
    most : int
        Connections at once.
    """

    seconds: float = 10.0
    most: int = 1024

    if TYPE_CHECKING:  # what uvicorn's protocols have
        transport: asyncio.Transport
        loop: asyncio.AbstractEventLoop
        connections: set[Any]
        cycle: Any
        client: tuple[str, int] | None

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.app_state: dict[str, Any] = dict(self.app_state)  # uvicorn copies it into the scope of each request
        self._due: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None
        self._unparsed = 0

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)  # type: ignore[misc]
        if len(self.connections) > self.most:
            self._end(503, "overloaded", "the server has as many connections as it can hold: try again in a second")
        else:
            self._wait()

    def connection_lost(self, error: Exception | None) -> None:
        self._stop_waiting()
        self._moves()
        super().connection_lost(error)  # type: ignore[misc]

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():  # turned away already
            return
        is_first = not self._unparsed
        if is_first:
            self.app_state[BEGAN] = self.loop.time()
        self._unparsed += len(data)
        super().data_received(data)  # type: ignore[misc]
        if len(getattr(self, "pipeline", ())) > _MOST_PIPELINED:  # uvicorn reads on; h11 keeps no such queue
            self.transport.abort()
        elif self.cycle is not None and not self.cycle.response_complete:  # the headers are here
            self._stop_waiting()
        elif self._unparsed > _MOST_HEADER_BYTES:
            self._end(431, "invalid_request", f"the headers of a request may have {_MOST_HEADER_BYTES:,} bytes at most")
        elif is_first and not self.transport.is_closing():
            self._wait()

    def send_400_response(self, message: str) -> None:
        self._end(400, "invalid_request", "this is not a request that HTTP/1.1 knows")

    def pause_writing(self) -> None:
        # Whoever sends waits now until the client has read something.
        self._stalled = self.loop.call_later(self.seconds, self.transport.abort)
        super().pause_writing()  # type: ignore[misc]

    def resume_writing(self) -> None:
        self._moves()
        super().resume_writing()  # type: ignore[misc]

    def _moves(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()  # type: ignore[misc]
        self._abort_later()

    def _wait(self) -> None:
        """Begin to wait for the end of a request's headers, or for its first byte."""
        if self._due is not None:
            self._due.cancel()
        self._due = self.loop.call_later(self.seconds, self._too_slow)

    def _stop_waiting(self) -> None:
        self._unparsed = 0
        if self._due is not None:
            self._due.cancel()
            self._due = None

    def _too_slow(self) -> None:
        if self._unparsed:
            self._end(408, "request_timeout", f"the headers were not complete after {self.seconds:g} seconds")
        else:  # nothing was said, so nothing is answered
            self._end()

    def _end(self, status: int = 0, code: str = "", message: str = "") -> None:
        """Close the connection, after an answer if there is one to give."""
        if self.transport.is_closing():
            return
        self._stop_waiting()
        if status:
            request_id = new_id()
            response = refusal(ApiError(status, code, message), last=True)
            lines = [b"%b: %b" % header for header in with_our_headers(response.raw_headers, request_id)]
            head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}".encode()
            self.transport.write(b"\r\n".join([head, *lines, b"", bytes(response.body)]))
            client = self.client[0] if self.client else None
            log("refused", logging.WARNING, id=request_id, status=status, reason=message, client=client)
        self.transport.close()
        self._abort_later()

    def _abort_later(self) -> None:
        """Closing waits until the client has read everything, which it may never do."""
        self.loop.call_later(self.seconds, self.transport.abort)


def protocol_class(seconds: float, connections: int) -> type[asyncio.Protocol]:
    """The protocol for a worker: on httptools if it is there, else on h11, which uvicorn always brings."""
    name = "httptools" if importlib.util.find_spec("httptools") else "h11"
    module = importlib.import_module(f"uvicorn.protocols.http.{name}_impl")
    base = module.HttpToolsProtocol if name == "httptools" else module.H11Protocol
    return type("ServeProtocol", (Impatient, base), {"seconds": seconds, "most": connections})
