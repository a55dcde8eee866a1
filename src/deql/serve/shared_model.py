"""The same models for all workers: the supervisor hands them to each that starts, and another one to all at once.

uvicorn's process manager has no notion of that. So each worker connects to the supervisor, which asks it to prepare a
model and then to take it up; whoever asks for a reload, or an update, connects for that alone.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import reduction
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from typing import Any

from deql.errors import DeqlError
from deql.serve import snapshot
from deql.serve.monitoring import log, notify_systemd, reload_counter
from deql.serve.settings import Settings
from deql.serve.snapshot import ReloadError, Snapshot

__all__ = ["CONTROL", "SharedModel", "WorkerError", "WorkerGoneError", "WorkerProcess", "receive", "send"]

CONTROL = "control"
"""The socket, in the folder that is the server's own, at which the supervisor listens to its workers."""

_LOAD_SECONDS = 600.0
"""For a worker to load a model; one that takes longer hangs."""

_SWAP_SECONDS = 10.0

_SILENT_SECONDS = 2.0
"""Of silence after another worker has answered: then one is not waited for, as all others wait for the new model.

Where nobody has answered it may be the model that keeps them all busy; who hangs is the supervisor's to decide, later.
"""

_LOOK_SECONDS = 0.1

_RETRY_SECONDS = 0.1

