"""A worker: one process of uvicorn's, which answers requests from the models it was handed.

It reads no model file: the supervisor hands it open copies. It ends when it is told to, or when the supervisor is gone.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import shutil
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Client, Connection
from typing import Any

from deql import set_threads
from deql._system.threads import thread_count
from deql.errors import DeqlError
from deql.serve import monitoring
from deql.serve.api import create_app
from deql.serve.middleware import RequestMiddleware
from deql.serve.monitoring import FOLDER, Metrics, log
from deql.serve.rehearsal import rehearse
from deql.serve.schemas import ApiError
from deql.serve.serving_model import ModelHolder, ServingModel
from deql.serve.settings import Settings
from deql.serve.shared_model import CONTROL, receive, send
from deql.serve.snapshot import ReloadError, attach_rows, path_of

__all__ = ["create_worker_app"]

_ASKING_AT_ONCE = 8
"""Requests for reloads and updates that wait for the supervisor; others wait for these."""


_OTHER_FILES = 256
"""Open files beside connections."""


def create_worker_app() -> RequestMiddleware:
    """The app of this process, its model loaded; uvicorn calls this once, and takes no connections before."""
    for ignored in (signal.SIGINT, signal.SIGHUP):  # meant for the supervisor
        signal.signal(ignored, signal.SIG_IGN)
    monitoring.configure_logs()
    try:
        return _Worker().app
    except Exception as error:
        if not isinstance(error, DeqlError):  # of these the supervisor is told
            log("worker_failed", logging.CRITICAL, error)
        sys.exit(1)


class _Worker:
    """Listens to the supervisor in a thread of its own: models to prepare and to swap.

    A new model is prepared first, and takes its place only once every worker has it ready.
    """

    def __init__(self) -> None:
        self._folder = os.environ[FOLDER]
        self._supervisor = self._connect({"kind": "worker", "pid": os.getpid()})
        start, _ = receive(self._supervisor)
        self._settings = settings = Settings.from_json(start["settings"])
        _allow_files(settings.connections + _OTHER_FILES)
        set_threads(settings.threads or max(1, thread_count() // settings.workers))
        self._metrics = Metrics()
        self._holder = ModelHolder(reload=self._reload, update=self._update)
        self._asking = ThreadPoolExecutor(_ASKING_AT_ONCE, "asking")
        self.app = create_app(self._holder, settings, self._metrics)
        gc.freeze()  # what stays for good: collections need not look at it, and are short
        self._next: ServingModel | None = None
        for _ in settings.models:
            body, files = receive(self._supervisor)
            try:
                self._next = _open(settings, body["name"], files)
            except DeqlError as error:
                send(self._supervisor, {"failed": f"{settings.models[body['name']]} could not be loaded: {error}"})
                raise
            self._swap()
        threading.Thread(target=self._listen, name="control", daemon=True).start()

    def _connect(self, body: dict[str, Any]) -> Connection:
        connection = Client(os.path.join(self._folder, CONTROL), "AF_UNIX")
        send(connection, body)
        return connection

    def _listen(self) -> None:
        try:
            send(self._supervisor, {})  # who connects from now on is answered
            while True:
                body, files = receive(self._supervisor)
                send(self._supervisor, self._do(body, files))
        except (OSError, EOFError):  # nobody is there any more to end this process later
            shutil.rmtree(self._folder, ignore_errors=True)
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(self._settings.grace + 5)
            os._exit(1)

    def _do(self, body: dict[str, Any], files: dict[str, int]) -> dict[str, str]:
        try:
            if body["kind"] == "swap":
                self._swap()
            else:
                self._next = None  # drop
                if body["kind"] == "prepare":
                    self._next = _open(self._settings, body["name"], files)
        except Exception as error:  # out of memory, say
            log("worker_failed", logging.ERROR, error)
            return {"failed": str(error) or type(error).__name__}
        return {}

    def _swap(self) -> None:
        new, self._next = self._next, None
        assert new is not None
        self._holder.swap(new)
        self._metrics.serving(new.served_as, len(new.items))

    async def _reload(self) -> dict[str, Any]:
        answer = await self._ask({"kind": "reload"})
        if "refused" in answer:
            raise ReloadError(answer["refused"])
        result: dict[str, Any] = answer["result"]
        return result

    async def _update(self, name: str, batch: dict[str, Any]) -> dict[str, Any]:
        answer = await self._ask({"kind": "update", "name": name, "batch": batch})
        if "refused" in answer:
            raise ApiError(**answer["refused"])
        result: dict[str, Any] = answer["result"]
        return result

    async def _ask(self, body: dict[str, Any]) -> dict[str, Any]:
        return await asyncio.get_running_loop().run_in_executor(self._asking, self._answer_to, body)

    def _answer_to(self, body: dict[str, Any]) -> dict[str, Any]:
        with self._connect(body) as supervisor:
            return receive(supervisor)[0]


def _allow_files(wanted: int) -> None:
    """Raise the usual limit of 1,024 open files, as far as the system allows: else it is reached before our own is."""
    import resource  # not on Windows, where the server says so itself

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _open(settings: Settings, name: str, files: dict[str, int]) -> ServingModel:
    """The model of these files, which has answered a few questions right."""
    curve = settings.curve if name == next(iter(settings.models)) else None
    try:
        serving = ServingModel.open(
            path_of(files["model"]),
            verify=False,
            served_as=name,
            example=settings.example,
            curve=curve,
            note=settings.note,
        )
        if "rows" in files:
            attach_rows(serving.model, files["rows"])
    finally:
        for file in files.values():  # what is mapped stays
            os.close(file)
    rehearse(serving)
    return serving
