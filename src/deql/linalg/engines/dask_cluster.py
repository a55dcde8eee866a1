"""A Dask cluster as a fit sees it: what is asked of its workers beforehand, tasks, and losses."""

from __future__ import annotations

import asyncio
import uuid
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from deql._version import __version__
from deql.errors import ClusterError, ParameterError, TooLargeError, name_some, reason

__all__ = [
    "CLIENT", "POLL", "RETURNING", "Cluster", "WorkerFacts", "WorkerLostError", "ask", "done_soon", "identities",
    "watch",
]  # fmt: skip

CLIENT = 128 * 2**20
"""Bytes that the client of a cluster takes here, with messages under way."""

_ANSWER = 60.0
"""Seconds until a scheduler or workers that were well, and do not answer a question, are given up."""

POLL = 0.5
"""Seconds between looks at which workers are left."""

RETURNING = 30.0
"""Seconds that is waited for workers to come back where those that are left do not suffice."""

# Sent by its source, as it is to run where there is no deql.
_PROBE = """
def probe(token, folder, dask_worker):
    import os, sys
    manager = dask_worker.memory_manager
    limit = dask_worker.memory_manager.memory_limit or 0
    facts = {"threads": dask_worker.state.nthreads, "memory": int(limit * (manager.memory_pause_fraction or 1))}
    facts["host"] = dask_worker.address.rsplit(":", 1)[0]
    if not facts["memory"]:
        import psutil
        facts["memory"], facts["shared"] = psutil.virtual_memory().total, True
    try:
        import deql
        facts["deql"] = deql.__version__
    except ImportError:
        facts["deql"] = None
    facts["folder"] = ""
    if folder is not None:
        try:
            with open(os.path.join(folder, token)) as file:
                if file.read() != token:
                    raise OSError("another file of that name is there")
            own = os.path.join(folder, token + "-" + dask_worker.id.replace(os.sep, "-"))
            with open(own, "w") as file:
                file.write(token)
            facts["wrote"] = os.path.basename(own)
        except OSError as error:
            facts["folder"] = (error.strerror or str(error)).lower()
    return facts
"""


class WorkerLostError(Exception):
    """A worker went away, and with it what it held; the fit goes back to its last checkpoint."""


@dataclass(frozen=True)
class WorkerFacts:
    """What a fit may use of a worker.

    Attributes
    ----------
    address : str
    identity : str
        Another one for a process that came back at the same address.
    threads : int
    memory : int
        Bytes that it may take: up to where Dask pauses it, if that has a limit.
    """

    address: str
    identity: str
    threads: int
    memory: int


