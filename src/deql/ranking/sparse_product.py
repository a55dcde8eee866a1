"""A sparse matrix times a dense one, rows fetched before their turn."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from deql._system.threads import thread_count
from deql.ranking.prefetch import LINE, prefetch

__all__ = ["bounds_by_entries", "multiply_sparse"]

_AHEAD = 16
"""How many entries before its turn a row is fetched into cache."""


@njit(cache=True, nogil=True, fastmath={"contract", "reassoc"})
def multiply_sparse(first, last, indptr, indices, values, X, out):  # type: ignore[no-untyped-def]
    """Rows ``first`` … ``last − 1`` of a sparse matrix times a dense one, X.

    Rows of X lie where only the indices tell, so they are asked for some entries before their turn.
    """
    flat, width = X.reshape(-1), X.shape[1]
    for row in range(first, last):
        into = out[row]
        into[:] = 0.0
        for p in range(indptr[row], indptr[row + 1]):
            if p + _AHEAD < len(indices):
                place = np.int64(indices[p + _AHEAD]) * width
                for c in range(0, width, LINE // X.itemsize):
                    prefetch(flat, place + c)  # type: ignore[call-arg]
            value, source = values[p], X[indices[p]]
            for c in range(width):
                into[c] += value * source[c]


def bounds_by_entries(indptr: NDArray[np.integer]) -> list[int]:
    """Slices of rows with about as many entries each, several for each thread.

    Examples
    --------
    >>> bounds_by_entries(np.array([0, 9, 9, 10]))[-1]
    3
    """
    ends = np.linspace(0, indptr[-1], 4 * thread_count() + 1)
    bounds = np.searchsorted(indptr, ends)
    bounds[0], bounds[-1] = 0, len(indptr) - 1
    return [int(bound) for bound in bounds]
