"""A worker: one process that answers requests from the model it was handed.

It reads no model file: the supervisor hands it open copies. It ends when it is told to, or when the supervisor is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import logging
import os
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from deql import set_threads
from deql._system.threads import thread_count
from deql.serve import logs
from deql.serve.channel import Channel, Message
from deql.serve.door import Counts, Door
from deql.serve.host import Host, ReloadError
from deql.serve.logs import log
from deql.serve.metrics import FOLDER, Metrics
from deql.serve.protocol import protocol_class
from deql.serve.rows import attach
from deql.serve.served import Served
from deql.serve.service import create_app
from deql.serve.settings import Settings
from deql.serve.snapshot import path_of

__all__ = ["main"]

_HELD_HERE = 2
"""References to a model that only its list has, as they are counted: the list's, and that of the count itself."""

_KEEP_ALIVE = 75
"""Seconds that an idle connection stays open: longer than proxies keep theirs, so that they close first."""


def main() -> None:
    """Run until told otherwise; the one argument is the number of the channel's socket."""
    for ignored in (signal.SIGINT, signal.SIGHUP):  # meant for the supervisor
        signal.signal(ignored, signal.SIG_IGN)
    logs.configure()
    sys.excepthook = lambda kind, error, trace: log("worker_failed", logging.CRITICAL, error)
    channel = Channel(socket.socket(fileno=int(sys.argv[1])))
    first = channel.receive()
    if first is None:
        return
    settings = Settings.from_json(first.body["settings"])
    set_threads(settings.threads or max(1, thread_count() // settings.workers))
    metrics = Metrics()
    control = _Control(channel, settings, metrics)
    app = create_app(control.host, settings, metrics)
    gc.freeze()  # what stays for good: collections need not look at it, and are short
    control.take(first)
    counts = Counts(first.files["counts"], first.body["place"])
    os.close(first.files["counts"])
    listener = socket.socket(fileno=first.files["socket"])
    server = _Server(app, settings, listener, counts, control)
    server.run()
    if control.orphaned:  # who would have removed it is gone
        shutil.rmtree(os.environ[FOLDER], ignore_errors=True)
    # Nothing is left to be tidied up, and a thread that still ranks for nobody should not be waited for.
    sys.stderr.flush()
    os._exit(0)


class _Server(uvicorn.Server):
    """uvicorn in this process, on a socket that others share."""

    def __init__(
        self, app: ASGIApp, settings: Settings, listener: socket.socket, counts: Counts, control: _Control
    ) -> None:
        config = uvicorn.Config(
            app, http=protocol_class(settings.timeout, settings.connections), ws="none", log_config=None,
            access_log=False, proxy_headers=False, server_header=False, timeout_keep_alive=_KEEP_ALIVE,
            timeout_graceful_shutdown=max(1, round(settings.grace)),
        )  # fmt: skip
        super().__init__(config)
        self._listener, self._counts, self._control = listener, counts, control

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup([])
        self._door = Door(self._listener, self._counts, self.server_state.connections, self._protocol)
        self._control.start(self)

    async def on_tick(self, counter: int) -> bool:
        self._door.say()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._door.close()
        await super().shutdown([])

    def _protocol(self) -> asyncio.Protocol:
        made: asyncio.Protocol = self.config.http_protocol_class(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )  # type: ignore[call-arg]
        return made

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Let SIGTERM end the server in good order, and nothing else."""
        signal.signal(signal.SIGTERM, lambda number, frame: self.stop())
        yield

    def stop(self) -> None:
        """Take no more connections, finish what is in flight, end."""
        self.should_exit = True


class _Control:
    """Listens to the supervisor in a thread of its own: models to load and swap, and answers to reloads asked for here.

    A new model is prepared first, and takes its place only once every worker has it ready.
    """

    def __init__(self, channel: Channel, settings: Settings, metrics: Metrics) -> None:
        self._channel, self._settings, self._metrics = channel, settings, metrics
        self.host = Host(None, self._ask_reload)
        self.orphaned = False
        self._next: Served | None = None
        self._asked: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._numbers = itertools.count()

    def take(self, message: Message) -> None:
        """Serve the model that came with the first message."""
        self._first = message.body
        self._next = _open(self._settings, message)
        self._swap()

    def start(self, server: _Server) -> None:
        """Say that requests are answered, and listen."""
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._listen, args=(server,), name="control", daemon=True).start()
        self._done(self._first)

    def _listen(self, server: _Server) -> None:
        try:
            while (message := self._channel.receive()) is not None:
                getattr(self, f"_on_{message.body['kind']}")(message)
        except Exception as error:
            log("worker_failed", logging.ERROR, error)
        self.orphaned = True
        server.stop()  # nobody is there any more to end this process later
        time.sleep(self._settings.grace + 5)
        os._exit(1)

    def _on_prepare(self, message: Message) -> None:
        try:
            self._next = _open(self._settings, message)
        except Exception as error:  # out of memory, say
            log("worker_failed", logging.ERROR, error)
            self._done(message.body, failed=str(error) or type(error).__name__)
        else:
            self._done(message.body)

    def _on_swap(self, message: Message) -> None:
        old = [self.host.current]
        self._swap()
        self._done(message.body)
        threading.Thread(target=_let_go, args=(old, self._settings.timeout), name="let go", daemon=True).start()

    def _swap(self) -> None:
        assert self._next is not None
        self.host.current, self._next = self._next, None
        self._metrics.serving(len(self.host.current.items))

    def _on_drop(self, message: Message) -> None:
        self._next = None

    def _on_count(self, message: Message) -> None:
        self._metrics.reloaded(message.body["outcome"])

    def _on_reloaded(self, message: Message) -> None:
        def settle() -> None:
            answer = self._asked.pop(message.body["number"], None)
            if answer is None or answer.done():
                return
            if "refused" in message.body:
                answer.set_exception(ReloadError(message.body["refused"]))
            else:
                answer.set_result(message.body["result"])

        self._loop.call_soon_threadsafe(settle)

    def _done(self, asked: dict[str, Any], **more: str) -> None:
        self._channel.send({"kind": "done", "number": asked["number"]} | more)

    async def _ask_reload(self) -> dict[str, Any]:
        number = next(self._numbers)
        answer: asyncio.Future[dict[str, Any]] = self._loop.create_future()
        self._asked[number] = answer
        self._channel.send({"kind": "reload", "number": number})
        return await answer


def _let_go(held: list[Served | None], seconds: float) -> None:
    """Drop a model once no request has it any more.

    To give back its gigabytes takes a second, which must not be one of the event loop's: there it would be dropped with
    the last request.
    """
    latest = time.monotonic() + seconds
    while sys.getrefcount(held[0]) > _HELD_HERE and time.monotonic() < latest:
        time.sleep(0.05)
    held.clear()
    gc.collect()  # should it be part of a cycle


def _open(settings: Settings, message: Message) -> Served:
    """The model that came with a message, warm."""
    files = [message.files[name] for name in ("model", "rows") if name in message.files]
    try:
        served = Served.open(path_of(files[0]), verify=False, example=settings.example, curve=settings.curve)
        if len(files) > 1:
            attach(served.model, files[1])
    finally:
        for file in files:  # what is mapped stays
            os.close(file)
    served.warm()
    return served


if __name__ == "__main__":
    main()
