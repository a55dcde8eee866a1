"""The Gram matrix of very many items: pairs that share a user, each once, summed from parts of the users."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import DTypeLike, NDArray
from scipy.sparse import csr_array

from deql._system.formatting import show_bytes
from deql._system.machine import free_memory
from deql._system.threads import even_bounds, run_slices, thread_count
from deql.errors import TooLargeError

__all__ = ["SparseTriangle", "popularity_order", "sum_triangle"]


@dataclass(frozen=True, eq=False)
class SparseTriangle:
    """S = RᵀΛR for items in order of popularity: row i has the pairs of item i with those before it.

    The pair of two items stands with the rarer one. So no row is long: a popular item has few before it, and a rare
    one has few users. Walking the rows of some hundred items gives S on all pairs of them.

    Attributes
    ----------
    indptr : ndarray of int64, n + 1
    columns : ndarray of int32
        Of each row, in order.
    values : ndarray of float32 or float64
    diagonal : ndarray of float64
        D.
    """

    indptr: NDArray[np.int64]
    columns: NDArray[np.int32]
    values: NDArray[Any]
    diagonal: NDArray[np.float64]

    @property
    def n(self) -> int:
        """Order of the matrix."""
        return len(self.diagonal)

    def merged(self, other: SparseTriangle) -> SparseTriangle:
        """The sum of both, for other users of the same items.

        Examples
        --------
        >>> one = sum_triangle(csr_array([[1.0, 1.0]]), None, np.float64)
        >>> one.merged(one).values.tolist(), one.merged(one).diagonal.tolist()
        ([2.0], [2.0, 2.0])
        """
        indptr = np.zeros(self.n + 1, np.int64)
        both = (self.indptr, self.columns, self.values, other.indptr, other.columns, other.values)
        bounds = even_bounds(self.n, 16 * thread_count())
        nothing = np.empty(0, np.int32), np.empty(0, self.values.dtype)
        run_slices(_merge_rows, bounds, *both, True, indptr, *nothing)
        np.cumsum(indptr, out=indptr)
        columns, values = _room(int(indptr[-1]), self.values.dtype)
        run_slices(_merge_rows, bounds, *both, False, indptr, columns, values)
        return SparseTriangle(indptr, columns, values, self.diagonal + other.diagonal)


def popularity_order(counts: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Items by falling counts, and the place of each item among them.

    Examples
    --------
    >>> items, places = popularity_order(np.array([1, 5, 3]))
    >>> items.tolist(), places.tolist()
    ([1, 2, 0], [2, 0, 1])
    """
    items = np.argsort(-counts, kind="stable").astype(np.int32)
    places = np.empty_like(items)
    places[items] = np.arange(len(items), dtype=np.int32)
    return items, places


def sum_triangle(
    rows: csr_array,
    weights: NDArray[np.float64] | None,
    dtype: DTypeLike,
    *,
    stop: NDArray[np.bool_] | None = None,
    poll: Callable[[NDArray[np.int64]], None] | None = None,
) -> SparseTriangle:
    """Pairs of items of some users, each entry summed in float64 in the users' order and rounded once.

    Parameters
    ----------
    rows : csr_array
        Users × items, its columns in order of popularity and sorted within each row.
    weights : ndarray or None
        Of the users; None for 1 each.
    dtype : dtype
        Of the values.
    stop : ndarray of one bool, optional
        Set where the work is to end early.
    poll : callable, optional
        Called a few times a second with the number of rows done by each slice.

    Examples
    --------
    >>> S = sum_triangle(csr_array([[1.0, 1.0, 0.0], [0.0, 2.0, 1.0]]), None, np.float64)
    >>> S.indptr.tolist(), S.columns.tolist(), S.values.tolist(), S.diagonal.tolist()
    ([0, 0, 1, 2], [0, 1], [1.0, 2.0], [1.0, 5.0, 1.0])
    """
    n, by_item = rows.shape[1], rows.tocsc()
    ones = weights is None and bool((rows.data == 1).all())
    weighted = np.empty(0)
    if not ones:
        weighted = by_item.data * (np.ones(rows.shape[0]) if weights is None else weights)[by_item.indices]
    values = np.empty(0, rows.data.dtype) if ones else rows.data
    operands = (by_item.indptr, by_item.indices, weighted, rows.indptr, rows.indices, values, ones)
    # Slices of about equal work: an item costs the histories of its users.
    work = np.concatenate([[0], np.cumsum(np.diff(rows.indptr)[by_item.indices])])[by_item.indptr]
    bounds = np.unique([0, *np.searchsorted(work, np.linspace(0, work[-1], 200)[1:-1]), n]).tolist()
    indptr, diagonal, done = np.zeros(n + 1, np.int64), np.zeros(n), np.zeros(n, np.int64)
    stop = np.zeros(1, bool) if stop is None else stop
    told = None if poll is None else lambda: poll(done)
    nothing = np.empty(0, np.int32), np.empty(0, dtype)
    run_slices(_sum_rows, bounds, *operands, True, indptr, *nothing, diagonal, done, stop, stop=stop, poll=told)
    np.cumsum(indptr, out=indptr)
    columns, sums = _room(int(indptr[-1]), dtype)
    run_slices(_sum_rows, bounds, *operands, False, indptr, columns, sums, diagonal, done, stop, stop=stop, poll=told)
    return SparseTriangle(indptr, columns, sums, diagonal)


