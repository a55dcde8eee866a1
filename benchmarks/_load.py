"""A lean HTTP client that asks for all it can: so many connections, each asks anew once it is answered.

Run as a process of its own. Reads a line with one JSON object from standard input, writes a line when it begins and one
JSON object with what it saw at the end, which is not before standard input ends. Questions may be of several kinds,
each with connections of its own. One thread and plain sockets: what it takes is missing to the server.
"""

from __future__ import annotations

import json
import selectors
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np

SAMPLE_EVERY = 50
"""Of so many answers one is kept whole, to be compared."""

_MOST_ERRORS = 20
"""Errors that are told in words."""

_SECONDS_FOR_THE_REST = 10.0
"""For answers that are still under way when the time is over."""


class Answer(Exception):  # noqa: N818  no error of this program: what the server did wrong
    """An answer that is not as it should be."""


@dataclass
class Kind:
    """Requests that are alike, and what came back."""

    requests: list[bytes]
    numbers: Iterator[int]
    seconds: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    kept: list[tuple[int, str]] = field(default_factory=list)

    @classmethod
    def read(cls, bodies: Path, head: bytes) -> Kind:
        """One request for each line of a file."""
        lines = [line.encode() for line in bodies.read_text().splitlines()]
        requests = [head + str(len(body)).encode() + b"\r\n\r\n" + body for body in lines]
        return cls(requests, cycle(range(len(requests))))

    def told(self, seconds: float) -> dict[str, Any]:
        """What came back in so many seconds, in numbers."""
        p50, p95, p99 = np.percentile(self.seconds or [np.nan], [50, 95, 99]).tolist()
        longest = max(self.seconds, default=np.nan)
        return {
            "requests": len(self.seconds),
            "errors": len(self.errors),
            "first_errors": self.errors[:_MOST_ERRORS],
            "per_second": len(self.seconds) / seconds,
            "ms": {"p50": 1e3 * p50, "p95": 1e3 * p95, "p99": 1e3 * p99, "max": 1e3 * longest},
            "kept": self.kept,
        }


@dataclass
class Connection:
    """One connection, and the request it waits for."""

    link: socket.socket
    kind: Kind
    number: int = 0
    begun: float = 0.0
    received: bytearray = field(default_factory=bytearray)
    wanted: int = 0  # bytes of the answer, once its headers are there

    def send(self) -> None:
        """Ask the next question of its kind."""
        self.number, self.begun = next(self.kind.numbers), time.perf_counter()
        self.received.clear()
        self.wanted = 0
        self.link.sendall(self.kind.requests[self.number])

    def body(self) -> bytes | None:
        """The answer's body once it is there whole."""
        if not self.wanted:
            end = self.received.find(b"\r\n\r\n")
            if end < 0:
                return None
            fields = dict(line.split(b": ", 1) for line in bytes(self.received[:end]).lower().split(b"\r\n")[1:])
            self.wanted = end + 4 + int(fields[b"content-length"])
        if len(self.received) < self.wanted:
            return None
        head, _, body = bytes(self.received).partition(b"\r\n\r\n")
        status = head.partition(b"\r\n")[0]
        if status.split()[1] != b"200":
            raise Answer(f"{status.decode()}: {body[:200].decode(errors='replace')}")
        return body


def ask(settings: dict[str, Any]) -> list[Kind]:
    """Ask for ``settings["seconds"]`` seconds, and until standard input ends; wait for the last answers."""
    address = settings["host"], settings["port"]
    head = (
        f"POST /v1/recommend HTTP/1.1\r\nHost: {address[0]}:{address[1]}\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {settings['token']}\r\nContent-Length: "
    ).encode()
    kinds = [Kind.read(Path(one["bodies"]), head) for one in settings["kinds"]]
    waiting, held = selectors.DefaultSelector(), True

    def connect(kind: Kind) -> None:
        connection = Connection(socket.create_connection(address), kind)
        connection.link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        waiting.register(connection.link, selectors.EVENT_READ, connection)
        connection.send()

    end = time.perf_counter() + settings["seconds"]
    waiting.register(sys.stdin, selectors.EVENT_READ)
    for kind, one in zip(kinds, settings["kinds"], strict=True):
        for _ in range(one["connections"]):
            connect(kind)
    while waiting.get_map() and (held or time.perf_counter() < end + _SECONDS_FOR_THE_REST):
        for key, _ in waiting.select(timeout=0.2):
            connection = key.data
            if connection is None:
                waiting.unregister(sys.stdin)
                held = False
                end = max(end, time.perf_counter())
                continue
            kind = connection.kind
            try:
                piece = connection.link.recv(2**17)
                if not piece:
                    raise Answer("the server closed the connection")
                connection.received += piece
                if (body := connection.body()) is None:
                    continue
                kind.seconds.append(time.perf_counter() - connection.begun)
                if (items := body.count(b'"score":')) != settings["k"]:
                    raise Answer(f"{items} items instead of {settings['k']}")
                if len(kind.seconds) % SAMPLE_EVERY == 0:
                    kind.kept.append((connection.number, body.decode()))
                again = True
            except (Answer, OSError) as error:
                kind.errors.append(str(error))
                again = False
            over = not held and time.perf_counter() > end
            if again and not over:
                connection.send()
                continue
            waiting.unregister(connection.link)
            connection.link.close()
            if not over:
                connect(kind)
    for key in waiting.get_map().values():
        if key.data is not None:
            key.data.kind.errors.append("no answer")
    return kinds


def main() -> None:
    """Ask as standard input says, and tell."""
    settings = json.loads(sys.stdin.readline())
    print("begun", flush=True)
    begun, busy = time.perf_counter(), time.process_time()
    kinds = ask(settings)
    seconds = time.perf_counter() - begun
    cpu = (time.process_time() - busy) / seconds
    print(json.dumps({"client_cpu": cpu, "kinds": [kind.told(seconds) for kind in kinds]}))


if __name__ == "__main__":
    main()
