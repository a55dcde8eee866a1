"""The largest weights of each column of W, found in P panel by panel: nothing of size n × n is made."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from deql._system.machine import free_memory
from deql._system.progress import ProgressCallback
from deql._system.threads import blas_limited, even_bounds, run_slices, thread_count
from deql.errors import TooLargeError
from deql.linalg.engines.resources import lacking
from deql.linalg.packed import PackedSymmetric
from deql.linalg.sparse_columns import columns_by_rows
from deql.linalg.sparse_precision import SparsePrecision
from deql.models.fitted_prior import FittedPrior
from deql.ranking.candidates import keep_best

__all__ = ["LargestWeights", "largest_weights"]

_PANEL = 2**25
"""Numbers of the columns that are looked through at once."""


class LargestWeights(NamedTuple):
    """What is kept of P, and how much of W that is.

    Attributes
    ----------
    precision : SparsePrecision
        The entries of P where W has its largest, and on the diagonal; with a prior those of P·W₀ there, too.
    share : float
        Σ W² over what is kept ÷ Σ W² over everything, both off the diagonal; 1 where there is nothing.
    """

    precision: SparsePrecision
    share: float


def largest_weights(
    precision: PackedSymmetric,
    gain: NDArray[np.float64],
    prior: FittedPrior | None,
    scale: NDArray[np.float64] | None,
    per_item: int,
    report: ProgressCallback | None = None,
) -> LargestWeights:
    """The entries of the largest |W_ji| of each column i, of equals those of the first rows, and the diagonal.

    Parameters
    ----------
    precision : PackedSymmetric
        P, in memory or mapped from a file, which is read once or a few times.
    gain : ndarray of float64
    prior : FittedPrior or None
    scale : ndarray of float64 or None
        W = P·diag(gain) + left·rightᵀ·diag(scale) off the diagonal.
    per_item : int
        How many of each column.
    report : callable, optional
        Called as ``report(done, total)``.

    Examples
    --------
    >>> P = PackedSymmetric.from_dense(np.float32([[3, -1, 2], [-1, 3, 0.5], [2, 0.5, 3]]), tile=2)
    >>> found = largest_weights(P, -np.ones(3), None, None, per_item=1)
    >>> found.precision.to_dense().tolist(), round(found.share, 2)
    ([[3.0, -1.0, 2.0], [0.0, 3.0, 0.0], [2.0, 0.0, 3.0]], 0.86)
    """
    n, kind = precision.n, precision.dtype
    k = min(per_item, n - 1)
    with_prior = prior is not None
    # What is found, the same by rows, and the columns that are looked through, as they are and as weights.
    needed = n * (k + 1) * 2 * (4 + kind.itemsize * (1 + with_prior)) + min(_PANEL, n * n) * 5 * kind.itemsize
    if why := lacking("memory", needed, free_memory()):
        raise TooLargeError(f"{k:,} weights for each of {n:,} items are too many to keep: {why}; keep fewer")
    rows, values = np.empty((n, k + 1), np.int32), np.empty((n, k + 1), kind)
    images = np.empty((n if with_prior else 0, k + 1), kind)
    kept, total = np.zeros(n), np.zeros(n)
    for first, last in _panels(precision):
        entries = _whole_columns(precision, first, last)
        weights, of_prior = entries, entries[:0]
        if prior is not None and scale is not None:
            product = _product(prior, first, last).astype(kind, copy=False)
            weights = entries * gain[first:last, None].astype(kind)
            weights += product * scale[first:last, None].astype(kind)
            of_prior = product * prior.scale[first:last, None].astype(kind)
            of_prior += entries * prior.diagonal[first:last, None].astype(kind)
        run_slices(
            _keep_largest, even_bounds(last - first, 4 * thread_count()), first, weights, entries, of_prior,
            rows[first:last], values[first:last], images[first:last], kept[first:last], total[first:last],
        )  # fmt: skip
        if report is not None:
            report(last, n)
    if not with_prior:  # where W is P, but for the gain
        kept, total = kept * gain**2, total * gain**2
    whole = float(total.sum())
    found = columns_by_rows(np.full(n, k + 1, np.int32), rows, values, images)
    return LargestWeights(found, min(1.0, float(kept.sum()) / whole) if whole > 0 else 1.0)


def _panels(precision: PackedSymmetric) -> list[tuple[int, int]]:
    """First column and last + 1 of each, in one block column each."""
    width = max(1, _PANEL // precision.n)
    return [
        (first, min(first + width, start + precision.tile, precision.n))
        for start in range(0, precision.n, precision.tile)
        for first in range(start, min(start + precision.tile, precision.n), width)
    ]


def _whole_columns(precision: PackedSymmetric, first: int, last: int) -> NDArray[Any]:
    """Columns of P as rows of an array: above the diagonal they are rows of the blocks before."""
    columns = np.empty((last - first, precision.n), precision.dtype)
    own = first // precision.tile
    for index in range(own):
        start = index * precision.tile
        columns[:, start : start + precision.tile] = precision.block(index)[first - start : last - start]
    start = own * precision.tile
    columns[:, start:] = precision.block(own)[:, first - start : last - start].T
    return columns


def _product(prior: FittedPrior, first: int, last: int) -> NDArray[np.float32]:
    """Columns of left·rightᵀ as rows of an array."""
    if prior.right is None:
        return np.ascontiguousarray(prior.left[:, first:last].T)
    with blas_limited():
        product: NDArray[np.float32] = prior.right[first:last] @ prior.left.T
    return product


@njit(cache=True, nogil=True)
def _keep_largest(  # type: ignore[no-untyped-def]
    first, last, origin, weights, entries, of_prior, rows, values, images, kept, total
):
    n, k = weights.shape[1], rows.shape[1] - 1
    sizes, places = np.empty(n), np.empty(n, np.int32)
    for c in range(first, last):
        own, fill = origin + c, 0
        for j in range(n):
            if j != own:
                sizes[fill], places[fill] = abs(np.float64(weights[c, j])), j
                total[c] += sizes[fill] * sizes[fill]
                fill += 1
        if k < fill:
            keep_best(sizes, places, fill, k)
        rows[c, k], values[c, k] = own, entries[c, own]
        for t in range(k):
            rows[c, t], values[c, t] = places[t], entries[c, places[t]]
            kept[c] += sizes[t] * sizes[t]
        if len(of_prior):
            for t in range(k + 1):
                images[c, t] = of_prior[c, rows[c, t]]
