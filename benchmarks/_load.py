"""A lean HTTP client that asks for all it can: so many connections, each asks anew once it is answered.

Run as a process of its own. Reads a line with one JSON object from standard input, writes a line when it begins and one
JSON object with what it saw at the end, which is not before standard input ends. One thread and plain sockets: what
it takes is missing to the server.
"""

from __future__ import annotations

import json
import selectors
import socket
import sys
import time
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
class Seen:
    """What came back."""

    seconds: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    kept: list[tuple[int, str]] = field(default_factory=list)


@dataclass
class Connection:
    """One connection, and the request it waits for."""

    link: socket.socket
    number: int = 0
    begun: float = 0.0
    received: bytes = b""

    def body(self) -> bytes | None:
        """The answer's body once it is there whole."""
        head, gap, body = self.received.partition(b"\r\n\r\n")
        if not gap:
            return None
        status, *lines = head.lower().split(b"\r\n")
        fields = dict(line.split(b": ", 1) for line in lines)
        if len(body) < int(fields[b"content-length"]):
            return None
        if status.split()[1] != b"200":
            raise Answer(f"{status.decode()}: {body[:200].decode(errors='replace')}")
        return body


def ask(settings: dict[str, Any]) -> Seen:
    """Ask for ``settings["seconds"]`` seconds, and until standard input ends; wait for the last answers."""
    bodies = [line.encode() for line in Path(settings["bodies"]).read_text().splitlines()]
    address = settings["host"], settings["port"]
    head = (
        f"POST /recommend HTTP/1.1\r\nHost: {address[0]}:{address[1]}\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {settings['token']}\r\nContent-Length: "
    ).encode()
    requests = [head + str(len(body)).encode() + b"\r\n\r\n" + body for body in bodies]
    numbers, seen, waiting, held = cycle(range(len(requests))), Seen(), selectors.DefaultSelector(), True

    def send(connection: Connection) -> None:
        connection.number, connection.received, connection.begun = next(numbers), b"", time.perf_counter()
        connection.link.sendall(requests[connection.number])

    def connect() -> None:
        connection = Connection(socket.create_connection(address))
        connection.link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        waiting.register(connection.link, selectors.EVENT_READ, connection)
        send(connection)

    end = time.perf_counter() + settings["seconds"]
    waiting.register(sys.stdin, selectors.EVENT_READ)
    for _ in range(settings["connections"]):
        connect()
    while waiting.get_map() and (held or time.perf_counter() < end + _SECONDS_FOR_THE_REST):
        for key, _ in waiting.select(timeout=0.2):
            connection = key.data
            if connection is None:
                waiting.unregister(sys.stdin)
                held = False
                end = max(end, time.perf_counter())
                continue
            try:
                piece = connection.link.recv(2**16)
                if not piece:
                    raise Answer("the server closed the connection")
                connection.received += piece
                if (body := connection.body()) is None:
                    continue
                seen.seconds.append(time.perf_counter() - connection.begun)
                if (items := body.count(b'"item":')) != settings["k"]:
                    raise Answer(f"{items} items instead of {settings['k']}")
                if len(seen.seconds) % SAMPLE_EVERY == 0:
                    seen.kept.append((connection.number, body.decode()))
                again = True
            except (Answer, OSError) as error:
                seen.errors.append(str(error))
                again = False
            over = not held and time.perf_counter() > end
            if again and not over:
                send(connection)
                continue
            waiting.unregister(connection.link)
            connection.link.close()
            if not over:
                connect()
    seen.errors += ["no answer"] * len(waiting.get_map())
    return seen


def main() -> None:
    """Ask as standard input says, and tell."""
    settings = json.loads(sys.stdin.readline())
    print("begun", flush=True)
    begun, busy = time.perf_counter(), time.process_time()
    seen = ask(settings)
    seconds = time.perf_counter() - begun
    p50, p95, p99 = np.percentile(seen.seconds or [np.nan], [50, 95, 99]).tolist()
    found = {
        "requests": len(seen.seconds),
        "errors": len(seen.errors),
        "first_errors": seen.errors[:_MOST_ERRORS],
        "per_second": len(seen.seconds) / seconds,
        "ms": {"p50": 1e3 * p50, "p95": 1e3 * p95, "p99": 1e3 * p99, "max": 1e3 * max(seen.seconds, default=np.nan)},
        "client_cpu": (time.process_time() - busy) / seconds,
        "kept": seen.kept,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
