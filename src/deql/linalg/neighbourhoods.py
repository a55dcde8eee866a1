"""Columns of P on neighbourhoods: which items belong to one, and the small system that is solved on it.

Column i of P is that of the inverse of A on N_i and nothing else, A being S with more on its diagonal. Half of N_i are
the items whose correlation with i is largest. They are solved for, and the other half are those whose correlation with
what is left of i is largest, of whatever sign: a step of matching pursuit. An item that others make superfluous is not
among these, and one that they make unlikely is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from deql._system.threads import blas_limited, run_slices, thread_count
from deql.linalg.native_calls import call_with_5, call_with_8, potrf_address, potrs_address
from deql.linalg.sparse_triangle import SparseTriangle
from deql.linalg.strongest_pairs import StrongestPairs, inverse_roots

__all__ = ["NeighbourColumns", "bytes_of_thread", "solve_columns"]

_LONG_ROW = 24
"""A row so many times as long as a neighbourhood is searched for its members, not walked."""

_MARKS = 2**16
"""Members are marked by the last bits of their numbers, in a table that stays in a processor's cache: of the entries
that are walked over few are members', and where they are is looked up for those alone."""


class NeighbourColumns(NamedTuple):
    """Columns of inverses on neighbourhoods.

    Attributes
    ----------
    counts : ndarray of int32
        How many rows each column has.
    rows : ndarray of int32, columns × (k + 1)
        Those of each column, the item itself last.
    values : ndarray, columns × (k + 1)
    images : ndarray, columns × (k + 1)
        Of the prior's columns; of no columns without a prior.
    residuals : ndarray of float64
        The largest entry of |A·x − e| of each column; infinite where A is not positive definite.
    """

    counts: NDArray[np.int32]
    rows: NDArray[np.int32]
    values: NDArray[Any]
    images: NDArray[Any]
    residuals: NDArray[np.float64]


def bytes_of_thread(n: int, k: int, itemsize: int) -> int:
    """What each thread takes that solves columns: three numbers for every item, and one small system.

    Examples
    --------
    >>> bytes_of_thread(10**6, 400, 4) // 2**20
    12
    """
    return (8 + itemsize) * n + (k + 1) ** 2 * itemsize


