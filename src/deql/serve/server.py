"""The supervisor: it has the socket and a snapshot of the model file, and keeps workers running that answer from it.

uvicorn's own process manager starts the workers, asks them whether they are well, and replaces those that are not.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.supervisors import Multiprocess

from deql.errors import ParameterError, reason
from deql.serve import monitoring, snapshot
from deql.serve.monitoring import FOLDER, log, notify_systemd
from deql.serve.settings import Settings
from deql.serve.shared_model import SharedModel
from deql.serve.snapshot import Snapshot

__all__ = ["bind", "run"]

_KEEP_ALIVE = 75
"""Seconds that an idle connection stays open: longer than proxies keep theirs, so that they close first."""

_HUNG_SECONDS = 10
"""For a worker to say that it is well; one that takes longer is ended and replaced."""

_CHECK_SECONDS = 0.1

_FAILED_STARTS = 5
"""Workers that end one after the other before one of them is ready: then the fault is not a worker's."""


def run(settings: Settings, ready: Callable[[str], None] | None = None) -> int:
    """Serve until told to end; the exit code for the program.

    Must be called in the main thread: SIGTERM and SIGINT end it in good order, SIGHUP reads the model file again.

    Parameters
    ----------
    settings : Settings
    ready : callable, optional
        Called with the server's address once every worker answers.

    Raises
    ------
    DeqlError
        If the address cannot be listened at, or the file holds no model.
    """
    if os.name != "posix":
        raise ParameterError("deql serve needs a Unix system, such as Linux or macOS")
    with bind(settings.host, settings.port) as listener:
        first = snapshot.take(Path(settings.model))
        with _folder() as folder:
            monitoring.configure_logs()
            return _Supervisor(settings, listener, first, folder, ready).run()


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens at this address; who connects waits until a worker accepts."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        # A name such as localhost may mean either; the older kind of address is what people then try.
        family, kind, protocol, _, address = min(found, key=lambda one: one[0] != socket.AF_INET)
        listener = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:
        raise ParameterError(f"there is no address {host}: {_why(error)}") from None
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
        # A socket of another process that is bound but does not listen yet is found out only here.
        listener.listen(socket.SOMAXCONN)
    except (OSError, OverflowError) as error:
        listener.close()
        raise ParameterError(
            f"cannot listen at {host} port {port}: {_why(error)}; choose another with --port, or 0 for a free one"
        ) from None
    return listener


@contextlib.contextmanager
def _folder() -> Iterator[str]:
    """A folder for the control socket and for the numbers of Prometheus, which finds it in the environment."""
    # The path of a socket may have some 100 characters.
    short = len(tempfile.gettempdir()) < 70
    with tempfile.TemporaryDirectory(
        "", "deql-serve-", None if short else "/tmp", ignore_cleanup_errors=True
    ) as folder:
        os.environ[FOLDER] = folder
        try:
            yield folder
        finally:
            del os.environ[FOLDER]


class _Supervisor:
    """Runs uvicorn's process manager, and does what signals say."""

    def __init__(
        self, settings: Settings, listener: socket.socket, first: Snapshot, folder: str,
        ready: Callable[[str], None] | None,
    ) -> None:  # fmt: skip
        self._settings, self._listener, self._folder, self._ready = settings, listener, folder, ready
        self._share = SharedModel(settings, first, folder, self._on_ready)
        # Under nohup, which has hangups ignored, the server should outlive its terminal.
        self._ends_with_terminal = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN and _has_terminal()
        self._saying = threading.Lock()
        self._said_ready = self._stopping = False
        self._exit_code = self._failed_starts = 0
        self._gone: set[Any] = set()  # processes that ended and are not yet replaced

    def run(self) -> int:
        config = uvicorn.Config(
            "deql.serve.worker:create_worker_app", factory=True, http="deql.serve.connection:ClientConnection",
            ws="none", workers=self._settings.workers, log_config=None, access_log=False, proxy_headers=False,
            server_header=False, timeout_keep_alive=_KEEP_ALIVE, timeout_worker_healthcheck=_HUNG_SECONDS,
            timeout_graceful_shutdown=max(1, round(self._settings.grace)),
        )  # fmt: skip
        with _signals_as_they_were():
            self._manager = Multiprocess(config, [self._listener])  # queues signals
            try:
                self._manager.init_processes()
            except Exception as error:  # no more processes, say
                log("worker_failed", logging.ERROR, error, reason=str(error))
                self._give_up()
            while not self._stopping:
                self._keep_workers()
                self._wait(_CHECK_SECONDS * 2 ** min(5, self._failed_starts))
            self._end()
        self._share.close()
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
        model, checksum = self._settings.model, self._share.current.checksum
        log("start", url=url, model=model, checksum=checksum, workers=self._settings.workers)
        notify_systemd("READY=1", f"STATUS=serving {model} at {url}")
        if self._ready is not None:
            self._ready(url)

    # Workers

    def _keep_workers(self) -> None:
        before = list(self._manager.processes)
        self._forget(process for process in before if process.exitcode is not None)
        try:
            self._manager.keep_subprocess_alive()
        except Exception as error:  # no more processes, say: the others must go on
            log("worker_failed", logging.ERROR, error, reason=str(error))
            self._failed_starts += 1
        self._forget(process for process in before if process not in self._manager.processes)  # those that hung, too
        self._gone.intersection_update(self._manager.processes)
        if self._manager.should_exit.is_set() or (self._failed_starts >= _FAILED_STARTS and not self._share.ready):
            self._give_up()

    def _forget(self, ended: Iterable[Any]) -> None:
        from prometheus_client.multiprocess import mark_process_dead

        for process in set(ended) - self._gone:
            self._gone.add(process)
            was_ready = self._share.forget(process.pid)
            self._failed_starts += not was_ready
            log("worker_died", logging.ERROR, worker=process.pid, exit=process.exitcode, ready=was_ready)
            try:
                mark_process_dead(process.pid, self._folder)  # type: ignore[no-untyped-call]
            except Exception as error:  # only numbers are wrong then
                log("forget", logging.ERROR, error, worker=process.pid)

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
        self._manager.terminate_all()
        latest = time.monotonic() + self._settings.grace + 3
        while any(process.process.is_alive() for process in self._manager.processes):
            self._wait(_CHECK_SECONDS / 2)
            if time.monotonic() > latest:
                for process in self._manager.processes:
                    log("worker_killed", logging.ERROR, worker=process.pid)
                self._kill()
        log("stopped", exit=self._exit_code)

    def _kill(self) -> None:
        for process in self._manager.processes:
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


def _why(error: Exception) -> str:
    return reason(error) if isinstance(error, OSError) else str(error)
