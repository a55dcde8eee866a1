"""Threads for the kernels, which release the interpreter's lock while they run.

Plain threads rather than numba's own: those end the process when two Python threads enter parallel
code at once under some of numba's threading layers, take seconds more to compile, and can be neither
watched nor interrupted.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext
from functools import cache
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from deql._system.limits import check_room_for_blas, usable_processors
from deql._system.machine import processor_quota
from deql.errors import ParameterError

__all__ = [
    "blas_limited", "even_bounds", "interruptible", "map_ahead", "read_only", "run_slices", "set_threads",
    "thread_count",
]  # fmt: skip

Given = TypeVar("Given")
Made = TypeVar("Made")


_MOST_THREADS = 1024
_chosen: int | None = None


def set_threads(count: int | None) -> None:
    """Choose how many threads this process uses, for its kernels and for BLAS.

    Parameters
    ----------
    count : int or None
        None goes back to ``DEQL_THREADS``, or else all processors that this process may use.

    Examples
    --------
    >>> import deql
    >>> deql.set_threads(1)
    >>> thread_count()
    1
    >>> deql.set_threads(None)
    """
    global _chosen
    whole = isinstance(count, int | np.integer) and not isinstance(count, bool)
    if count is not None and not (whole and 1 <= count <= _MOST_THREADS):
        raise ParameterError(
            f"the number of threads must be a whole number from 1 to {_MOST_THREADS:,}, got {count!r}",
            parameter="threads",
        )
    _chosen = None if count is None else int(count)


def thread_count() -> int:
    """Threads to use: as :func:`set_threads` says, else ``DEQL_THREADS``, else the processors this process may use.

    Those are the ones it may run on, or fewer if a control group gives it less time than they have. Many more
    threads than processors only take memory, so that a larger number is cut down.

    Examples
    --------
    >>> thread_count() >= 1
    True
    """
    processors = usable_processors()
    most = max(16, 4 * processors)
    if _chosen is not None:
        return min(_chosen, most)
    wanted = os.environ.get("DEQL_THREADS", "")
    if wanted:
        if not (wanted.isascii() and wanted.isdecimal() and 1 <= int(wanted[:9]) <= _MOST_THREADS):
            raise ParameterError(f"DEQL_THREADS must be a whole number from 1 to {_MOST_THREADS:,}, got {wanted!r}")
        return min(int(wanted), most)
    return min(processors, _quota() or processors)


_quota = cache(processor_quota)
"""Read once: it takes longer than some of the work that is divided."""


_limiting = threading.Lock()
_limits: list[int] = []
_usual: Any = None


@contextmanager
def blas_limited(threads: int | None = None) -> Iterator[None]:
    """While it is entered, BLAS uses so many threads, or as many as :func:`thread_count` says.

    The number is the whole process's: while several are entered, from threads of their own, the least counts, and
    what it was before comes back with the last of them.

    Examples
    --------
    >>> with blas_limited():
    ...     product = np.ones((2, 2)) @ np.ones((2, 2))
    """
    limit = threads or thread_count()
    _change_limits(_limits.append, limit)
    try:
        yield
    finally:
        _change_limits(_limits.remove, limit)


def _change_limits(change: Callable[[int], None], limit: int) -> None:
    global _usual
    with _limiting:
        before = min(_limits, default=None)
        change(limit)
        now = min(_limits, default=None)
        if now is None:
            _usual.restore_original_limits()
        elif now != before:
            limiter = _controller().limit(limits=now, user_api="blas")
            _usual = limiter if before is None else _usual


@cache
def _controller() -> Any:
    """Found once: looking through all loaded libraries takes longer than a small fit."""
    check_room_for_blas()
    import scipy.linalg.blas  # noqa: F401  NumPy's BLAS is loaded by now, and SciPy's own is with this
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def even_bounds(count: int, slices: int) -> list[int]:
    """Where slices of about the same length begin and end.

    Examples
    --------
    >>> even_bounds(5, 2)
    [0, 2, 5]
    """
    return [count * part // slices for part in range(slices + 1)]


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """The same numbers, not to be written: a kernel is compiled once for models fitted and models read from a file.

    Examples
    --------
    >>> read_only(np.zeros(2)).flags.writeable
    False
    """
    view = array.view(np.ndarray)
    view.flags.writeable = False
    return view


def run_slices(
    kernel: Callable[..., Any],
    bounds: Iterable[int],
    *arguments: Any,
    stop: NDArray[np.bool_] | None = None,
    poll: Callable[[], None] | None = None,
    pool: ThreadPoolExecutor | None = None,
) -> None:
    """Call ``kernel(first, last, *arguments)`` for consecutive bounds, in threads.

    When interrupted, no further slice is started, and those under way are asked to end.

    Parameters
    ----------
    kernel : callable
        Releases the interpreter's lock while it works.
    bounds : iterable of int
        Where slices begin and end.
    *arguments
        Handed to the kernel as they are.
    stop : ndarray of one bool, optional
        Set to True on an interruption; a kernel that is given it too may look at it and return early.
    poll : callable, optional
        Called a few times a second while the work goes on, and at its end.
    pool : ThreadPoolExecutor, optional
        Threads to use again, for many short calls; none is left for others after an error.

    Examples
    --------
    >>> seen = []
    >>> run_slices(lambda first, last: seen.append((first, last)), [0, 3, 5])
    >>> sorted(seen)
    [(0, 3), (3, 5)]
    """
    slices = list(pairwise(bounds))
    workers = min(thread_count(), len(slices))
    if workers <= 1 and poll is None:  # one short call: no thread to start
        for first, last in slices:
            kernel(first, last, *arguments)
        return
    with ThreadPoolExecutor(max(1, workers)) if pool is None else nullcontext(pool) as threads:
        pending = {threads.submit(kernel, first, last, *arguments) for first, last in slices}
        try:
            while pending:
                done, pending = wait(pending, timeout=0.2, return_when=FIRST_EXCEPTION)
                for future in done:
                    future.result()
                if poll is not None:
                    poll()
        except BaseException:
            if stop is not None:
                stop[0] = True
            threads.shutdown(wait=False, cancel_futures=True)
            raise


def interruptible(function: Callable[..., Made], *arguments: Any) -> Made:
    """``function(*arguments)`` in a thread that an interruption does not wait for, nor the end of the process.

    For one long call of a library that lets go of the interpreter's lock, as NumPy's LAPACK does and SciPy's does not.

    Examples
    --------
    >>> interruptible(max, 2, 3)
    3
    """
    made: Future[Made] = Future()

    def work() -> None:
        try:
            made.set_result(function(*arguments))
        except BaseException as error:
            made.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    while not made.done():
        wait([made], timeout=0.2)
    return made.result()


def map_ahead(function: Callable[[Given], Made], things: Iterable[Given], most: int = _MOST_THREADS) -> Iterator[Made]:
    """Results of ``function`` in the order of ``things``, computed in threads a few things ahead.

    Only those few are in memory, however many there are, and no more than ``most`` threads are used.

    Examples
    --------
    >>> list(map_ahead(str.upper, "abc"))
    ['A', 'B', 'C']
    """
    threads = min(thread_count(), most)
    with ThreadPoolExecutor(threads) as pool:
        pending: deque[Future[Made]] = deque()
        try:
            for thing in things:
                pending.append(pool.submit(function, thing))
                if len(pending) > 2 * threads:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