def ask(client: Any, question: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """The answer to a question that workers or the scheduler answer at once, if they are well.

    Parameters
    ----------
    client : distributed.Client
    question : callable
        One of its verbs.
    *arguments, **options
        Of the verb.

    Raises
    ------
    ClusterError
        If nobody answers.
    """
    if client.status == "running":
        try:
            return question(*arguments, **options, callback_timeout=_ANSWER)
        except TimeoutError:
            raise ClusterError(
                f"the Dask cluster at {client.scheduler.address} did not answer within {_ANSWER:.0f} seconds: look for "
                "workers that hang"
            ) from None
        except OSError:
            pass
    raise ClusterError("the connection to the Dask scheduler was lost: start again when it is back") from None


def identities(client: Any) -> dict[str, str]:
    """The workers' addresses, each with what tells a process from another that comes back there."""

    def identity(**options: Any) -> Any:  # not scheduler_info(), which says what it knew if there is no answer
        return client.sync(client.scheduler.identity, n_workers=-1, **options)

    found = ask(client, identity)["workers"]
    return {address: str(one.get("server_id") or one["id"]) for address, one in found.items()}


def watch(client: Any, verb: Callable[..., Any], check: Callable[[], Any], *arguments: Any, **options: Any) -> Any:
    """What a verb of a client that moves data gives; ``check`` is called meanwhile, and ends it by an error."""
    if client.status != "running":
        raise ClusterError("the connection to the Dask scheduler was lost: start again when it is back")
    moving = asyncio.run_coroutine_threadsafe(verb(*arguments, **options, asynchronous=True), client.loop.asyncio_loop)
    try:
        while True:
            try:
                return moving.result(POLL)
            except TimeoutError:
                if moving.done():
                    raise
                check()
    finally:
        moving.cancel()


def done_soon(futures: Sequence[Any]) -> list[Any]:
    """Those of some tasks that are done, however they ended, as soon as one is; none of them if none is for a while.

    It asks the futures again and again, as an end of :func:`distributed.wait` by time leaves an error whose frames hold
    them: what they stand for would stay on the workers until that garbage is collected.
    """
    until, pause = monotonic() + POLL, 0.001
    while not (done := [future for future in futures if future.done()]) and monotonic() < until:
        sleep(pause)
        pause = min(2 * pause, 0.02)
    return done


class Cluster:
    """Tasks of one fit on the workers of a cluster; when it is left, nothing of them stays there.

    Parameters
    ----------
    client : distributed.Client
    folder : Path, optional
        Which all of them see.
    """

    def __init__(self, client: Any, folder: Path | None = None) -> None:
        self.client, self.folder = client, folder
        self.token = uuid.uuid4().hex[:8]
        self.workers: dict[str, WorkerFacts] = {}
        self._futures: weakref.WeakSet[Any] = weakref.WeakSet()
        self._count = 0

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *error: object) -> None:
        self.forget()

    def look(self) -> dict[str, WorkerFacts]:
        """Find the workers and ask each what a fit has to know.

        Raises
        ------
        ClusterError
            If there is none, one lacks this version of deql, or one does not see the folder.
        """
        found = identities(self.client)
        if not found:
            raise ClusterError(f"the scheduler at {self.client.scheduler.address} has no workers: start some")
        namespace: dict[str, Any] = {"__name__": "deql_worker_probe"}
        exec(_PROBE, namespace)
        token = f".deql-{uuid.uuid4().hex}"
        with self._token_file(token):
            folder = None if self.folder is None else str(self.folder)
            options: dict[str, Any] = {"workers": list(found), "on_error": "return"}
            said = ask(self.client, self.client.run, namespace["probe"], token, folder, **options)
            facts = {address: one for address, one in said.items() if isinstance(one, dict)}
            self._check(facts, [one for one in said.values() if not isinstance(one, dict)])
        on_host = [one["host"] for one in facts.values()]
        self.workers = {
            address: WorkerFacts(
                address,
                found[address],
                one["threads"],
                one["memory"] // (on_host.count(one["host"]) if one.get("shared") else 1),
            )
            for address, one in facts.items()
        }
        return self.workers

    def _check(self, facts: dict[str, Any], failures: Sequence[Any]) -> None:
        if not facts:
            raise ClusterError(f"no worker of the cluster answers: {failures[0]}")
        without = [address for address, one in facts.items() if one["deql"] is None]
        if without:
            raise ClusterError(
                f"deql is not installed on the workers {name_some(without)}: install deql {__version__} there"
            )
        others = {address: one["deql"] for address, one in facts.items() if one["deql"] != __version__}
        if others:
            version = next(iter(others.values()))
            raise ClusterError(
                f"the workers {name_some(list(others))} have deql {version}, and here is {__version__}: "
                "install the same version on all"
            )
        blind = {address: one["folder"] for address, one in facts.items() if one["folder"]}
        if blind:
            raise ClusterError(
                f"the workers {name_some(list(blind))} cannot use the folder {self.folder} "
                f"({next(iter(blind.values()))}): name one that all workers share"
            )
        if self.folder is not None:
            unseen = [address for address, one in facts.items() if not (self.folder / one["wrote"]).is_file()]
            if unseen:
                raise ClusterError(
                    f"what the workers {name_some(unseen)} write to {self.folder} is not seen here: "
                    "name a folder that all workers share"
                )

    @contextmanager
    def _token_file(self, token: str) -> Iterator[None]:
        if self.folder is None:
            yield
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            (self.folder / token).write_text(token)
        except OSError as error:
            raise ParameterError(
                f"the folder {self.folder} cannot be written to: {reason(error)}", parameter="folder"
            ) from None
        try:
            yield
        finally:
            for file in self.folder.glob(f"{token}*"):
                file.unlink(missing_ok=True)

    def submit(self, name: str, function: Callable[..., Any], *arguments: Any, worker: str, priority: int = 0) -> Any:
        """A task for one worker; the dashboard shows it by name."""
        self._count += 1
        key = f"deql-{name}-{self._count}-{self.token}"
        future = self.client.submit(
            function, *arguments, key=key, workers=[worker], priority=priority, pure=False, allow_other_workers=False
        )
        self._futures.add(future)
        return future

    def scatter(self, data: Any, worker: str) -> Any:
        """Send an object to a worker."""
        (future,) = self._move(self.client.scatter, [data], workers=[worker], hash=False)
        self._futures.add(future)
        return future

    def wait(self, futures: Iterable[Any]) -> None:
        """Wait until tasks are done; raise their error, or WorkerLostError if a worker went away."""
        left = list(futures)
        while left:
            left = self.still_pending(left)

    def still_pending(self, futures: Sequence[Any]) -> list[Any]:
        """Wait for a moment, or until one of these tasks is done: those that are not, errors as of :meth:`wait`."""
        if not done_soon(futures):
            self.check_workers()
        pending = [future for future in futures if future.status == "pending"]
        for future in futures:
            if future.status != "pending":
                self._raise(future)
        return pending

    def results(self, futures: Sequence[Any]) -> list[Any]:
        """What tasks returned."""
        self.wait(futures)
        found: list[Any] = self._move(self.client.gather, list(futures))
        return found

    def _move(self, verb: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Move data between here and workers: what fails on the way is a loss, and so is a worker that goes."""
        from distributed import CancelledError

        try:
            return watch(self.client, verb, self.check_workers, *arguments, **options)
        except (CancelledError, OSError) as error:
            raise WorkerLostError(_first_line(error)) from None

    def _raise(self, future: Any) -> None:
        from distributed.scheduler import KilledWorker, NoWorkerError

        if future.status == "finished":
            return
        error = future.exception() if future.status == "error" else None
        if error is None or isinstance(error, KilledWorker | NoWorkerError) or type(error).__name__ in _OF_LOSSES:
            raise WorkerLostError(str(error or future.status))
        self.check_workers()
        raise error

    def check_workers(self) -> None:
        """Raise WorkerLostError if one of the fit's workers is gone, or another process at its address."""
        left = identities(self.client)
        lost = [one.address for one in self.workers.values() if left.get(one.address) != one.identity]
        if lost:
            raise WorkerLostError(name_some(lost))

    def recover(self, check: Callable[[dict[str, WorkerFacts]], None]) -> None:
        """After a loss: let go of all that was computed, and find workers that suffice by a check, for a while."""
        self.forget()
        until = monotonic() + RETURNING
        while True:
            try:
                check(self.look())
                return
            except (ClusterError, TooLargeError):
                if monotonic() > until:
                    raise
                sleep(1.0)

    def forget(self) -> None:
        """Let go of all results, and of the tasks that would make more: what nobody waits for is not run."""
        futures = list(self._futures)
        self._futures = weakref.WeakSet()
        for future in futures:
            future.release()


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]


_OF_LOSSES = {"StaleTilesError", "FutureCancelledError", "FuturesCancelledError", "CommClosedError"}
"""Errors of tasks that a lost worker leaves behind."""
