"""The k best columns of scores that a model can only give whole, a slice of users at a time.

Models that share P have their own way (:mod:`deql.ranking.rank`). Here a slice of users has its n scores each
in memory, a shortlist is drawn up from them, and the exact scores of those on it decide.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.sparse import csr_array

from deql._system.progress import ProgressCallback
from deql._system.threads import even_bounds, run_slices, thread_count
from deql.ranking import NO_ITEM
from deql.ranking.candidates import keep_best, sort_best
from deql.ranking.kernels import SPARE

__all__ = ["rank_scores", "user_bounds"]

Scores = Callable[[csr_array], NDArray[np.floating]]
PairScores = Callable[[csr_array, csr_array], NDArray[np.float64]]

_NUMBERS = 2**24
"""Scores in memory at once, though at least those of one user."""

_MOST_USERS = 2**13


@njit(cache=True, nogil=True)
def _select_candidates(first, last, scores, indptr, indices, allowed, exclude_seen, keep, squares, found_items, found):  # type: ignore[no-untyped-def]
    # The best ``keep`` columns of each user, in no order; of equal scores the lower column is the better.
    room = 2 * keep + 16
    best, items = np.empty(room), np.empty(room, np.int32)
    for u in range(first, last):
        p, end = indptr[u], indptr[u + 1]
        if p == end:
            continue
        fill, bar, total = 0, -np.inf, 0.0
        for i in range(scores.shape[1]):
            seen = p < end and indices[p] == i
            p += seen
            score = np.float64(scores[u, i])
            if not seen:
                total += score * score
            if score > bar and allowed[i] and not (seen and exclude_seen):
                best[fill], items[fill] = score, i
                fill += 1
                if fill == room:
                    bar = keep_best(best, items, fill, keep)
                    fill = keep
        if fill > keep:
            keep_best(best, items, fill, keep)
            fill = keep
        if squares.size > 0:
            squares[u] = total
        items[:fill].sort()
        found_items[u, :fill] = items[:fill]
        found[u] = fill


@njit(cache=True, nogil=True)
def _sort_candidates(first, last, indptr, pair_items, pair_scores, out_items, out_scores):  # type: ignore[no-untyped-def]
    for u in range(first, last):
        begin, end = indptr[u], indptr[u + 1]
        items, scores = pair_items[begin:end].copy(), pair_scores[begin:end].copy()
        sort_best(scores, items, end - begin)
        count = min(end - begin, out_items.shape[1])
        out_items[u, :count], out_scores[u, :count] = items[:count], scores[:count]


def rank_scores(
    scores: Scores,
    pair_scores: PairScores,
    matrix: csr_array,
    *,
    k: int,
    exclude_seen: bool = True,
    allowed: NDArray[np.bool_] | None = None,
    squares: NDArray[np.float64] | None = None,
    report: ProgressCallback | None = None,
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """The k best columns for each row of X, and their exact scores.

    Ties go to the lower column. Rows with fewer than k candidates end in ``NO_ITEM`` and NaN; so do
    rows without a history, whole.

    Parameters
    ----------
    scores : callable
        Of a slice of rows: their scores, rows × n, as good as the type allows.
    pair_scores : callable
        Of rows and a sparse matrix with columns for each of them: the exact scores of those, one after
        the other.
    matrix : csr_array
        Histories X, columns sorted within rows. There may be more columns than can be ranked, at the end.
    k : int
        How many.
    exclude_seen : bool, default True
        Leave out what a row already has.
    allowed : ndarray of bool, optional
        Columns that may be returned; as many as can be ranked.
    squares : ndarray of float64, optional
        Becomes the sum of squared scores over the columns that a row does not have.
    report : callable, optional
        Called as ``report(done, total)``.

    Returns
    -------
    items, scores : ndarray, rows × k

    Examples
    --------
    >>> W = np.array([[0.0, 0.5, 0.2], [0.5, 0.0, 0.0], [0.2, 0.0, 0.0]])
    >>> def exact(X, pairs):
    ...     return (X @ W)[pairs.nonzero()]
    >>> items, scores = rank_scores(lambda X: X @ W, exact, csr_array([[1.0, 0.0, 0.0]]), k=2)
    >>> items.tolist(), scores.tolist()
    ([[1, 2]], [[0.5, 0.2]])
    """
    users = matrix.shape[0]
    allowed = np.ones(matrix.shape[1], bool) if allowed is None else allowed
    n = len(allowed)
    k = min(k, n)
    keep = min(k + SPARE, n)
    out_items, out_scores = np.full((users, k), NO_ITEM, np.int32), np.full((users, k), np.nan)
    per_slice = max(1, min(_MOST_USERS, _NUMBERS // n))
    for first in range(0, users, per_slice):
        part = matrix if users <= per_slice else matrix[first : first + per_slice]
        count = part.shape[0]
        found_items, found = np.zeros((count, keep), np.int32), np.zeros(count, np.int64)
        sums = np.zeros(0) if squares is None else squares[first : first + count]
        bounds = user_bounds(count)
        run_slices(
            _select_candidates, bounds, scores(part), part.indptr, part.indices, allowed, exclude_seen, keep, sums,
            found_items, found,
        )  # fmt: skip
        listed = found_items[np.arange(keep) < found[:, None]]
        indptr = np.concatenate([[0], np.cumsum(found)])
        pairs = csr_array((np.ones(len(listed)), listed, indptr), shape=part.shape)
        exact = pair_scores(part, pairs)
        run_slices(
            _sort_candidates, bounds, indptr, listed, exact,
            out_items[first : first + count], out_scores[first : first + count],
        )  # fmt: skip
        if report is not None:
            report(first + count, users)
    return out_items, out_scores


def user_bounds(users: int) -> list[int]:
    """More slices of users than threads, since some users take longer.

    Examples
    --------
    >>> user_bounds(0)[-1], user_bounds(100)[-1]
    (0, 100)
    """
    return even_bounds(users, max(1, min(users // 16, 4 * thread_count())))
