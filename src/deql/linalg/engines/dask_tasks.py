"""Pure tasks for whichever worker of a cluster is free: what a lost worker had Dask lets another do again."""

from __future__ import annotations

import os
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from time import monotonic
from typing import Any

from deql._system.threads import set_threads
from deql.errors import ClusterError
from deql.linalg.engines.dask_cluster import RETURNING, done_soon, identities, watch

__all__ = ["first_done", "handed_over", "release_all", "result_of", "run_tasks", "send", "use_one_thread"]

_RETRIES = 3
"""How often a task is tried again that raises, as shared storage may fail for a moment; those of lost workers are run
again by Dask itself."""


def send(client: Any, name: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """The future of a task, which the dashboard shows by name."""
    with _large_arguments():
        key = f"deql-{name}-{uuid.uuid4().hex[:12]}"
        return client.submit(function, *arguments, key=key, retries=_RETRIES, pure=False)


@contextmanager
def handed_over(client: Any, name: str, value: Any) -> Iterator[Any]:
    """A value on the cluster as the result of a task, so that it can be had again when its worker is lost.

    What is scattered is lost with the last worker that has it, and all that depends on it too.
    """
    future = send(client, name, _itself, value)
    try:
        yield future
    finally:
        future.release()


def _itself(value: Any) -> Any:
    return value


@contextmanager
def _large_arguments() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sending large graph")  # which advises to scatter them
        yield


def run_tasks(
    client: Any,
    name: str,
    function: Callable[..., Any],
    tasks: Sequence[tuple[Any, ...]],
    report: Callable[[int, int], None] | None = None,
) -> Iterator[tuple[int, Any]]:
    """The number of each task and what it gave, in the order in which they end.

    A few more than the workers have threads are sent at once, so that their arguments do not fill the memory there.

    Parameters
    ----------
    client : distributed.Client
    name : str
        By which the dashboard shows them.
    function : callable
    tasks : sequence of tuple
        Arguments of each.
    report : callable, optional
        Called as ``report(done, total)``.

    Raises
    ------
    ClusterError
        If a task ended several workers, all workers are gone, or the scheduler is.
    """
    waiting = iter(enumerate(tasks))
    running: dict[Any, int] = {}
    most = max(2, 2 * sum(client.nthreads().values()))
    done = 0
    try:
        while True:
            while len(running) < most and (following := next(waiting, None)) is not None:
                running[send(client, name, function, *following[1])] = following[0]
            if not running:
                return
            for future in first_done(client, list(running)):
                found, number = result_of(client, future), running.pop(future)
                future.release()
                done += 1
                if report is not None:
                    report(done, len(tasks))
                yield number, found
    finally:
        release_all(running)


def release_all(futures: Iterable[Any]) -> None:
    """Let go of tasks and their results: those that nobody else waits for are not run."""
    for future in futures:
        with suppress(Exception):  # a scheduler that is gone has none of them
            future.release()


def first_done(client: Any, futures: Sequence[Any]) -> list[Any]:
    """Wait until some of these tasks are done, as long as there are workers.

    Raises
    ------
    ClusterError
        If there are none and none comes back, or the scheduler is gone.
    """
    since: float | None = None
    while not (done := done_soon(futures)):
        since = None if identities(client) else since or monotonic()
        if since is not None and monotonic() - since > RETURNING:
            raise ClusterError(
                "all workers of the Dask cluster are gone: look at their logs, and start again when they are back"
            )
    if any(future.cancelled() for future in done):
        raise _cancelled()
    return done


def result_of(client: Any, future: Any) -> Any:
    """What a task that is done gave.

    Raises
    ------
    ClusterError
        If it ended its workers, or was cancelled; else what the task raised.
    """
    from distributed import CancelledError
    from distributed.scheduler import KilledWorker

    try:
        return watch(client, client.gather, lambda: identities(client), future)
    except KilledWorker:
        raise ClusterError(
            "one of the tasks ended one worker after the other, perhaps for lack of memory: use smaller parts, or "
            "workers with more memory"
        ) from None
    except CancelledError:
        raise _cancelled() from None


def _cancelled() -> ClusterError:
    return ClusterError("the Dask scheduler cancelled the work: it was restarted, or its connection lost; start again")


def use_one_thread(asker: int) -> None:
    """On a worker: one thread for each task, as Dask runs as many tasks as the worker has threads.

    Parameters
    ----------
    asker : int
        The process that sent the task; where that is the worker too, it has a number of its own.
    """
    if os.getpid() != asker:
        set_threads(1)
