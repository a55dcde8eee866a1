"""Numbered rows of a table into a users × items matrix: two counting passes instead of a sort."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.sparse import csr_array

from deql._system.threads import run_slices, thread_count
from deql.data.matrices import shortest_float

__all__ = ["coo_to_csr"]

Columns = tuple[NDArray[np.int32], NDArray[Any], NDArray[np.float64]]
"""Users or items of some rows, their weights and their times; what is not there is empty."""

_NONE, _ROWS = np.empty(0, np.int32), np.empty(0, np.int64)


def coo_to_csr(rows: dict[str, Any], n_users: int, n_items: int) -> tuple[csr_array, NDArray[np.float64] | None]:
    """Canonical CSR of rows (user, item), and the time of each stored value.

    Repeated pairs count once; with weights these add up, and with times the latest stays.

    Parameters
    ----------
    rows : dict
        ``users`` and ``items`` are the row and column of each interaction, in 32 bits; ``weights`` and
        ``times`` may be None. It is emptied, so that its arrays are freed as soon as they are done with.
    n_users, n_items : int
        Shape of the matrix.

    Examples
    --------
    >>> users, items = np.array([1, 0, 1, 1], np.int32), np.array([2, 0, 1, 2], np.int32)
    >>> rows = {"users": users, "items": items, "weights": np.array([1.0, 1, 1, 4]), "times": np.array([5.0, 6, 7, 8])}
    >>> matrix, times = coo_to_csr(rows, 2, 3)
    >>> matrix.toarray().tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 5.0]]
    >>> times.tolist()
    [6.0, 7.0, 8.0]
    """
    weights, times = rows.pop("weights"), rows.pop("times")
    weights = np.empty(0, np.float32) if weights is None else weights
    times = np.empty(0) if times is None else times
    # By item, then by user, each pass keeping the order of the one before: columns end up sorted within rows.
    by_item, (users, weights, times) = _scatter(rows.pop("items"), n_items, _ROWS, (rows.pop("users"), weights, times))
    by_user, (indices, values, latest) = _scatter(users, n_users, by_item, (_NONE, weights, times))
    del users, weights, times
    if len(values) and _has_repeats(by_user, indices):
        values = values.astype(np.float64)  # in which they add up
    kept = _merge(by_user, indices, values, latest)
    indptr = by_user.astype(np.int32) if kept < 2**31 - 1 else by_user
    data = shortest_float(values[:kept]) if len(values) else np.ones(kept, np.float32)
    matrix = csr_array((data, indices[:kept].astype(indptr.dtype, copy=False), indptr), shape=(n_users, n_items))
    matrix.has_canonical_format = True
    return matrix, latest[:kept] if len(latest) else None


def _scatter(
    keys: NDArray[np.int32], n_keys: int, begins: NDArray[np.int64], columns: Columns
) -> tuple[NDArray[np.int64], Columns]:
    """Group rows by key, in order: where each group begins, and the columns of its rows.

    The first column is given row by row, or as the number of the group in ``begins`` that a row stands in.
    Threads divide the rows. Each counts its own first, so that it knows where those of the threads
    before it end in every group.
    """
    bounds = np.linspace(0, len(keys), thread_count() + 1).astype(np.int64)
    cursors = np.zeros((thread_count(), n_keys), np.int64)
    run_slices(_count_rows, bounds.tolist(), keys, bounds, cursors)
    starts = np.zeros(n_keys + 1, np.int64)
    np.cumsum(cursors.sum(axis=0), out=starts[1:])
    before = starts[:-1].copy()
    for counts in cursors:  # becomes where each thread puts its next row
        total = counts.copy()
        counts[:] = before
        before += total
    grouped = np.empty(len(keys), np.int32), np.empty_like(columns[1]), np.empty_like(columns[2])
    run_slices(_scatter_rows, bounds.tolist(), keys, bounds, cursors, begins, columns, grouped)
    return starts, grouped


@njit(cache=True, nogil=True)
def _count_rows(first, last, keys, bounds, counts):  # type: ignore[no-untyped-def]
    if first == last:
        return
    mine = counts[np.searchsorted(bounds, first, side="right") - 1]
    for row in range(first, last):
        mine[keys[row]] += 1


@njit(cache=True, nogil=True)
def _scatter_rows(first, last, keys, bounds, cursors, begins, columns, grouped):  # type: ignore[no-untyped-def]
    if first == last:
        return
    others, weights, times = columns
    new_others, new_weights, new_times = grouped
    cursor = cursors[np.searchsorted(bounds, first, side="right") - 1]
    group = np.searchsorted(begins, first, side="right") - 1
    for row in range(first, last):
        if len(begins):
            while row >= begins[group + 1]:
                group += 1
        key = keys[row]
        place = cursor[key]
        cursor[key] = place + 1
        new_others[place] = others[row] if len(others) else group
        if len(weights):
            new_weights[place] = weights[row]
        if len(times):
            new_times[place] = times[row]


@njit(cache=True, nogil=True)
def _has_repeats(indptr, indices):  # type: ignore[no-untyped-def]
    for row in range(len(indptr) - 1):
        for p in range(indptr[row] + 1, indptr[row + 1]):
            if indices[p] == indices[p - 1]:
                return True
    return False


@njit(cache=True, nogil=True)
def _merge(indptr, indices, values, times):  # type: ignore[no-untyped-def]
    # In place: what is written never runs ahead of what is read.
    kept = 0
    for row in range(len(indptr) - 1):
        begin, end = indptr[row], indptr[row + 1]
        indptr[row] = kept
        for p in range(begin, end):
            if p > begin and indices[p] == indices[kept - 1]:
                if len(values):
                    values[kept - 1] += values[p]
                if len(times):
                    times[kept - 1] = max(times[kept - 1], times[p])
            else:
                indices[kept] = indices[p]
                if len(values):
                    values[kept] = values[p]
                if len(times):
                    times[kept] = times[p]
                kept += 1
    indptr[len(indptr) - 1] = kept
    return kept
