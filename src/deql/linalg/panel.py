"""P·F, where only a few rows of F are not zero: columns of P, read from where they lie in one pass."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from deql._system.threads import run_slices, thread_count
from deql.linalg.packed import PackedSymmetric

if TYPE_CHECKING:  # the torch engine does without SciPy
    from scipy.sparse import csr_array

__all__ = ["panel_product"]

_ROWS = 2048
"""Of a block column, in one task. Sums do not depend on how many threads there are, as this is fixed."""


def panel_product(
    precision: PackedSymmetric, columns: NDArray[np.int64], factor: csr_array | None = None
) -> NDArray[Any]:
    """G = P·F, n × k, in the type of P.

    P, which may lie in a file, is read in the order in which it is stored, and only where it is needed.

    Parameters
    ----------
    precision : PackedSymmetric
        In memory, or mapped from a file.
    columns : ndarray of int64
        The rows of F that are not zero, ascending.
    factor : csr_array, optional
        These rows; if not given those of the identity, so that G is some columns of P.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> P = PackedSymmetric.from_dense(np.array([[2.0, 1.0, 0.0], [1.0, 3.0, 5.0], [0.0, 5.0, 9.0]]), tile=2)
    >>> panel_product(P, np.array([0, 2])).tolist()
    [[2.0, 0.0], [1.0, 5.0], [0.0, 9.0]]
    >>> panel_product(P, np.array([0, 2]), csr_array([[1.0], [2.0]])).tolist()
    [[2.0], [11.0], [18.0]]
    """
    rows = None if factor is None else factor.astype(precision.dtype)
    k = len(columns) if rows is None else rows.shape[1]
    panel = np.empty((precision.n, k), precision.dtype) if rows is None else np.zeros((precision.n, k), precision.dtype)
    with ThreadPoolExecutor(thread_count()) as pool:
        for start, block in precision.blocks():
            tasks = _tasks(start, block, columns, rows, panel)
            run_slices(partial(_run, tasks), range(len(tasks) + 1), pool=pool)
    return panel


def _tasks(
    start: int, block: Any, columns: NDArray[np.int64], factor: csr_array | None, panel: NDArray[Any]
) -> list[Callable[[], None]]:
    """What a block column holds: its own columns below, and, turned, its rows of these and later ones.

    The tile on the diagonal is stored whole and symmetric, so that it belongs to the latter.
    """
    height, width = block.shape
    first, last = np.searchsorted(columns, [start, start + width]).tolist()
    own, rows = columns[first:last] - start, columns[first:] - start
    tasks: list[Callable[[], None]] = []
    beside = panel[start : start + width]
    if factor is None:
        for begin in range(0, len(rows), _ROWS):
            part = slice(first + begin, first + min(begin + _ROWS, len(rows)))
            tasks.append(partial(_copy, block, rows[begin : begin + _ROWS], 0, part, beside))
    elif len(rows):  # one task, as all of it is added to the same rows
        tasks.append(partial(_add, block, rows, 0, *_used(factor[first:]), beside))
    if not len(own):
        return tasks
    below = [
        (block[top : top + _ROWS], panel[start + top : start + top + _ROWS]) for top in range(width, height, _ROWS)
    ]
    if factor is None:
        return tasks + [partial(_copy, part, own, 1, slice(first, last), into) for part, into in below]
    turned, used = _used(factor[first:last])
    return tasks + [partial(_add, part, own, 1, turned, used, into) for part, into in below]


def _copy(block: NDArray[Any], places: NDArray[np.int64], axis: int, part: slice, into: NDArray[Any]) -> None:
    """Put rows, turned, or columns of a block into the panel."""
    taken = block.take(places, axis)
    into[:, part] = taken if axis else taken.T


def _used(factor: csr_array) -> tuple[csr_array, NDArray[np.int64]]:
    """Some rows of F, turned, without the columns in which they have nothing, and which columns these are."""
    used = np.unique(factor.indices).astype(np.int64)
    return factor[:, used].T.tocsr(), used


def _add(
    block: NDArray[Any],
    places: NDArray[np.int64],
    axis: int,
    turned: csr_array,
    used: NDArray[np.int64],
    into: NDArray[Any],
) -> None:
    """Add the product of rows, turned, or columns of a block with F to the panel."""
    taken = block.take(places, axis)
    product = turned @ (np.ascontiguousarray(taken.T) if axis else taken)
    into[:, used] += product.T


def _run(tasks: list[Callable[[], None]], first: int, last: int) -> None:
    for task in tasks[first:last]:
        task()