def _room(pairs: int, dtype: DTypeLike) -> tuple[NDArray[np.int32], NDArray[Any]]:
    """Columns and values yet to be filled; how many there are is not known before they are counted."""
    needed, free = pairs * (4 + np.dtype(dtype).itemsize), free_memory()
    if needed > free:
        raise TooLargeError(
            f"{pairs:,} pairs of items share users, which take {show_bytes(needed)} of memory, and {show_bytes(free)} "
            "are free: leave out users who have very many items, or items that few users have"
        )
    return np.empty(pairs, np.int32), np.empty(pairs, dtype)


@njit(cache=True, nogil=True)
def _sum_rows(  # type: ignore[no-untyped-def]
    first, last, item_ptr, users, weighted, user_ptr, items, values, ones, counting,
    indptr, out_columns, out_values, diagonal, done, stop,
):  # fmt: skip
    """Count the pairs of row i into ``indptr[i + 1]``, or write them, in order, from ``indptr[i]`` on."""
    sums, met, row = np.zeros(last), np.full(last, -1, np.int32), np.empty(last, np.int32)
    for i in range(first, last):
        if stop[0]:
            return
        found, own = 0, 0.0
        for p in range(item_ptr[i], item_ptr[i + 1]):
            u = users[p]
            x = 1.0 if ones else weighted[p]
            for q in range(user_ptr[u], user_ptr[u + 1]):
                j = items[q]
                y = 1.0 if ones else np.float64(values[q])
                if j >= i:
                    own += x * y if j == i else 0.0
                    break
                if met[j] != i:
                    met[j] = i
                    sums[j] = 0.0
                    row[found] = j
                    found += 1
                sums[j] += x * y
        if counting:
            indptr[i + 1] = found
        else:
            diagonal[i] = own
            row[:found].sort()
            for t in range(found):
                out_columns[indptr[i] + t] = row[t]
                out_values[indptr[i] + t] = sums[row[t]]
        done[first] += 1


@njit(cache=True, nogil=True)
def _merge_rows(  # type: ignore[no-untyped-def]
    first, last, a_ptr, a_columns, a_values, b_ptr, b_columns, b_values, counting, indptr, columns, values
):
    for i in range(first, last):
        p, q, end_p, end_q = a_ptr[i], b_ptr[i], a_ptr[i + 1], b_ptr[i + 1]
        out = 0 if counting else indptr[i]
        while p < end_p or q < end_q:
            take_a = q >= end_q or (p < end_p and a_columns[p] <= b_columns[q])
            take_b = p >= end_p or (q < end_q and b_columns[q] <= a_columns[p])
            if not counting:
                columns[out] = a_columns[p] if take_a else b_columns[q]
                x = np.float64(a_values[p]) if take_a else 0.0
                y = np.float64(b_values[q]) if take_b else 0.0
                values[out] = x + y
            out += 1
            p += take_a
            q += take_b
        if counting:
            indptr[i + 1] = out
