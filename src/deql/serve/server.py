"""The supervisor: it has the socket and a snapshot of the model file, and keeps workers running that answer from it.

uvicorn's own process manager starts the workers, asks them whether they are well, and replaces those that are not. What
it has no notion of is here: one model for all workers, and another one for all of them at once.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing import reduction
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.supervisors import Multiprocess

from deql.errors import DeqlError, ParameterError, reason
from deql.serve import monitoring, snapshot
from deql.serve.monitoring import FOLDER, log, notify_systemd, reload_counter
from deql.serve.settings import Settings
from deql.serve.snapshot import ReloadError, Snapshot

__all__ = ["CONTROL", "bind", "receive", "run", "send"]

CONTROL = "control"
"""The socket, in the folder that is the server's own, at which the supervisor listens to its workers."""

_KEEP_ALIVE = 75
"""Seconds that an idle connection stays open: longer than proxies keep theirs, so that they close first."""

_HUNG_SECONDS = 10
"""For a worker to say that it is well; one that takes longer is ended and replaced."""

_CHECK_SECONDS = 0.1

_LOAD_SECONDS = 600.0
"""For a worker to load a model; one that takes longer hangs."""

_SWAP_SECONDS = 10.0

_ROUNDS = 5
"""How often a reload begins again for workers that started meanwhile: with a model that ends them it has to end."""

_FAILED_STARTS = 5
"""Workers that end one after the other before one of them is ready: then the fault is not a worker's."""

_NICE = 5
"""How much the preparation of the next model gives way to requests."""


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
            with contextlib.closing(SharedModel(settings, first, folder)) as share:
                return _Supervisor(settings, listener, share, ready).run()


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


def send(to: Connection, body: Mapping[str, Any], files: Mapping[str, int] | None = None) -> None:
    """Send plain values and, under names, open files, which stay open here."""
    files = files or {}
    to.send_bytes(json.dumps({"body": dict(body), "files": list(files)}).encode())
    for file in files.values():
        reduction.send_handle(to, file, 0)


def receive(source: Connection) -> tuple[dict[str, Any], dict[str, int]]:
    """What :func:`send` sent; who receives files closes them. EOFError when the other end is closed.

    Examples
    --------
    >>> from multiprocessing import Pipe
    >>> here, there = Pipe()
    >>> send(here, {"kind": "prepare"}, {"model": 0})
    >>> body, files = receive(there)
    >>> body, list(files)
    ({'kind': 'prepare'}, ['model'])
    >>> os.close(files["model"])
    """
    message = json.loads(source.recv_bytes())
    return message["body"], {name: reduction.recv_handle(source) for name in message["files"]}


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


class WorkerError(DeqlError):
    """A worker that says that it cannot do what it was asked."""


class WorkerGoneError(WorkerError):
    """A worker that ended, or does not answer; another one will take its place."""


