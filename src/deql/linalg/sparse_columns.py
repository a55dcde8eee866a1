"""Some entries of P as they are found, column by column, turned into the rows that scores need."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from deql.linalg.sparse_precision import SparsePrecision

__all__ = ["columns_by_rows"]


def columns_by_rows(
    counts: NDArray[np.int32],
    rows: NDArray[np.int32],
    values: NDArray[Any],
    images: NDArray[Any],
    items: NDArray[np.int32] | None = None,
) -> SparsePrecision:
    """The matrix that has these columns.

    Parameters
    ----------
    counts : ndarray of int32, n
        How many rows each column has.
    rows : ndarray of int32, n × k
        Those of each column, in any order, its own among them.
    values : ndarray, n × k
        The entries there.
    images : ndarray, n × k
        Those of P·W₀ in the same places; of no columns without a prior.
    items : ndarray of int32, optional
        Which row and column of the result each of these is; the same if not given.

    Examples
    --------
    >>> P = columns_by_rows(np.int32([1, 2]), np.int32([[0, 0], [0, 1]]), np.ones((2, 2)), np.ones((0, 2)))
    >>> P.indptr.tolist(), P.columns.tolist()
    ([0, 2, 3], [0, 1, 1])
    """
    n = len(counts)
    items = np.arange(n, dtype=np.int32) if items is None else items
    places = np.empty_like(items)
    places[items] = np.arange(n, dtype=np.int32)
    indptr = np.zeros(n + 1, np.int64)
    _count_rows(counts, rows, items, indptr)
    np.cumsum(indptr, out=indptr)
    of, data = np.empty(indptr[-1], np.int32), np.empty(indptr[-1], values.dtype)
    turned = np.empty(indptr[-1] if len(images) else 0, data.dtype)
    _turn(counts, rows, values, images, items, places, indptr[:-1].copy(), of, data, turned)
    return SparsePrecision(indptr, of, data, turned if len(images) else None)


@njit(cache=True, nogil=True)
def _count_rows(counts, rows, items, indptr):  # type: ignore[no-untyped-def]
    for c in range(len(counts)):
        for t in range(counts[c]):
            indptr[items[rows[c, t]] + 1] += 1


@njit(cache=True, nogil=True)
def _turn(counts, rows, values, images, items, places, ends, of, data, turned):  # type: ignore[no-untyped-def]
    for column in range(len(counts)):  # in the order of the result, so that the columns of each row are in order
        c = places[column]
        for t in range(counts[c]):
            row = items[rows[c, t]]
            at = ends[row]
            of[at], data[at] = column, values[c, t]
            if len(images):
                turned[at] = images[c, t]
            ends[row] += 1
