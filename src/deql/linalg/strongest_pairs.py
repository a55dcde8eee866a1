"""For each item those others that go with it most: where the search for its neighbourhood begins."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import DTypeLike, NDArray

from deql._system.progress import ProgressCallback
from deql._system.threads import run_slices, thread_count
from deql.linalg.sparse_triangle import SparseTriangle

__all__ = ["MOST_LISTED", "StrongestPairs", "inverse_roots", "strongest_pairs"]

MOST_LISTED = 2**29
"""Pairs in all lists, eight bytes each, unless k of each item are more."""


class StrongestPairs(NamedTuple):
    """For each item those others whose correlation with it is largest, in no particular order.

    Attributes
    ----------
    indptr : ndarray of int64, n + 1
        Where the list of each item begins.
    others : ndarray of int32
    values : ndarray
        Their entries of S.
    """

    indptr: NDArray[np.int64]
    others: NDArray[np.int32]
    values: NDArray[Any]


def inverse_roots(size: NDArray[np.float64], dtype: DTypeLike) -> NDArray[Any]:
    """What an entry of S is multiplied with for its strength: 1/√A_jj, in the type of S so that no product overflows.

    Examples
    --------
    >>> inverse_roots(np.array([4.0, 0.25]), np.float32)
    array([0.5, 2. ], dtype=float32)
    """
    with np.errstate(over="ignore"):  # of a diagonal that is 0 in this type, which is told of when it is solved for
        return (1.0 / np.sqrt(size)).astype(dtype)


def strongest_pairs(
    S: SparseTriangle, size: NDArray[np.float64], k: int, report: ProgressCallback | None = None
) -> StrongestPairs:
    """For each item the others of the largest |S_ij|/√A_jj: 4k of them, or, where there are very many items, fewer.

    Parameters
    ----------
    S : SparseTriangle
    size : ndarray of float64
        The diagonal of A.
    k : int
    report : callable, optional
        Called as ``report(done, total)``, in rows read.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> from deql.linalg.sparse_triangle import sum_triangle
    >>> S = sum_triangle(csr_array([[1.0, 1.0, 1.0], [1.0, 1.0, 0.0], [1.0, 0.0, 0.0]]), None, np.float64)
    >>> lists = strongest_pairs(S, S.diagonal + 1.0, 1)
    >>> lists.indptr.tolist(), sorted(lists.others[2:4].tolist())
    ([0, 2, 4, 6], [0, 2])
    """
    partners = np.diff(S.indptr)
    _count_columns(S.columns, partners)
    reach = 4 * k
    while reach > k and np.minimum(partners, reach).sum() > MOST_LISTED:
        reach = max(k, reach // 2)
    indptr = np.concatenate([[0], np.cumsum(np.minimum(partners, reach))])
    others, values = np.empty(indptr[-1], np.int32), np.empty(indptr[-1], S.values.dtype)
    # Each thread reads the rows of its own items, and of later rows the pairs with these.
    work, threads = np.cumsum(partners), thread_count()
    bounds = np.unique([0, *np.searchsorted(work, work[-1] * np.arange(1, threads) / threads), S.n]).tolist()
    inverse, stop = inverse_roots(size, S.values.dtype), np.zeros(1, bool)
    done, total = np.zeros(S.n, np.int64), sum(S.n - first for first in bounds[:-1])
    poll = None if report is None else lambda: report(int(done.sum()), total)
    run_slices(
        _keep_strongest, bounds, S.indptr, S.columns, S.values, inverse, indptr, others, values, done, stop,
        stop=stop, poll=poll,
    )  # fmt: skip
    return StrongestPairs(indptr, others, values)


@njit(cache=True, nogil=True)
def _count_columns(columns, counts):  # type: ignore[no-untyped-def]
    for j in columns:
        counts[j] += 1


@njit(cache=True, nogil=True)
def _keep_strongest(  # type: ignore[no-untyped-def]
    first, last, indptr, columns, values, inverse, list_ptr, others, kept, done, stop
):
    counts = np.zeros(last - first, np.int64)
    for i in range(first, len(indptr) - 1):
        if stop[0]:
            return
        begin, end = indptr[i], indptr[i + 1]
        if i >= last:
            begin += np.searchsorted(columns[begin:end], first)
        for p in range(begin, end):
            j = columns[p]
            if i < last:
                _push(
                    counts,
                    i - first,
                    j,
                    values[p],
                    inverse,
                    others[list_ptr[i] : list_ptr[i + 1]],
                    kept[list_ptr[i] : list_ptr[i + 1]],
                )
            if first <= j < last:
                _push(
                    counts,
                    j - first,
                    i,
                    values[p],
                    inverse,
                    others[list_ptr[j] : list_ptr[j + 1]],
                    kept[list_ptr[j] : list_ptr[j + 1]],
                )
            elif j >= last:
                break
        done[first] += 1


@njit(cache=True, nogil=True)
def _push(counts, place, j, value, inverse, others, kept):  # type: ignore[no-untyped-def]
    """Put j into a heap whose weakest member is on top; of equals the more popular ones stay."""
    strength, reach, at = abs(value) * inverse[j], len(others), counts[place]
    if at < reach:
        counts[place] += 1
        while at > 0:
            above = (at - 1) // 2
            if not _weaker(strength, j, above, inverse, others, kept):
                break
            others[at], kept[at] = others[above], kept[above]
            at = above
    else:
        if not reach or _weaker(strength, j, 0, inverse, others, kept):
            return
        at = 0
        while 2 * at + 1 < reach:
            below = 2 * at + 1
            right = below + 1
            if right < reach and _weaker(
                abs(kept[right]) * inverse[others[right]], others[right], below, inverse, others, kept
            ):
                below = right
            if _weaker(strength, j, below, inverse, others, kept):
                break
            others[at], kept[at] = others[below], kept[below]
            at = below
    others[at], kept[at] = j, value


@njit(cache=True, nogil=True)
def _weaker(strength, j, at, inverse, others, kept):  # type: ignore[no-untyped-def]
    other = abs(kept[at]) * inverse[others[at]]
    return strength < other or (strength == other and j > others[at])
