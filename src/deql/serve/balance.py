"""About as many connections for each worker: all take them from one socket, and tell each other how many they have."""

from __future__ import annotations

import array
import asyncio
import errno
import importlib
import importlib.util
import logging
import mmap
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from deql.errors import DeqlError
from deql.serve.monitoring import FOLDER, log

__all__ = ["BalancedServer", "new_event_loop", "prepare_counts"]

_CONNECTIONS = "connections"
"""The file, in the folder that is the server's own, in which workers say how many connections each has."""

_NOBODY = 2**31 - 1
"""The count of a worker that takes no connections, so that nobody waits for it."""

_MOMENT = 0.002
"""Seconds that a worker leaves a new connection to others that have fewer."""

_FULL_SECONDS = 1.0
_TELL_SECONDS = 0.1


def prepare_counts(folder: str, workers: int) -> None:
    """Make the file of counts, with places to spare: all workers may be replaced while the old ones still end."""
    Path(folder, _CONNECTIONS).write_bytes(array.array("i", [_NOBODY] * (2 * workers + 1)).tobytes())


class BalancedServer:
    """Takes connections from a socket that several workers share, about as many as each of the others.

    Left to themselves, the worker that wakes first takes each, and is still awake when the next one comes. So who has
    more connections than another waits a moment before it takes one. How many each has is in a file that all map.

    Parameters
    ----------
    loop : event loop
    listener : socket
        Closed with the server.
    protocol : callable
        Makes what talks to a new connection: a :class:`~deql.serve.connection.ClientConnection`.
    counts : path
        The file, of 32-bit integers. A worker's place is the first that no other has locked, as long as it lives.
    """

    def __init__(
        self, loop: Any, listener: socket.socket, protocol: Callable[[], asyncio.Protocol], counts: Path
    ) -> None:
        listener.setblocking(False)
        self._loop, self._listener, self._protocol = loop, listener, protocol
        self._file = counts.open("r+b")  # open for good: the lock goes with it
        self._counts = memoryview(mmap.mmap(self._file.fileno(), 0)).cast("i")
        self._place = self._take_place()
        self._open: set[Any] = set()  # tasks that set up a connection, then transports
        self._waiting: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._tell()
        loop.add_reader(listener, self._on_readable)

    def close(self) -> None:
        """Take no more connections; those that wait to be taken are, and told that the server ends."""
        self._is_closed = True
        while self._accept():
            pass
        self._loop.remove_reader(self._listener)
        for timer in (self._waiting, self._telling):
            if timer is not None:
                timer.cancel()
        self._listener.close()
        self._counts[self._place] = _NOBODY
        self._file.close()

    async def wait_closed(self) -> None:
        """Nothing is left to wait for."""

    def _take_place(self) -> int:
        for place in range(len(self._counts)):
            if self._lock(place):
                return place
        self._file.close()
        raise DeqlError(
            f"all {len(self._counts)} places for counts of connections are taken: "
            "workers that were replaced do not end, as they may wait for a device; see to these processes first"
        )

    def _lock(self, place: int) -> bool:
        import fcntl  # not on Windows, where the server says so itself

        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 4, 4 * place)
        except OSError:
            return False
        return True

    def _tell(self) -> None:
        self._count()
        self._telling = self._loop.call_later(_TELL_SECONDS, self._tell)

    def _count(self) -> int:
        """Tell the others how many connections there are here."""
        self._open = {one for one in self._open if isinstance(one, asyncio.Task) or not one.is_closing()}
        count = self._counts[self._place] = len(self._open)
        return count

    def _on_readable(self) -> None:
        if self._count() > min(self._counts):
            self._wait(_MOMENT)
        else:
            self._accept()

    def _wait(self, seconds: float) -> None:
        self._loop.remove_reader(self._listener)
        self._waiting = self._loop.call_later(seconds, self._on_waited)

    def _on_waited(self) -> None:
        self._loop.add_reader(self._listener, self._on_readable)
        self._accept()

    def _accept(self) -> bool:
        """Take a connection; whether there was one."""
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):  # another took it, or it is gone
            return False
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                raise
            log("accept", logging.ERROR, reason=str(error))
            self._wait(_FULL_SECONDS)
            return False
        connection.setblocking(False)
        task = self._loop.create_task(self._loop.connect_accepted_socket(self._protocol, connection))
        self._open.add(task)
        task.add_done_callback(self._on_accepted)
        return True

    def _on_accepted(self, task: asyncio.Task[Any]) -> None:
        self._open.discard(task)
        if task.cancelled() or task.exception() is not None:
            log("accept", logging.ERROR, None if task.cancelled() else task.exception())
        else:
            transport, protocol = task.result()
            self._open.add(transport)
            if self._is_closed:
                protocol.end()


def new_event_loop() -> Any:
    """For uvicorn's setting ``loop``: its usual one, with a :class:`BalancedServer` for the socket of all workers."""
    base = importlib.import_module("uvloop").Loop if importlib.util.find_spec("uvloop") else asyncio.SelectorEventLoop

    async def create_server(self: Any, protocol: Callable[[], asyncio.Protocol], *, sock: Any, **given: Any) -> Any:
        try:
            return BalancedServer(self, sock, protocol, Path(os.environ[FOLDER], _CONNECTIONS))
        except DeqlError as error:  # uvicorn would show a traceback
            log("worker_failed", logging.CRITICAL, reason=str(error))
            sys.exit(1)

    return type("BalancedLoop", (base,), {"create_server": create_server})()
