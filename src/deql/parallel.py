"""Threads for the kernels, which release the interpreter's lock while they run.

Plain threads rather than numba's own: those end the process when two Python threads enter parallel
code at once under some of numba's threading layers, take seconds more to compile, and cannot be
interrupted.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

from deql.progress import Report

__all__ = ["run_slices", "thread_count"]


def thread_count() -> int:
    """Threads to use: ``DEQL_THREADS`` if set, else the processors this process may run on.

    Examples
    --------
    >>> thread_count() >= 1
    True
    """
    wanted = os.environ.get("DEQL_THREADS", "")
    if wanted.isdigit() and int(wanted) > 0:
        return int(wanted)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def run_slices(
    kernel: Callable[..., Any], bounds: Iterable[int], *arguments: Any, report: Report | None = None
) -> None:
    """Call ``kernel(first, last, *arguments)`` for consecutive bounds, in threads.

    An interruption takes effect when the slices under way are done; no further one is started.

    Examples
    --------
    >>> seen = []
    >>> run_slices(lambda first, last: seen.append((first, last)), [0, 3, 5])
    >>> sorted(seen)
    [(0, 3), (3, 5)]
    """
    edges = list(bounds)
    slices = list(pairwise(edges))
    workers = min(thread_count(), len(slices))
    if workers <= 1:
        for first, last in slices:
            kernel(first, last, *arguments)
            if report is not None:
                report(last, edges[-1])
        return
    pool = ThreadPoolExecutor(workers)
    try:
        done = 0
        for (first, last), _ in zip(slices, pool.map(lambda s: kernel(*s, *arguments), slices), strict=True):
            done += last - first
            if report is not None:
                report(done, edges[-1] - edges[0])
    finally:
        pool.shutdown(cancel_futures=True)
