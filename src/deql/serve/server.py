"""The supervisor: it has the socket and a snapshot of the model file, and keeps workers running that answer from it.

uvicorn's own process manager starts the workers, asks them whether they are well, and replaces those that are not.
They all take connections from one socket, in turn.
"""

from __future__ import annotations

import array
import asyncio
import atexit
import contextlib
import errno
import importlib
import importlib.util
import ipaddress
import logging
import mmap
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

from deql.errors import ModelFileError, ParameterError, reason
from deql.serve import monitoring, snapshot
from deql.serve.monitoring import FOLDER, forget_process, log, notify_systemd
from deql.serve.settings import Settings
from deql.serve.shared_model import SharedModel
from deql.serve.snapshot import Snapshot

__all__ = ["BalancedServer", "bind", "is_local", "new_event_loop", "run"]

_KEEP_ALIVE = 75
"""Seconds that an idle connection stays open: longer than proxies keep theirs, so that they close first."""

_HUNG_SECONDS = 10
"""For a worker to say that it is well; one that takes longer is ended and replaced."""

_CHECK_SECONDS = 0.1
"""Between looks at signals, and at whether a worker ended."""

_MOST_DOUBLINGS = 5
"""Of that wait, once for every worker that ended before it was ready."""

_PING_SECONDS = 0.5

_CONNECTIONS = "connections"
"""The file, in the folder that is the server's own, in which workers say how many connections each has."""

_NOBODY = 2**31 - 1
"""The count of a worker that takes no connections, so that nobody waits for it."""

_MOMENT = 0.002
"""Seconds that a worker leaves a new connection to others that have fewer."""

_FULL_SECONDS = 1.0
_TELL_SECONDS = 0.1

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
        first = _take_all(settings.models)
        with _folder() as folder:
            monitoring.configure_logs()
            return _Supervisor(settings, listener, first, folder, ready).run()


def _take_all(models: dict[str, str]) -> dict[str, Snapshot]:
    taken: dict[str, Snapshot] = {}
    try:
        for name, path in models.items():
            taken[name] = snapshot.take(Path(path))
    except BaseException:
        for copy in taken.values():
            copy.close()
        raise
    return taken


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens at this address; who connects waits until a worker accepts."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        # A name such as localhost may mean either; the older kind of address is what people then try.
        family, kind, protocol, _, address = min(found, key=lambda one: one[0] != socket.AF_INET)
        listener = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:
        raise ParameterError(f"there is no address {host}: {_why(error)}", parameter="host") from None
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
        # A socket of another process that is bound but does not listen yet is found out only here.
        listener.listen(socket.SOMAXCONN)
    except (OSError, OverflowError) as error:
        listener.close()
        raise ParameterError(
            f"cannot listen at {host} port {port}: {_why(error)}; choose another with --port, or 0 for a free one",
            parameter="port",
        ) from None
    return listener


