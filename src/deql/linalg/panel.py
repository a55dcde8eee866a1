"""P·F, where only a few rows of F are not zero: columns of P, read from where they lie in one pass."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deql._system.threads import blas_limited, run_slices, thread_count
from deql.linalg.blas import MOST_CALLERS, gemm
from deql.linalg.packed import PackedSymmetric

__all__ = ["panel_product"]

_ROWS = 2048
"""Of a block column, in one task. Sums do not depend on how many threads there are, as this is fixed."""


def panel_product(
    precision: PackedSymmetric, columns: NDArray[np.int64], factor: NDArray[np.floating] | None = None
) -> NDArray[Any]:
    """G = P·F, n × k, in the type of P.

    P, which may lie in a file, is read in the order in which it is stored, and only where it is needed.

    Parameters
    ----------
    precision : PackedSymmetric
        In memory, or mapped from a file.
    columns : ndarray of int64
        The rows of F that are not zero, ascending.
    factor : ndarray, optional
        These rows; if not given those of the identity, so that G is some columns of P.

    Examples
    --------
    >>> P = PackedSymmetric.from_dense(np.array([[2.0, 1.0, 0.0], [1.0, 3.0, 5.0], [0.0, 5.0, 9.0]]), tile=2)
    >>> panel_product(P, np.array([0, 2])).tolist()
    [[2.0, 0.0], [1.0, 5.0], [0.0, 9.0]]
    >>> panel_product(P, np.array([0, 2]), np.array([[1.0], [2.0]])).tolist()
    [[2.0], [11.0], [18.0]]
    """
    rows = None if factor is None else np.ascontiguousarray(factor, precision.dtype)
    k = len(columns) if rows is None else rows.shape[1]
    panel = np.empty((precision.n, k), precision.dtype) if rows is None else np.zeros((precision.n, k), precision.dtype)
    with blas_limited(1), ThreadPoolExecutor(min(thread_count(), MOST_CALLERS)) as pool:
        for start, block in precision.blocks():
            tasks = _tasks(start, block, columns, rows, panel)
            run_slices(partial(_run, tasks), range(len(tasks) + 1), pool=pool)
    return panel


def _tasks(
    start: int, block: Any, columns: NDArray[np.int64], factor: NDArray[Any] | None, panel: NDArray[Any]
) -> list[Callable[[], None]]:
    """What a block column holds: its own columns below, and, turned, its rows of these and later ones.

    The tile on the diagonal is stored whole and symmetric, so that it belongs to the latter.
    """
    height, width = block.shape
    first, last = np.searchsorted(columns, [start, start + width]).tolist()
    own, rows = columns[first:last] - start, columns[first:] - start
    tasks: list[Callable[[], None]] = []
    step = _ROWS if factor is None else max(1, len(rows))  # they add to the same rows of a product
    for begin in range(0, len(rows), step):
        part = slice(first + begin, first + min(begin + step, len(rows)))
        tasks.append(partial(_take, block, rows[begin : begin + step], 0, part, factor, panel[start : start + width]))
    for top in range(width, height if len(own) else 0, _ROWS):
        into = panel[start + top : start + min(top + _ROWS, height)]
        tasks.append(partial(_take, block[top : top + _ROWS], own, 1, slice(first, last), factor, into))
    return tasks


def _take(
    block: NDArray[Any],
    places: NDArray[np.int64],
    axis: int,
    part: slice,
    factor: NDArray[Any] | None,
    into: NDArray[Any],
) -> None:
    """Put rows, turned, or columns of a block into the panel, or add their product with ``part`` of the factor."""
    taken = block.take(places, axis)
    if axis == 0:
        taken = taken.T
    if factor is None:
        into[:, part] = taken
    else:
        gemm(1.0, taken, factor[part], 1.0, into)


def _run(tasks: list[Callable[[], None]], first: int, last: int) -> None:
    for task in tasks[first:last]:
        task()
