"""The k best columns of X·W for each row of X, where W has few entries in each column."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from deql._system.progress import ProgressCallback
from deql._system.threads import read_only, run_slices, thread_count
from deql.linalg.sparse_precision import SparsePrecision
from deql.ranking import NO_ITEM
from deql.ranking.kernels import SPARE
from deql.ranking.popularity_order import PopularityOrder
from deql.ranking.shortlist import user_bounds
from deql.ranking.sparse_kernels import rank_sparse_users

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = ["rank_sparse", "sparse_arrays"]

_USERS = 2**10
"""Users between two reports."""


def sparse_arrays(
    precision: SparsePrecision, scale: NDArray[np.float64] | None
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[Any], NDArray[Any]]:
    """C and E as kernels take them: without entries of E unless a prior's scale says that they count."""
    images = precision.data[:0] if scale is None or precision.images is None else precision.images
    return (
        read_only(precision.indptr), read_only(precision.columns), read_only(precision.data), read_only(images),
    )  # fmt: skip


def rank_sparse(
    precision: SparsePrecision,
    gain: NDArray[np.float64],
    shift: NDArray[np.float64],
    popularity: PopularityOrder,
    matrix: csr_array,
    *,
    k: int,
    exclude_seen: bool = True,
    allowed: NDArray[np.bool_] | None = None,
    squares: NDArray[np.float64] | None = None,
    exact: bool = True,
    scale: NDArray[np.float64] | None = None,
    report: ProgressCallback | None = None,
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """The k best columns of X·W for each row of X, and their scores, as :func:`deql.ranking.rank.rank` gives them.

    But of columns that score 0 the more popular is the better, as a history says nothing of most of them.

    Parameters
    ----------
    precision, gain, shift
        W = C·diag(gain) + diag(shift). With gains and shifts of shape (models, n) several models that share C are
        ranked in one pass.
    popularity : PopularityOrder
    matrix : csr_array
        Histories X, users × items, columns sorted within rows.
    k : int
        How many.
    exclude_seen : bool, default True
        Leave out what a row already has.
    allowed : ndarray of bool, optional
        Columns that may be returned.
    squares : ndarray of float64, users (or models × users), optional
        Becomes Σ (X·W)²_ui over the columns i that row u does not have.
    exact : bool, default True
        Whether the scores must be exact to the last bit; the items are the same if not.
    scale : ndarray of float64, optional
        Of a prior: adds E·diag(scale) to W; of shape (models, n) for several models.
    report : callable, optional
        Called as ``report(done, total)``.

    Returns
    -------
    items, scores : ndarray, users × k (or models × users × k)

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> C = SparsePrecision(np.array([0, 2, 3, 4]), np.int32([0, 2, 1, 2]), np.float32([1, -0.5, 1, 1]))
    >>> popularity = PopularityOrder.of(np.array([1, 3, 2]))
    >>> items, scores = rank_sparse(C, -np.ones(3), np.ones(3), popularity, csr_array([[1.0, 0.0, 0.0]]), k=2)
    >>> items.tolist(), scores.tolist()
    ([[2, 1]], [[0.5, 0.0]])
    """
    users, n = matrix.shape
    if not matrix.has_canonical_format:  # the kernels would write beside their arrays
        raise ValueError("histories must have their columns sorted within rows, each once")
    gains, shifts = (read_only(np.atleast_2d(np.ascontiguousarray(one))) for one in (gain, shift))
    scales = read_only(np.zeros((len(gains), 0)) if scale is None else np.atleast_2d(np.ascontiguousarray(scale)))
    allowed = read_only(np.ones(n, bool) if allowed is None else allowed)
    k = min(k, n)
    items = np.full((len(gains), users, k), NO_ITEM, np.int32)
    scores = np.full((len(gains), users, k), np.nan)
    sums = np.zeros((len(gains), 0)) if squares is None else np.atleast_2d(squares)
    stored = sparse_arrays(precision, scale)
    histories = tuple(
        read_only(one) for one in (matrix.indptr, matrix.indices, matrix.data.astype(precision.dtype, copy=False))
    )
    order = read_only(popularity.among(allowed)), read_only(popularity.counts)
    wanted = allowed, *order, exclude_seen, SPARE, exact

    def rank_users(first: int, last: int) -> None:
        # Zeros that take memory and time only where they are touched.
        space = np.zeros(n), np.zeros(n if len(stored[3]) else 0), np.zeros(n, np.uint8), np.empty(n + 1, np.int32)
        asked = stored, (gains, shifts, scales), histories, wanted, space, (sums, items, scores)
        rank_sparse_users(first, last, *chain.from_iterable(asked))

    steps = [*range(0, users, _USERS), users]
    with ThreadPoolExecutor(thread_count()) as pool:
        run = partial(run_slices, pool=pool)
        for low, high in pairwise(steps):
            # Users differ: a popular item's row may have an entry for every other item.
            run(rank_users, [low + bound for bound in user_bounds(high - low)])
            if report is not None:
                report(high, users)
    return (items[0], scores[0]) if np.ndim(gain) == 1 else (items, scores)
