"""P times a few hundred columns: at the speed of large matrix products, reading P once."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deql._system.progress import ProgressCallback
from deql._system.threads import blas_limited, run_slices, thread_count
from deql.linalg.blas import MOST_CALLERS, gemm
from deql.linalg.packed import PackedSymmetric

__all__ = ["COLUMNS_AT_ONCE", "thin_product"]

COLUMNS_AT_ONCE = 4096
"""Columns that one pass over P is made for."""

_ROWS, _COLUMNS = 4096, 128
"""Of the result, in one task. Sums do not depend on how many threads there are, as these are fixed."""


def thin_product(
    precision: PackedSymmetric, thin: NDArray[np.floating], report: ProgressCallback | None = None
) -> NDArray[np.float32]:
    """P·U, in float32.

    Products are made in the type of P, block column by block column as they are stored, so that P, which may lie in a
    file, is read once for every few thousand columns. Each number is summed by one thread in one order.

    Parameters
    ----------
    precision : PackedSymmetric
        In memory, or mapped from a file.
    thin : ndarray, n × k
    report : callable, optional
        Called as ``report(done, total)``.

    Examples
    --------
    >>> P = PackedSymmetric.from_dense(np.float32([[2, 1, 0], [1, 3, 5], [0, 5, 9]]), tile=2)
    >>> thin_product(P, np.ones((3, 1)))
    array([[ 3.],
           [ 9.],
           [14.]], dtype=float32)
    """
    n, k = thin.shape
    product = np.empty((n, k), np.float32)
    passes = range(0, k, COLUMNS_AT_ONCE)
    with blas_limited(1), ThreadPoolExecutor(min(thread_count(), MOST_CALLERS)) as pool:
        for done, start in enumerate(passes):
            columns = slice(start, min(start + COLUMNS_AT_ONCE, k))
            given = np.ascontiguousarray(thin[:, columns], precision.dtype)
            into = product[:, columns] if precision.dtype == np.float32 else np.empty(given.shape, precision.dtype)
            into[:] = 0
            for index in range(precision.n_blocks):
                tasks = _tasks(index * precision.tile, precision.block(index), given, into)
                run_slices(partial(_run, tasks), range(len(tasks) + 1), pool=pool)
                if report is not None:
                    report(done * precision.n_blocks + index + 1, len(passes) * precision.n_blocks)
            product[:, columns] = into
    return product


def _tasks(start: int, block: Any, given: NDArray[Any], into: NDArray[Any]) -> list[Callable[[], None]]:
    """What a block column adds: to the rows below it, and to its own rows, where it acts transposed.

    The tile on the diagonal is stored whole and symmetric, so that it belongs to the latter.
    """
    height, width = block.shape
    stop, k = start + width, given.shape[1]
    tasks: list[Callable[[], None]] = []
    for column in range(0, k, _COLUMNS):
        some = slice(column, column + _COLUMNS)
        tasks.append(partial(gemm, 1.0, block.T, given[start:, some], 1.0, into[start:stop, some]))
    for row in range(stop, start + height, _ROWS):
        rows = block[row - start : row - start + _ROWS]
        tasks.append(partial(gemm, 1.0, rows, given[start:stop], 1.0, into[row : row + len(rows)]))
    return tasks


def _run(tasks: list[Callable[[], None]], first: int, last: int) -> None:
    for task in tasks[first:last]:
        task()
