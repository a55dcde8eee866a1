"""A sparse matrix times a dense one, in threads, rows fetched before their turn."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.sparse import csr_array

from deql._system.threads import read_only, run_slices, thread_count
from deql.linalg.prefetch import LINE, prefetch

__all__ = ["CHUNK_BYTES", "GramOperator", "bounds_by_entries", "multiply_sparse"]

CHUNK_BYTES = 2**30
"""What the vectors that are worked on at once may take."""

_ENTRIES = 2**20
"""Entries of a slice of rows, about: with a thousand columns a second or so, after which it can be interrupted."""

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
    """Slices of rows with about as many entries each, several for each thread, and none that takes long.

    Examples
    --------
    >>> bounds_by_entries(np.array([0, 9, 9, 10]))[-1]
    3
    """
    ends = np.linspace(0, indptr[-1], max(4 * thread_count(), int(indptr[-1]) // _ENTRIES) + 1)
    bounds = np.searchsorted(indptr, ends)
    bounds[0], bounds[-1] = 0, len(indptr) - 1
    return [int(bound) for bound in bounds]


class GramOperator:
    """S = RᵀΛR as an operator on blocks of vectors: two sparse products, in threads.

    Parameters
    ----------
    matrix : csr_array
        R, users × items.
    weights : ndarray, optional
        The diagonal of Λ.

    Examples
    --------
    >>> S = GramOperator(csr_array([[1.0, 1.0], [0.0, 2.0]]))
    >>> S @ np.eye(2, dtype=np.float32)
    array([[1., 1.],
           [1., 5.]], dtype=float32)
    """

    def __init__(self, matrix: csr_array, weights: NDArray[np.float64] | None = None) -> None:
        by_user = matrix.astype(np.float32)
        if weights is not None:
            scale = np.sqrt(weights).astype(np.float32)
            by_user = csr_array(
                (by_user.data * np.repeat(scale, np.diff(by_user.indptr)), by_user.indices, by_user.indptr),
                shape=by_user.shape,
            )
        self.users, self.n = matrix.shape
        self._parts = [(part, bounds_by_entries(part.indptr)) for part in (by_user, csr_array(by_user.T))]

    def __matmul__(self, X: NDArray[np.float32]) -> NDArray[np.float32]:
        for part, bounds in self._parts:
            out = np.empty((part.shape[0], X.shape[1]), np.float32)
            given = read_only(np.ascontiguousarray(X))  # as a prior's factors are: one compiled kernel
            run_slices(multiply_sparse, bounds, part.indptr, part.indices, part.data, given, out)
            X = out
        return X

    def chunks(self, width: int) -> Iterator[slice]:
        """Columns of a block of ``width``, as many at a time as memory is set aside for."""
        step = int(np.clip(CHUNK_BYTES // (4 * (self.users + 6 * self.n)) // 16 * 16, 16, 64))
        return (slice(start, min(start + step, width)) for start in range(0, width, step))
