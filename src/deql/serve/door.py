"""How workers share the connections that come to one socket.

Left to themselves, the worker that wakes first takes each, and is still awake when the next one comes. So who has more
connections than another waits a moment before it takes one.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import mmap
import os
import socket
import struct
from collections.abc import Callable, Sized

from deql.serve.logs import log

__all__ = ["Counts", "Door", "counts_file", "left"]

_MOMENT = 0.002
_FULL_SECONDS = 1.0
_NOBODY = 2**31 - 1
"""The count of a worker that takes no connections, so that nobody waits for it."""

_COUNT = struct.Struct("i")


def counts_file(folder: str, workers: int) -> int:
    """An open file, for all workers to say in how many connections each has."""
    file = os.open(os.path.join(folder, "connections"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    for place in range(workers):
        left(file, place)
    return file


def left(file: int, place: int) -> None:
    """Say that the worker of a place is not there; who ends in good order says so itself."""
    os.pwrite(file, _COUNT.pack(_NOBODY), place * _COUNT.size)


class Counts:
    """How many connections each worker has; any may read them all, and writes its own.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = counts_file(folder, workers=2)
    >>> one = Counts(file, 0)
    >>> one.say(3)
    >>> one.least
    3
    >>> other = Counts(file, 1)
    >>> one.least
    0
    >>> left(file, 1)  # it died
    >>> one.least
    3
    >>> os.close(file)
    """

    def __init__(self, file: int, place: int) -> None:
        self._all = memoryview(mmap.mmap(file, 0)).cast("i")
        self._place = place
        self.say(0)

    @property
    def least(self) -> int:
        """That of the worker that has fewest."""
        return min(self._all)

    def say(self, count: int) -> None:
        """Set this worker's."""
        self._all[self._place] = count


class Door:
    """Takes connections, in the event loop.

    Parameters
    ----------
    listener : socket
        Closed with the door.
    counts : Counts
    connections : sized
        Those that this worker has.
    protocol : callable
        Makes what talks to a new one.
    """

    def __init__(
        self, listener: socket.socket, counts: Counts, connections: Sized, protocol: Callable[[], asyncio.Protocol]
    ) -> None:
        listener.setblocking(False)
        self._listener, self._counts, self._connections, self._protocol = listener, counts, connections, protocol
        self._coming: set[asyncio.Task[object]] = set()
        self._waiting: asyncio.TimerHandle | None = None
        self._is_open = True
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(listener, self._knocked)

    def close(self) -> None:
        """Take no more."""
        self._loop.remove_reader(self._listener)
        if self._waiting is not None:
            self._waiting.cancel()
        self._listener.close()
        self._is_open = False
        self.say()

    def say(self) -> int:
        """Tell the others how many connections there are here."""
        count = len(self._connections) + len(self._coming) if self._is_open else _NOBODY
        self._counts.say(count)
        return count

    def _knocked(self) -> None:
        if self.say() > self._counts.least:
            self._wait(_MOMENT)
        else:
            self._take()

    def _wait(self, seconds: float) -> None:
        self._loop.remove_reader(self._listener)
        self._waiting = self._loop.call_later(seconds, self._waited)

    def _waited(self) -> None:
        self._loop.add_reader(self._listener, self._knocked)
        self._take()

    def _take(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):  # another took it, or it is gone
            return
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                raise
            log("accept", logging.ERROR, reason=str(error))
            self._wait(_FULL_SECONDS)
            return
        connection.setblocking(False)
        task = self._loop.create_task(self._loop.connect_accepted_socket(self._protocol, connection))
        self._coming.add(task)
        task.add_done_callback(self._came)

    def _came(self, task: asyncio.Task[object]) -> None:
        self._coming.discard(task)
        self.say()
        if not task.cancelled() and task.exception() is not None:
            log("accept", logging.ERROR, task.exception())
