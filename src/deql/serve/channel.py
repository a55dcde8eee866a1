"""Messages between the supervisor and a worker: JSON, with open files alongside."""

from __future__ import annotations

import array
import json
import os
import socket
import struct
import threading
from collections.abc import Mapping
from typing import Any, NamedTuple

__all__ = ["Channel", "Message", "pair"]

_LENGTH = struct.Struct("!I")
_MOST_FILES = 8


class Message(NamedTuple):
    """What came: plain values, and files by name. Who receives files closes them."""

    body: dict[str, Any]
    files: dict[str, int]


class Channel:
    """One end of a pair; any thread may send, one receives.

    Parameters
    ----------
    end : socket
        A Unix stream socket; it is the channel's from now on.

    Examples
    --------
    >>> here, there = pair()
    >>> here.send({"kind": "model"}, {"model": 0})
    >>> body, files = there.receive()
    >>> body, list(files)
    ({'kind': 'model'}, ['model'])
    >>> os.close(files["model"])
    >>> here.close()
    >>> there.receive() is None
    True
    >>> there.close()
    """

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._sending = threading.Lock()

    def send(self, body: Mapping[str, Any], files: Mapping[str, int] | None = None) -> None:
        """Send a message and, under names, open files, which stay open here; OSError if nobody receives."""
        files = files or {}
        text = json.dumps({"body": dict(body), "files": list(files)}).encode()
        with self._sending:
            # The files travel with the first bytes; a stream socket need not take all the others at once.
            whole = _LENGTH.pack(len(text)) + text
            sent = socket.send_fds(self._end, [whole], list(files.values()))
            self._end.sendall(whole[sent:])

    def receive(self) -> Message | None:
        """The next message, once it is here; None when the other end is closed."""
        numbers: list[int] = []
        try:
            head = self._exactly(_LENGTH.size, numbers)
            text = self._exactly(_LENGTH.unpack(head)[0], numbers)
        except (EOFError, ConnectionError):
            for number in numbers:
                os.close(number)
            return None
        content = json.loads(text)
        return Message(content["body"], dict(zip(content["files"], numbers, strict=True)))

    def fileno(self) -> int:
        """The socket's number, to wait for messages."""
        return self._end.fileno()

    def close(self) -> None:
        """End it; the other end receives None."""
        self._end.close()

    def _exactly(self, size: int, numbers: list[int]) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            data, came = _receive_files(self._end, size - len(parts))
            numbers += came
            if not data:
                raise EOFError
            parts += data
        return bytes(parts)


def pair(seconds: float | None = None) -> tuple[Channel, Channel]:
    """Two channels that are each other's end; the first gives up waiting after some seconds, with TimeoutError."""
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    one.settimeout(seconds)
    return Channel(one), Channel(other)


def _receive_files(end: socket.socket, most: int) -> tuple[bytes, list[int]]:
    """Bytes and open files; unlike ``socket.recv_fds`` it does not leave the files to programs this one starts."""
    numbers = array.array("i")
    flags = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
    data, ancillary, _, _ = end.recvmsg(most, socket.CMSG_SPACE(_MOST_FILES * numbers.itemsize), flags)
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            numbers.frombytes(content[: len(content) - len(content) % numbers.itemsize])
    return data, numbers.tolist()