def solve_columns(
    S: SparseTriangle,
    added: NDArray[np.float64],
    k: int,
    lists: StrongestPairs,
    *,
    span: tuple[int, int] | None = None,
    prior: tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float64], NDArray[np.float64]] | None = None,
    report: Callable[[int, int], None] | None = None,
) -> NeighbourColumns:
    """Columns of the inverses of A on neighbourhoods of k items and the item itself.

    Parameters
    ----------
    S : SparseTriangle
    added : ndarray of float64
        To the diagonal, of each item: A = S + diag(added).
    k : int
    lists : StrongestPairs
    span : pair of int, optional
        The first column and the last + 1; all if not given.
    prior : tuple, optional
        left, right, scale and diagonal of W₀ = left·rightᵀ·diag(scale) + diag(diagonal).
    report : callable, optional
        Called as ``report(done, total)``.
    """
    first, last = (0, S.n) if span is None else span
    k, dtype = min(k, S.n - 1), S.values.dtype
    counts, rows = np.zeros(last - first, np.int32), np.empty((last - first, k + 1), np.int32)
    values = np.empty((last - first, k + 1), dtype)
    images = np.empty((0 if prior is None else last - first, k + 1), dtype)
    residuals = np.zeros(last - first)
    thin = np.zeros((1, 0), np.float32)
    factors = (thin, thin, np.zeros(1), np.zeros(1)) if prior is None else prior
    inverse = inverse_roots(S.diagonal + added, dtype)
    stop, done = np.zeros(1, bool), np.zeros(last - first, np.int64)
    step = max(1, min(512, (last - first) // (8 * thread_count()) + 1))
    poll = None if report is None else lambda: report(int(done.sum()), last - first)
    with blas_limited(1):
        run_slices(
            _solve_span, [*range(first, last, step), last],
            first, S.indptr, S.columns, S.values, S.diagonal, added, inverse, *lists, *factors,
            potrf_address(dtype), potrs_address(dtype),
            counts, rows, values, images, residuals, done, stop, stop=stop, poll=poll,
        )  # fmt: skip
    return NeighbourColumns(counts, rows, values, images, residuals)


@njit(cache=True, nogil=True)
def _solve_span(  # type: ignore[no-untyped-def]
    first, last, origin, indptr, columns, values, diagonal, added, inverse, list_ptr, list_others, list_values,
    left, right, scale, own, potrf, potrs, counts, rows, out, images, residuals, done, stop,
):  # fmt: skip
    n, k = len(diagonal), rows.shape[1] - 1
    half = (k + 1) // 2
    place, left_over, marks = np.zeros(n, np.int32), np.zeros(n, values.dtype), np.zeros(_MARKS, np.bool_)
    touched, heap = np.empty(n, np.int32), np.empty(3 * (k + 1), np.int64)
    members, ranked = np.empty(k + 1, np.int32), np.empty(np.diff(list_ptr).max(), values.dtype)
    block, solution = np.empty((k + 1) * (k + 1), out.dtype), np.empty((2, k + 1), out.dtype)
    for i in range(first, last):
        if stop[0]:
            return
        begin, end = list_ptr[i], list_ptr[i + 1]
        near, entries, count = list_others[begin:end], list_values[begin:end], end - begin
        chosen = 0
        if k < n - 1:
            for t in range(count):
                ranked[t] = abs(entries[t]) * inverse[near[t]]
            for t in _largest(ranked[:count], half, heap):
                members[chosen] = near[t]
                chosen += 1
            members[:chosen].sort()
            A = block[: chosen * chosen].reshape(chosen, chosen)
            _fill(A, members[:chosen], place, marks, indptr, columns, values, diagonal, added)
            for t in range(count):
                if place[near[t]] > 0:
                    solution[0, place[near[t]] - 1] = entries[t]
            if chosen and _factor_and_solve(A, solution[0], 0, potrf, potrs):
                chosen = _add_unexplained(
                    i, members, chosen, solution[0], near, entries, place, left_over, touched, heap,
                    list_ptr, list_others, list_values, indptr, columns, values, inverse,
                )  # fmt: skip
            _unmark(members[:chosen], place)
        else:  # all items are neighbours of each other
            for j in range(n):
                members[chosen] = j
                chosen += j != i
        members[:chosen].sort()
        members[chosen] = i  # last, so that e_i is the last unit vector
        size = chosen + 1
        A = block[: size * size].reshape(size, size)
        _fill(A, members[:size], place, marks, indptr, columns, values, diagonal, added)
        _unmark(members[:size], place)
        x, at = solution[0, :size], i - origin
        x[:] = 0
        x[chosen] = 1
        if not _factor_and_solve(A, x, 0, potrf, potrs):
            residuals[at] = np.inf
            done[at] = 1
            continue
        residuals[at] = _residual(A, x, members[:size], diagonal, added)
        counts[at] = size
        for t in range(size):
            rows[at, t], out[at, t] = members[t], x[t]
        if len(images):
            y = solution[1, :size]
            for t in range(size):
                total = 0.0
                for r in range(left.shape[1]):
                    total += np.float64(left[members[t], r]) * np.float64(right[i, r])
                y[t] = total * scale[i] + (own[i] if members[t] == i else 0.0)
            _factor_and_solve(A, y, 1, potrf, potrs)
            for t in range(size):
                images[at, t] = y[t]
        done[at] = 1


@njit(cache=True, nogil=True)
def _fill(A, members, place, marks, indptr, columns, values, diagonal, added):  # type: ignore[no-untyped-def]
    """A on the members, both halves; ``place`` holds where each is, from 1 on. All but the last are in order."""
    size = len(members)
    A[:] = 0
    for t in range(size):
        place[members[t]] = t + 1
        marks[members[t] & (_MARKS - 1)] = True
        A[t, t] = diagonal[members[t]] + added[members[t]]
    for t in range(size):
        i = members[t]
        begin, end = indptr[i], indptr[i + 1]
        if end - begin > _LONG_ROW * size:
            for s in range(size):
                if members[s] < i:
                    at = begin + np.searchsorted(columns[begin:end], members[s])
                    if at < end and columns[at] == members[s]:
                        A[t, s] = A[s, t] = values[at]
            continue
        for p in range(begin, end):
            if marks[columns[p] & (_MARKS - 1)]:
                s = place[columns[p]]
                if s > 0:
                    A[t, s - 1] = A[s - 1, t] = values[p]
    for i in members:
        marks[i & (_MARKS - 1)] = False


@njit(cache=True, nogil=True)
def _unmark(members, place):  # type: ignore[no-untyped-def]
    for i in members:
        place[i] = 0


@njit(cache=True, nogil=True)
def _factor_and_solve(A, x, factored, potrf, potrs):  # type: ignore[no-untyped-def]
    """x ← A⁻¹·x, False if A is not definite. The half of A above the diagonal, by rows, stays."""
    order, one, failed = np.array([len(A)], np.int32), np.array([1], np.int32), np.zeros(1, np.int32)
    upper = np.array([85], np.uint8)  # "U": its upper half by columns is the lower one by rows
    size, found, half = order.ctypes.data, failed.ctypes.data, upper.ctypes.data
    if not factored:
        call_with_5(potrf, half, size, A.ctypes.data, size, found)  # type: ignore[call-arg]
    if failed[0] == 0:
        call_with_8(potrs, half, size, one.ctypes.data, A.ctypes.data, size, x.ctypes.data, size, found)  # type: ignore[call-arg]
    # The arrays must live until here.
    return failed[0] == 0 and order[0] + one[0] + upper[0] > 0


@njit(cache=True, nogil=True)
def _residual(A, x, members, diagonal, added):  # type: ignore[no-untyped-def]
    """The largest entry of |A·x − e|, e the last unit vector, from the half of A that its factor left alone."""
    size = len(x)
    product = np.zeros(size)
    for t in range(size):
        total = (diagonal[members[t]] + added[members[t]]) * np.float64(x[t])
        for s in range(t + 1, size):
            total += np.float64(A[t, s]) * np.float64(x[s])
            product[s] += np.float64(A[t, s]) * np.float64(x[t])
        product[t] += total
    product[size - 1] -= 1.0
    return np.abs(product).max()


@njit(cache=True, nogil=True)
def _add_unexplained(  # type: ignore[no-untyped-def]
    i, members, chosen, solution, near, entries, place, left_over, touched, heap,
    list_ptr, list_others, list_values, indptr, columns, values, inverse,
):  # fmt: skip
    """Fill up the members with the items of the largest |S_ji − Σ_m S_jm·x_m|/√A_jj, as far as lists tell."""
    k, found = len(members) - 1, 0
    place[i] = -1
    for t in range(len(near)):
        left_over[near[t]] = entries[t]
        if place[near[t]] == 0:
            place[near[t]] = -1
            touched[found] = near[t]
            found += 1
    known = found
    for m in range(chosen):
        j, x = members[m], solution[m]
        for t in range(list_ptr[j], list_ptr[j + 1]):
            other = list_others[t]
            if place[other] > 0:
                continue
            if place[other] == 0:
                place[other] = -1
                left_over[other] = 0
                touched[found] = other
                found += 1
            left_over[other] -= x * list_values[t]
    wanted = min(k - chosen, found)
    strength = np.empty(found, values.dtype)
    for t in range(found):
        strength[t] = abs(left_over[touched[t]]) * inverse[touched[t]]
    # Items that are not in the list of i may share users with it all the same: what they share is looked up.
    best = _largest(strength, 3 * wanted, heap).copy()
    looked_up = np.empty(len(best), values.dtype)
    for at in range(len(best)):
        t = best[at]
        looked_up[at] = strength[t]
        if t >= known:
            j = touched[t]
            value = left_over[j] + _entry(max(i, j), min(i, j), indptr, columns, values)
            looked_up[at] = abs(value) * inverse[j]
    for at in _largest(looked_up, wanted, heap):
        members[chosen] = touched[best[at]]
        chosen += 1
    for t in range(found):
        place[touched[t]] = 0
    place[i] = 0
    return chosen


@njit(cache=True, nogil=True)
def _entry(row, column, indptr, columns, values):  # type: ignore[no-untyped-def]
    begin, end = indptr[row], indptr[row + 1]
    at = begin + np.searchsorted(columns[begin:end], column)
    return values[at] if at < end and columns[at] == column else values.dtype.type(0)


@njit(cache=True, nogil=True)
def _largest(strength, count, heap):  # type: ignore[no-untyped-def]
    """Places of so many of the largest, of equals the first, in no particular order: a heap, its smallest on top."""
    held = 0
    for t in range(len(strength)):
        x = strength[t]
        if held < count:
            at = held
            held += 1
            while at > 0 and x <= strength[heap[(at - 1) // 2]]:
                heap[at] = heap[(at - 1) // 2]
                at = (at - 1) // 2
            heap[at] = t
        elif count and x > strength[heap[0]]:
            at = 0
            while 2 * at + 1 < count:
                below = 2 * at + 1
                if below + 1 < count and _before(strength, heap[below + 1], heap[below]):
                    below += 1
                if not _before(strength, heap[below], t):
                    break
                heap[at] = heap[below]
                at = below
            heap[at] = t
    return heap[:held]


@njit(cache=True, nogil=True)
def _before(strength, s, t):  # type: ignore[no-untyped-def]
    """Whether s goes before t goes: it is smaller, or as large and later."""
    return strength[s] < strength[t] or (strength[s] == strength[t] and s > t)