def is_local(host: str) -> bool:
    """Whether a host is this machine, seen from itself.

    Examples
    --------
    >>> is_local("localhost"), is_local("127.0.0.1"), is_local("::1"), is_local("0.0.0.0"), is_local("127.evil.com")
    (True, True, True, False, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


@contextlib.contextmanager
def _folder() -> Iterator[str]:
    """A folder for what workers and supervisor share; they, and prometheus_client, find it in the environment."""
    # The path of a socket may have some 100 characters.
    place = None if len(tempfile.gettempdir()) < 70 else "/tmp"
    with tempfile.TemporaryDirectory(prefix="deql-serve-", dir=place, ignore_cleanup_errors=True) as folder:
        before = dict(os.environ)
        # Workers look for modules where this process does, but not in the folder that it happens to be started in.
        os.environ.update({FOLDER: folder, "PYTHONSAFEPATH": "1"})
        try:
            yield folder
        finally:
            os.environ.clear()
            os.environ.update(before)


class _Supervisor:
    """Runs uvicorn's process manager, and does what signals say."""

    def __init__(
        self, settings: Settings, listener: socket.socket, first: dict[str, Snapshot], folder: str,
        ready: Callable[[str], None] | None,
    ) -> None:  # fmt: skip
        self._settings, self._listener, self._folder, self._ready = settings, listener, folder, ready
        # With a place to spare, for a worker that starts while another one ends.
        Path(folder, _CONNECTIONS).write_bytes(array.array("i", [_NOBODY] * (settings.workers + 1)).tobytes())
        self._share = SharedModel(settings, first, folder, self._on_ready)
        # Under nohup, which has hangups ignored, the server should outlive its terminal.
        self._ends_with_terminal = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN and _has_terminal()
        self._saying = threading.Lock()
        self._said_ready = self._stopping = False
        self._exit_code = self._failed_starts = 0
        self._next_ping = 0.0
        self._gone: set[Any] = set()  # processes that ended and are not yet replaced

    def run(self) -> int:
        config = uvicorn.Config(
            "deql.serve.worker:create_worker_app", factory=True, http="deql.serve.connection:ClientConnection",
            loop="deql.serve.server:new_event_loop", ws="none", workers=self._settings.workers, log_config=None,
            access_log=False, proxy_headers=False, server_header=False, timeout_keep_alive=_KEEP_ALIVE,
            timeout_worker_healthcheck=_HUNG_SECONDS, timeout_graceful_shutdown=max(1, round(self._settings.grace)),
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
        before = list(self._manager.processes)
        ended = [process for process in before if process.exitcode is not None]
        if not ended and time.monotonic() < self._next_ping:
            return
        self._next_ping = time.monotonic() + _PING_SECONDS
        self._forget(ended)
        try:
            self._manager.keep_subprocess_alive()
        except Exception as error:  # no more processes, say: the others must go on
            log("worker_failed", logging.ERROR, error, reason=str(error))
            self._failed_starts += 1
        self._forget(process for process in before if process not in self._manager.processes)  # those that hung, too
        self._gone.intersection_update(self._manager.processes)
        if self._share.refused is not None and not self._said_ready:
            self._stopping = True
        elif self._manager.should_exit.is_set() or (self._failed_starts >= _FAILED_STARTS and not self._share.ready):
            self._give_up()

    def _forget(self, ended: Iterable[Any]) -> None:
        for process in set(ended) - self._gone:
            self._gone.add(process)
            was_ready = self._share.forget(process.pid)
            self._failed_starts += not was_ready
            log("worker_died", logging.ERROR, worker=process.pid, exit=process.exitcode, ready=was_ready)
            try:
                forget_process(process.pid, self._folder)
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
        Makes what talks to a new connection.
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
        self._place = next(place for place in range(len(self._counts)) if self._lock(place))
        self._open: set[Any] = set()  # tasks that set up a connection, then transports
        self._waiting: asyncio.TimerHandle | None = None
        self._tell()
        loop.add_reader(listener, self._on_readable)

    def close(self) -> None:
        """Take no more connections."""
        self._loop.remove_reader(self._listener)
        for timer in (self._waiting, self._telling):
            if timer is not None:
                timer.cancel()
        self._listener.close()
        self._counts[self._place] = _NOBODY
        self._file.close()

    async def wait_closed(self) -> None:
        """Nothing is left to wait for."""

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

    def _accept(self) -> None:
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
        self._open.add(task)
        task.add_done_callback(self._on_accepted)

    def _on_accepted(self, task: asyncio.Task[Any]) -> None:
        self._open.discard(task)
        if task.cancelled() or task.exception() is not None:
            log("accept", logging.ERROR, None if task.cancelled() else task.exception())
        else:
            self._open.add(task.result()[0])


def new_event_loop() -> Any:
    """For uvicorn's setting ``loop``: its usual one, with a :class:`BalancedServer` for the socket of all workers."""
    base = importlib.import_module("uvloop").Loop if importlib.util.find_spec("uvloop") else asyncio.SelectorEventLoop

    async def create_server(self: Any, protocol: Callable[[], asyncio.Protocol], *, sock: Any, **given: Any) -> Any:
        return BalancedServer(self, sock, protocol, Path(os.environ[FOLDER], _CONNECTIONS))

    return type("BalancedLoop", (base,), {"create_server": create_server})()