_NICE = 5
"""How much the preparation of the next model gives way to requests."""


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
    asking : Lock
        Held from a question to its answer.
    """

    def __init__(self, connection: Connection, pid: int, is_left: Callable[[int], bool] = lambda pid: False) -> None:
        self._connection, self.pid, self.ready, self._is_left = connection, pid, False, is_left
        self.asking = threading.Lock()

    def ask(self, body: Mapping[str, Any], files: Mapping[str, int] | None, seconds: float) -> None:
        """Have something done; WorkerError if it was not."""
        with self.asking:
            self.tell(body, files)
            self.wait(seconds)

    def tell(self, body: Mapping[str, Any], files: Mapping[str, int] | None) -> None:
        """Ask, without waiting for the answer."""
        try:
            send(self._connection, body, files)
        except OSError as error:
            raise WorkerGoneError(f"worker {self.pid} cannot be reached: {error}") from None

    def wait(self, seconds: float) -> None:
        """Wait for the answer. A worker that does not give one is ended: it might seem to be that of the next."""
        try:
            end = time.monotonic() + seconds
            while not self._connection.poll(min(seconds, _LOOK_SECONDS)):
                if time.monotonic() > end or self._is_left(self.pid):
                    self.kill()
                    reason = f"worker {self.pid} did not answer within {seconds:g} seconds, or hangs"
                    log("worker_killed", logging.ERROR, worker=self.pid, reason=reason)
                    raise WorkerGoneError(reason)
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
    """The models that all workers serve: hands them to each that starts, and another one to all of them at once.

    Parameters
    ----------
    settings : Settings
    first : dict of Snapshot
        By the models' names.
    folder : str
        Where workers find the control socket.
    on_ready : callable
        Called when a worker answers requests.
    silence : callable, optional
        For how many seconds the worker with a process number has left a ping without an answer.

    Attributes
    ----------
    refused : str or None
        Why a worker that started would not serve one of the models: others would not, either.
    answers : dict of callables
        What is answered to workers that ask, by the kind of the question: each is called in a thread of its own.
    """

    def __init__(
        self, settings: Settings, first: dict[str, Snapshot], folder: str, on_ready: Callable[[], None],
        silence: Callable[[int], float] = lambda pid: 0.0,
    ) -> None:  # fmt: skip
        self._settings, self.current, self._on_ready, self._silence = settings, first, on_ready, silence
        self.workers: dict[int, WorkerProcess] = {}
        self.is_reloading = self._is_closed = False
        self.refused: str | None = None
        self._listener = Listener(os.path.join(folder, CONTROL), "AF_UNIX", backlog=64)
        self._reloads = reload_counter()
        # Who starts while all workers take up a new model waits for that: else it might have the old one for good.
        self._handing = threading.Lock()
        self._reloading = threading.Lock()
        self._answered: float | None = None  # when the first worker answered what all are asked
        self._last_began, self._last_answer = 0.0, {"refused": ""}
        self.answers: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {"reload": lambda body: self.reload()}
        threading.Thread(target=self._accept, name="control", daemon=True).start()

    def close(self) -> None:
        """Listen to nobody any more."""
        self._is_closed = True
        self._listener.close()

    @property
    def ready(self) -> int:
        """How many workers answer."""
        return sum(worker.ready for worker in list(self.workers.values()))

    def is_ready(self, pid: int) -> bool:
        """Whether a worker has ever answered."""
        worker = self.workers.get(pid)
        return worker is not None and worker.ready

    def forget(self, pid: int | None) -> bool:
        """A worker ended; whether it ever answered."""
        worker = self.workers.pop(pid or 0, None)
        return worker is not None and worker.ready

    # Who connects

    def _accept(self) -> None:
        while not self._is_closed:
            try:
                connection = self._listener.accept()
                threading.Thread(target=self._converse, args=(connection,), daemon=True).start()
            except Exception as error:  # it is gone already, or there are no more descriptors, or threads
                if not self._is_closed:
                    log("control", logging.ERROR, reason=str(error))
                    time.sleep(_RETRY_SECONDS)

    def _converse(self, connection: Connection) -> None:
        with contextlib.suppress(OSError, EOFError, WorkerError):  # a worker that fails has logged why, and is replaced
            body, _ = receive(connection)
            if body["kind"] in self.answers:
                with connection:
                    send(connection, self.answers[body["kind"]](body))
            else:
                self.admit(WorkerProcess(connection, body["pid"], self.is_left))

    def admit(self, worker: WorkerProcess) -> None:
        """Hand the models to a new worker, and wait until it answers from them."""
        with worker.asking:
            try:
                with self._handing:
                    self.workers[worker.pid] = worker
                    worker.tell({"kind": "start", "settings": self._settings.to_json()}, None)
                    for name, had in self.current.items():
                        worker.tell({"kind": "model", "name": name}, had.files)
                worker.wait(_LOAD_SECONDS)
            except WorkerGoneError:  # perhaps before it was among the workers, so that nobody else takes it from there
                self.workers.pop(worker.pid, None)
                raise
            except WorkerError as error:
                self.refused = str(error)
                raise
            worker.ready = True
        self._on_ready()

    # Reloading

    def reload(self) -> dict[str, Any]:
        """Read the files again: the ``result``, or why a model was ``refused``. For a thread of its own."""
        asked = time.monotonic()
        with self._reloading:
            if self._last_began < asked:  # else one that began meanwhile, while this one waited, is the answer
                self._last_began = time.monotonic()
                with self._announced():
                    self._last_answer = self._reload_and_tell()
            return self._last_answer

    def take_up(self, name: str) -> None:
        """Read one file again, after a reload that is under way; raises what is wrong with it. For a thread, too."""
        with self._reloading, self._announced():
            self._reload_one(name)

    def copy_of(self, name: str) -> tuple[int, str]:
        """The copy that a model is served from, opened once more, and its checksum."""
        with self._handing:
            return os.dup(self.current[name].files["model"]), self.current[name].checksum

    @contextlib.contextmanager
    def _announced(self) -> Iterator[None]:
        if sys.platform == "linux":  # elsewhere only whole processes have a priority
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
        self.is_reloading = True
        notify_systemd("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")
        try:
            yield
        finally:
            notify_systemd("READY=1")
            self.is_reloading = False

    def _reload_and_tell(self) -> dict[str, Any]:
        began, models, refused = time.monotonic(), [], []
        for name in self._settings.models:  # one after the other: beside the old ones there is one new one at most
            try:
                models.append(self._reload_one(name))
            except Exception as error:
                refused.append(str(error) or type(error).__name__)
        changed = [model["name"] for model in models if model["changed"]]
        if refused:
            replaced = [f"replaced: {', '.join(changed)}"] if changed else []
            return {"refused": "; ".join(refused + replaced)}
        first = models[0]["checksum"]
        seconds = round(time.monotonic() - began, 3)
        return {
            "result": {
                "checksum": first, "changed": bool(changed), "workers": self.ready, "seconds": seconds,
                "models": models,
            }
        }  # fmt: skip

    def _reload_one(self, name: str) -> dict[str, Any]:
        began, outcome = time.monotonic(), "rejected"
        try:
            outcome = "changed" if self._reload(name) else "unchanged"
            result: dict[str, Any] = {
                "name": name, "checksum": self.current[name].checksum, "changed": outcome == "changed",
            }  # fmt: skip
            seconds = round(time.monotonic() - began, 3)
            log("reload", outcome=outcome, **result, workers=self.ready, seconds=seconds)
            return result
        except Exception as error:
            foreseen = isinstance(error, DeqlError)
            log("reload", logging.ERROR, None if foreseen else error, name=name, outcome=outcome, reason=str(error))
            raise
        finally:
            self._reloads.labels(outcome).inc()

    def _reload(self, name: str) -> bool:
        """Have all workers answer from the file as it is now; whether that is another model."""
        had = self.current[name].checksum
        new = snapshot.take(Path(self._settings.models[name]), had)
        if new.checksum == had:
            new.close()
            return False
        try:
            self.hand_out(name, new)
        except BaseException:
            new.close()
            raise
        return True

    def hand_out(self, name: str, new: Snapshot) -> None:
        """Every worker prepares the model of this name, and only if all can, every worker swaps.

        One that ends meanwhile is no reason to refuse the model; if all of them end, the model may well be it.
        """
        with self._handing:
            everyone = list(self.workers.values())  # some may end, and be taken from among the workers, meanwhile
            failed = self._ask_all(everyone, {"kind": "prepare", "name": name}, new.files, _LOAD_SECONDS)
            refused = [error for error in failed.values() if not isinstance(error, WorkerGoneError)]
            if refused or len(failed) == len(everyone):
                self._ask_all(everyone, {"kind": "drop"}, None, _SWAP_SECONDS)
                why = refused[0] if refused else "workers end again and again"
                raise ReloadError(f"{self._settings.models[name]} could not be loaded: {why}")
            for worker, error in self._ask_all(everyone, {"kind": "swap"}, None, _SWAP_SECONDS).items():
                if isinstance(error, WorkerGoneError):  # by now its number may be that of another process
                    continue
                worker.kill()  # it starts again, with the new model
                log("worker_killed", logging.ERROR, worker=worker.pid, reason=f"it has not the new model: {error}")
            self.current[name].close()
            self.current[name] = new

    def _ask_all(
        self, everyone: Sequence[WorkerProcess], body: Mapping[str, Any], files: Mapping[str, int] | None,
        seconds: float,
    ) -> dict[WorkerProcess, WorkerError]:  # fmt: skip
        """Ask all workers at the same time; the errors of those that have one."""
        failed: dict[WorkerProcess, WorkerError] = {}
        self._answered = None

        def ask(worker: WorkerProcess) -> None:
            try:
                worker.ask(body, files, seconds)
            except WorkerError as error:
                failed[worker] = error
                if isinstance(error, WorkerGoneError):
                    return
            self._answered = self._answered or time.monotonic()

        with ThreadPoolExecutor(len(everyone) or 1) as pool:
            list(pool.map(ask, everyone))
        return failed

    def is_left(self, pid: int) -> bool:
        """Whether a worker that is asked with all others is not to be waited for any more."""
        answered = self._answered
        if answered is None:
            return False
        return min(self._silence(pid), time.monotonic() - answered) > _SILENT_SECONDS
