"""The supervisor: keeps workers running, which are processes of uvicorn's, and does what signals say."""

from __future__ import annotations

import atexit
import contextlib
import logging
import math
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import uvicorn
from uvicorn.supervisors import Multiprocess
from uvicorn.supervisors.multiprocess import Process

from deql.errors import ModelFileError
from deql.serve.balance import prepare_counts
from deql.serve.monitoring import forget_process, log, notify_systemd
from deql.serve.pulse import Pulses
from deql.serve.settings import Settings
from deql.serve.shared_model import SharedModel
from deql.serve.snapshot import Snapshot
from deql.serve.updates import Updates

__all__ = ["Supervisor"]

_KEEP_ALIVE = 75
"""Seconds that an idle connection stays open: longer than proxies keep theirs, so that they close first."""

_CHECK_SECONDS = 0.1
"""Between looks at signals, and at whether a worker ended or hangs."""

_MOST_DOUBLINGS = 5
"""Of that wait, once for every worker that ended before it was ready."""

_KILL_SECONDS = 1.0
"""For the system to end a process; one that takes longer waits for a device, and is replaced meanwhile."""

_FAILED_STARTS = 5
"""Workers that end one after the other before one of them is ready: then the fault is not a worker's."""


class Supervisor:
    """Starts workers, replaces those that end or hang, and does what signals say.

    Parameters
    ----------
    settings : Settings
    listener : socket
        Where workers take connections from.
    first : dict of Snapshot
        The models to begin with, by name.
    folder : str
        What workers and supervisor share.
    ready : callable or None
        Called with the server's address once every worker answers.
    """

    def __init__(
        self, settings: Settings, listener: socket.socket, first: dict[str, Snapshot], folder: str,
        ready: Callable[[str], None] | None,
    ) -> None:  # fmt: skip
        self._settings, self._listener, self._folder, self._ready = settings, listener, folder, ready
        prepare_counts(folder, settings.workers)
        self._pulses = Pulses(lambda pid: self._share.is_ready(pid))
        self._share = SharedModel(settings, first, folder, self._on_ready, self._pulses.silence)
        self._updates = Updates(settings, self._share)
        self._share.answers["update"] = lambda body: self._updates.update(body["name"], body["batch"])
        # Under nohup, which has hangups ignored, the server should outlive its terminal.
        self._ends_with_terminal = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN and _has_terminal()
        self._saying = threading.Lock()
        self._said_ready = self._stopping = False
        self._exit_code = self._failed_starts = 0
        self._gone: set[Any] = set()  # processes that ended and are not yet replaced

    def run(self) -> int:
        """Serve until told to end; the exit code. ModelFileError if a model is none that can be served."""
        self._config = uvicorn.Config(
            "deql.serve.worker:create_worker_app", factory=True, http="deql.serve.connection:ClientConnection",
            loop="deql.serve.balance:new_event_loop", ws="none", workers=self._settings.workers, log_config=None,
            access_log=False, proxy_headers=False, server_header=False, timeout_keep_alive=_KEEP_ALIVE,
            timeout_graceful_shutdown=max(1, round(self._settings.grace)),
        )  # fmt: skip
        with _signals_as_they_were():
            self._manager = Multiprocess(self._config, [self._listener])  # queues signals
            try:
                self._manager.init_processes()
            except Exception as error:  # no more processes, say
                log("worker_failed", logging.ERROR, error, reason=str(error))
                self._give_up()
            while not self._stopping:
                self._keep_workers()
                self._wait(self._backoff())
            self._end()
        self._share.close()
        if self._share.refused is not None and not self._said_ready:
            raise ModelFileError(self._share.refused)
        if self._share.is_reloading:
            # Taking the interpreter down around a thread that is inside compiled code may end in a crash.
            atexit.register(_leave, self._exit_code)
        return self._exit_code

    def _on_ready(self) -> None:
        self._failed_starts = 0
        with self._saying:
            if self._said_ready or self._share.ready < self._settings.workers:
                return
            self._said_ready = True
        host, port = self._listener.getsockname()[:2]
        url = f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"
        paths = self._settings.models
        models = [
            {"name": name, "file": paths[name], "checksum": had.checksum} for name, had in self._share.current.items()
        ]
        log("start", url=url, models=models, workers=self._settings.workers)
        notify_systemd("READY=1", f"STATUS=serving {', '.join(paths.values())} at {url}")
        if self._ready is not None:
            self._ready(url)

    # Workers

    def _backoff(self) -> float:
        """Seconds until workers are looked at, and started, again: exponential backoff while starts fail."""
        return float(_CHECK_SECONDS * 2 ** min(_MOST_DOUBLINGS, self._failed_starts))

    def _keep_workers(self) -> None:
        """Replace workers that ended, and end and replace those that hang."""
        if self._share.refused is not None and not self._said_ready:
            self._stopping = True
            return
        workers = self._manager.processes
        self._pulses.look(workers, time.monotonic())
        for place, worker in enumerate(list(workers)):
            if worker not in self._gone:
                if worker.exitcode is None and not self._pulses.is_hung(worker.pid):
                    continue
                self._forget(worker)
            try:
                fresh = Process(self._config, [self._listener])
                fresh.start()
            except Exception as error:  # no more processes, say: the others must go on
                log("worker_failed", logging.ERROR, error, reason=str(error))
                self._failed_starts += 1
            else:
                self._gone.discard(worker)
                workers[place] = fresh
        if self._failed_starts >= _FAILED_STARTS and not self._share.ready:
            self._give_up()

    def _forget(self, worker: Any) -> None:
        hung = worker.exitcode is None
        worker.kill()
        worker.process.join(_KILL_SECONDS)
        self._gone.add(worker)
        was_ready = self._share.forget(worker.pid)
        self._failed_starts += not was_ready
        log("worker_died", logging.ERROR, worker=worker.pid, exit=worker.exitcode, ready=was_ready, hung=hung)
        try:
            forget_process(worker.pid, self._folder)
        except Exception as error:  # only numbers are wrong then
            log("forget", logging.ERROR, error, worker=worker.pid)

    def _give_up(self) -> None:
        log("give_up", logging.CRITICAL, reason="workers end again and again while they start")
        self._exit_code, self._stopping = 1, True

    # Signals, and the end

    def _wait(self, seconds: float) -> None:
        """Wait a moment, and do what signals say that came meanwhile."""
        time.sleep(seconds)
        while self._manager.signal_queue:
            number = self._manager.signal_queue.pop(0)
            if number == signal.SIGHUP and not (self._ends_with_terminal and not _has_terminal()):
                threading.Thread(target=self._share.reload, name="reload", daemon=True).start()
            elif number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):  # SIGHUP: its window was closed
                if self._stopping and number == signal.SIGINT:
                    self._exit_code = 128 + number
                    self._kill()
                self._stopping = True

    def _end(self) -> None:
        log("stop", exit=self._exit_code)
        notify_systemd("STOPPING=1")
        self._listener.close()
        self._updates.close()  # who waits for one is answered while workers end
        self._manager.terminate_all()
        latest = time.monotonic() + self._settings.grace + 3
        while self._alive():
            self._wait(_CHECK_SECONDS / 2)
            if time.monotonic() > latest:
                for process in self._alive():
                    log("worker_killed", logging.ERROR, worker=process.pid, reason="it did not end in time")
                self._kill()
                latest = math.inf
        log("stopped", exit=self._exit_code)

    def _alive(self) -> list[Process]:
        return [process for process in self._manager.processes if process.process.is_alive()]

    def _kill(self) -> None:
        for process in self._alive():
            process.process.kill()


@contextlib.contextmanager
def _signals_as_they_were() -> Iterator[None]:
    """Give back, in the end, the handlers that uvicorn's manager replaces."""
    before = {number: signal.getsignal(number) for number in signal.valid_signals()}
    try:
        yield
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is not handler and handler is not None:
                signal.signal(number, handler)


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


def _leave(exit_code: int) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code)