class WorkerProcess:
    """A worker as the supervisor speaks to it: one question at a time, each with its answer.

    Attributes
    ----------
    ready : bool
        Whether it has ever answered requests.
    """

    def __init__(self, connection: Connection, pid: int) -> None:
        self._connection, self.pid, self.ready = connection, pid, False
        self.asking = threading.Lock()

    def ask(self, body: Mapping[str, Any], files: Mapping[str, int] | None, seconds: float) -> None:
        """Have something done; WorkerError if it was not."""
        with self.asking:
            self.tell(body, files)
            self.wait(seconds)

    def tell(self, body: Mapping[str, Any], files: Mapping[str, int] | None = None) -> None:
        """Ask without waiting for the answer; for who holds ``asking``."""
        try:
            send(self._connection, body, files)
        except OSError as error:
            raise WorkerGoneError(f"worker {self.pid} cannot be reached: {error}") from None

    def wait(self, seconds: float) -> None:
        """Wait for the answer. A worker that does not give one is ended: the next answer would seem to be it."""
        try:
            if not self._connection.poll(seconds):
                self.kill()
                raise WorkerGoneError(f"worker {self.pid} did not answer within {seconds:g} seconds")
            answer, _ = receive(self._connection)
        except (OSError, EOFError):
            raise WorkerGoneError(f"worker {self.pid} ended") from None
        if "failed" in answer:
            raise WorkerError(answer["failed"])

    def kill(self) -> None:
        """End it now."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)


class SharedModel:
    """The model that all workers serve: hands it to each that starts, and another one to all of them at once.

    Parameters
    ----------
    settings : Settings
    first : Snapshot
    folder : str
        Where workers find the control socket.
    """

    def __init__(self, settings: Settings, first: Snapshot, folder: str) -> None:
        self._settings, self.current = settings, first
        self.workers: dict[int, WorkerProcess] = {}
        self._listener = Listener(os.path.join(folder, CONTROL), "AF_UNIX", backlog=64)
        # Held while all workers swap, and while one is handed its first model: else it might be the old one for good.
        self._handing = threading.Lock()
        self._queueing = threading.Lock()
        self._queued: Future[dict[str, Any]] | None = None
        self._wanted = threading.Semaphore(0)
        self._reloads = reload_counter()
        self.is_reloading = self._is_closed = False

    def start(self, on_ready: Callable[[], None]) -> None:
        """Listen to workers, in threads; ``on_ready`` is called when one answers requests."""
        self._on_ready = on_ready
        for target in (self._accept, self._reload_in_turn):
            threading.Thread(target=target, name=target.__name__, daemon=True).start()

    def close(self) -> None:
        """Listen to nobody any more."""
        self._is_closed = True
        self._listener.close()

    @property
    def ready(self) -> int:
        """How many workers answer."""
        return sum(worker.ready for worker in list(self.workers.values()))

    def forget(self, pid: int | None) -> bool:
        """A worker ended; whether it ever answered."""
        worker = self.workers.pop(pid or 0, None)
        return worker is not None and worker.ready

    def reload(self) -> Future[dict[str, Any]]:
        """Have the file read again: what to answer, or a ReloadError."""
        with self._queueing:
            if self._queued is None:  # who asks while a reload waits for another one to end is answered by that
                self._queued = Future()
                self._wanted.release()
            return self._queued

    # Who connects

    def _accept(self) -> None:
        while True:
            try:
                connection = self._listener.accept()
            except (OSError, EOFError) as error:  # it is gone already, or there are no more descriptors
                if self._is_closed:
                    return
                log("control", logging.ERROR, reason=str(error))
                time.sleep(_CHECK_SECONDS)
                continue
            threading.Thread(target=self._converse, args=(connection,), daemon=True).start()

    def _converse(self, connection: Connection) -> None:
        try:
            body, _ = receive(connection)
            if body["kind"] == "reload":
                with connection:
                    send(connection, self._reload_answer())
            else:
                self._admit(WorkerProcess(connection, body["pid"]))
        except (OSError, EOFError, WorkerError):  # a worker that fails has logged why, and is replaced
            pass

    def _reload_answer(self) -> dict[str, Any]:
        try:
            return {"result": self.reload().result()}
        except ReloadError as error:
            return {"refused": str(error)}

    def _admit(self, worker: WorkerProcess) -> None:
        with worker.asking:
            with self._handing:
                self.workers[worker.pid] = worker
                worker.tell({"kind": "start", "settings": self._settings.to_json()}, self.current.files)
            worker.wait(_LOAD_SECONDS)
            worker.ready = True
        self._on_ready()

    # Reloading

    def _reload_in_turn(self) -> None:
        if sys.platform == "linux":  # elsewhere only whole processes have a priority
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
        while self._wanted.acquire():
            with self._queueing:
                asked, self._queued = self._queued, None
            assert asked is not None
            self.is_reloading = True
            notify_systemd("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")
            outcome = "rejected"
            began = time.monotonic()
            try:
                changed = self._reload()
                outcome = "changed" if changed else "unchanged"
                answer: dict[str, Any] = {
                    "checksum": self.current.checksum, "changed": changed, "workers": self.ready,
                    "seconds": round(time.monotonic() - began, 3),
                }  # fmt: skip
                log("reload", outcome=outcome, **answer)
                asked.set_result(answer)
            except Exception as error:
                foreseen = isinstance(error, DeqlError)
                log("reload", logging.ERROR, None if foreseen else error, outcome=outcome, reason=str(error))
                asked.set_exception(ReloadError(str(error) or type(error).__name__))
            self._reloads.labels(outcome).inc()
            notify_systemd("READY=1")
            self.is_reloading = False

    def _reload(self) -> bool:
        """Have all workers answer from the file as it is now; whether that is another model."""
        new = snapshot.take(Path(self._settings.model), self.current.checksum)
        if new.checksum == self.current.checksum:
            new.close()
            return False
        try:
            self.hand_out(new)
        except BaseException:
            new.close()
            raise
        return True

    def hand_out(self, new: Snapshot) -> None:
        """Every worker prepares the model, and only if all can, every worker swaps.

        Workers may end and start meanwhile, with the old model; those are asked in the next round.
        """
        prepared: set[WorkerProcess] = set()
        for _ in range(_ROUNDS):
            asked = set(self.workers.values()) - prepared
            failed = _ask_all(asked, {"kind": "prepare"}, new.files, _LOAD_SECONDS)
            refused = [error for error in failed.values() if not isinstance(error, WorkerGoneError)]
            if refused:
                self._drop()
                raise ReloadError(f"{self._settings.model} could not be loaded: {refused[0]}")
            for worker in failed:
                self.forget(worker.pid)
            prepared |= asked
            with self._handing:
                if set(self.workers.values()) <= prepared:
                    self._swap(new)
                    return
        self._drop()
        raise ReloadError(f"{self._settings.model} could not be loaded: workers end again and again")

    def _swap(self, new: Snapshot) -> None:
        for worker, error in _ask_all(self.workers.values(), {"kind": "swap"}, None, _SWAP_SECONDS).items():
            log("worker_killed", logging.ERROR, worker=worker.pid, reason=f"it did not take up the new model: {error}")
            worker.kill()  # it starts again, with the new model
        self.current.close()
        self.current = new

    def _drop(self) -> None:
        _ask_all(self.workers.values(), {"kind": "drop"}, None, _SWAP_SECONDS)


def _ask_all(
    workers: Iterable[WorkerProcess], body: Mapping[str, Any], files: Mapping[str, int] | None, seconds: float
) -> dict[WorkerProcess, WorkerError]:
    """Ask all at the same time; the errors of those that have one."""
    failed: dict[WorkerProcess, WorkerError] = {}

    def ask(worker: WorkerProcess) -> None:
        try:
            worker.ask(body, files, seconds)
        except WorkerError as error:
            failed[worker] = error

    everyone = list(workers)
    with ThreadPoolExecutor(len(everyone) or 1) as pool:
        list(pool.map(ask, everyone))
    return failed


class _Supervisor:
    """Runs uvicorn's process manager, and does what signals say."""

    def __init__(
        self, settings: Settings, listener: socket.socket, share: SharedModel, ready: Callable[[str], None] | None
    ) -> None:
        self._settings, self._listener, self._share, self._ready = settings, listener, share, ready
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
            self._share.start(self._on_ready)
            try:
                self._manager.init_processes()
            except Exception as error:  # no more processes, say
                log("worker_failed", logging.ERROR, error, reason=str(error))
                self._give_up()
            while not self._stopping:
                self._keep_workers()
                self._wait(_CHECK_SECONDS * 2**self._failed_starts)
            self._end()
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
                mark_process_dead(process.pid, os.environ[FOLDER])  # type: ignore[no-untyped-call]
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
                self._share.reload()
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
