"""The Gram matrix RᵀΛR, summed straight into the packed store, and whether it can be inverted as it is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import DTypeLike, NDArray
from scipy.sparse import csr_array

from deql._system.progress import ProgressCallback
from deql._system.threads import run_slices
from deql.data import Interactions
from deql.data.partitions import TrainingData
from deql.errors import DataError, NotPositiveDefiniteError, name_some
from deql.linalg.packed import PackedSymmetric, block_offset
from deql.linalg.tiling import choose_tile

__all__ = [
    "SharedGram",
    "check_size",
    "check_solvable_without_ridge",
    "gram",
    "gram_bands",
    "size_weights",
    "user_weights",
    "weighted_diagonal",
]


def user_weights(matrix: csr_array, user_power: float) -> NDArray[np.float64]:
    """Weight of each user, w_u = |u|^(−user_power), where |u| is how many items the user has.

    Parameters
    ----------
    matrix : csr_array
        Users × items.
    user_power : float
        0 weighs every user alike; 1 gives every user the same total weight.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> user_weights(csr_array([[1, 1, 1, 1], [1, 0, 0, 0], [0, 0, 0, 0]]), 0.5)
    array([0.5, 1. , 0. ])
    """
    return size_weights(np.diff(matrix.indptr), user_power)


def size_weights(sizes: NDArray[Any], user_power: float) -> NDArray[np.float64]:
    """Weight of each user, given how many items they have.

    Examples
    --------
    >>> size_weights(np.array([4, 1, 0]), 0.5)
    array([0.5, 1. , 0. ])
    """
    weights = np.zeros(len(sizes))
    return np.power(sizes.astype(np.float64), -user_power, out=weights, where=sizes > 0)


def weighted_diagonal(matrix: csr_array, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """D, the diagonal of RᵀΛR, in float64.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> weighted_diagonal(csr_array([[1.0, 2.0], [0.0, 1.0]]), np.array([0.5, 1.0]))
    array([0.5, 3. ])
    """
    values = matrix.astype(np.float64)
    return np.asarray(values.multiply(values).T @ weights)


@dataclass(frozen=True, eq=False)
class SharedGram:
    """What all fits with the same weights of users and interactions share: S, which each of them copies, and D.

    Attributes
    ----------
    user_power : float
        Of the weights.
    matrix : PackedSymmetric
        S = RᵀΛR.
    diagonal : ndarray of float64
        D, before it was rounded to the type of S.
    half_life : float or None
        Of the interactions in R, in the unit of their times; None where they do not fade.
    """

    user_power: float
    matrix: PackedSymmetric
    diagonal: NDArray[np.float64]
    half_life: float | None = None


def gram(
    matrix: csr_array,
    *,
    weights: NDArray[np.float64] | None = None,
    dtype: DTypeLike = np.float32,
    tile: int | None = None,
    report: ProgressCallback | None = None,
) -> PackedSymmetric:
    """S = RᵀΛR with Λ = diag(weights), packed.

    Each entry is summed in float64 by one thread in the users' order and rounded once, so that the
    result does not depend on the number of threads and counts are exact (in float32 up to 2²⁴).

    Parameters
    ----------
    matrix : csr_array
        Users × items R, its column indices sorted within each row.
    weights : ndarray, optional
        Of the users, see :func:`user_weights`; 1 for each if not given.
    dtype : dtype, default float32
        Type of the result.
    tile : int, optional
        Width of the block columns; chosen from the number of items if not given.
    report : callable, optional
        Called as ``report(done, total)`` as the work goes on.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> gram(csr_array([[1.0, 1.0, 0.0], [0.0, 2.0, 1.0]])).to_dense()
    array([[1., 1., 0.],
           [1., 5., 2.],
           [0., 2., 1.]], dtype=float32)
    """
    n = matrix.shape[1]
    packed = PackedSymmetric(n, tile or choose_tile(n), dtype=dtype)
    blocks = np.arange(packed.n_blocks, dtype=np.int64)
    _RowSums(matrix, weights, packed.tile, report).sum_rows(0, n, packed.data, block_offset(blocks, n, packed.tile))
    return packed


def gram_bands(
    matrix: csr_array,
    *,
    weights: NDArray[np.float64] | None = None,
    dtype: DTypeLike = np.float32,
    tile: int,
    report: ProgressCallback | None = None,
) -> Iterator[tuple[int, list[NDArray[Any]]]]:
    """The lower triangle of what :func:`gram` makes, ``tile`` rows at a time, in the memory of one such band.

    Yields
    ------
    first : int
        The first row of the band.
    parts : list of ndarray
        These rows in each block column, from the left; the last is the tile on the diagonal. They are
        overwritten by the next band.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> R = csr_array([[1.0, 1.0, 0.0], [0.0, 2.0, 1.0]])
    >>> [(first, [part.tolist() for part in parts]) for first, parts in gram_bands(R, tile=2)]
    [(0, [[[1.0, 1.0], [1.0, 5.0]]]), (2, [[[0.0, 2.0]], [[1.0]]])]
    """
    n = matrix.shape[1]
    room = np.empty(min(tile, n) * n, dtype)
    sums = _RowSums(matrix, weights, tile, report)
    for first in range(0, n, tile):
        last = min(first + tile, n)
        left = np.arange(0, first + 1, tile, dtype=np.int64)
        # The parts lie one after the other; where row `left` of each would be is before its part.
        begins = left * (last - first) - (first - left) * tile
        sums.sum_rows(first, last, room, begins)
        ends = [*(left[1:] * (last - first)).tolist(), last * (last - first)]
        yield first, [part.reshape(last - first, -1) for part in np.split(room[: ends[-1]], ends[:-1])]


class _RowSums:
    """Rows of the lower triangle of RᵀΛR, into wherever its block columns begin."""

    def __init__(
        self, matrix: csr_array, weights: NDArray[np.float64] | None, tile: int, report: ProgressCallback | None
    ) -> None:
        self.n = matrix.shape[1]
        by_item = matrix.tocsc()
        # Counts are sums of ones, which need neither weights nor values, and fit into half the cache.
        self._counts = weights is None and matrix.shape[0] < 2**31 and bool((matrix.data == 1).all())
        weighted = np.empty(0)
        if not self._counts:
            weighted = by_item.data * (np.ones(matrix.shape[0]) if weights is None else weights)[by_item.indices]
        self._operands = (
            by_item.indptr, by_item.indices, weighted,
            matrix.indptr, matrix.indices.astype(np.int32, copy=False), matrix.data,
        )  # fmt: skip
        # A row costs its users' histories and itself.
        histories = np.zeros(by_item.nnz + 1, np.int64)
        np.cumsum(np.diff(matrix.indptr)[by_item.indices], out=histories[1:])
        rows = np.arange(self.n + 1, dtype=np.int64)
        self._cost = histories[by_item.indptr] + rows * rows // 8
        self._tile, self._report = tile, report
        self._rows_done, self._stop = np.zeros(self.n, np.int64), np.zeros(1, bool)

    def sum_rows(self, first: int, last: int, out: NDArray[Any], begins: NDArray[np.int64]) -> None:
        """Rows ``first`` … ``last − 1`` into ``out``, where block column J begins at ``begins[J]``."""
        # Handed out in slices of about equal work.
        slices = max(2, min(100, (last - first) // 64))
        bounds = np.searchsorted(self._cost, np.linspace(self._cost[first], self._cost[last], slices)[1:-1])
        run_slices(
            _sum_rows, np.unique([first, *np.clip(bounds, first, last), last]).tolist(),
            *self._operands, self._counts, self.n, self._tile, out, begins, self._rows_done, self._stop,
            stop=self._stop, poll=None if self._report is None else self._tell,
        )  # fmt: skip

    def _tell(self) -> None:
        assert self._report is not None
        self._report(int(self._rows_done.sum()), self.n)


@njit(cache=True, nogil=True)
def _sum_rows(  # type: ignore[no-untyped-def]
    first, last, item_ptr, users, weighted, user_ptr, items, values, counts, n, tile, out, begins, rows_done, stop
):
    """Write rows ``first`` … ``last − 1`` of the lower triangle."""
    sums = np.zeros(1 if counts else last, np.float64)
    times = np.zeros(last if counts else 1, np.int32)
    for i in range(first, last):
        if stop[0]:
            return
        if counts:
            times[: i + 1] = 0
            _count_row(i, item_ptr, users, user_ptr, items, times)
            _store_row(i, times, n, tile, out, begins)
        else:
            sums[: i + 1] = 0
            _sum_row(i, item_ptr, users, weighted, user_ptr, items, values, sums)
            _store_row(i, sums, n, tile, out, begins)
        rows_done[first] += 1


@njit(cache=True, nogil=True)
def _sum_row(i, item_ptr, users, weighted, user_ptr, items, values, row):  # type: ignore[no-untyped-def]
    # S_ij = Σ_u (w_u·r_ui)·r_uj for j ≤ i, over the users u who have i.
    for p in range(item_ptr[i], item_ptr[i + 1]):
        u = users[p]
        x = weighted[p]
        for q in range(user_ptr[u], user_ptr[u + 1]):
            j = items[q]
            if j > i:
                break
            row[j] += x * values[q]


@njit(cache=True, nogil=True)
def _count_row(i, item_ptr, users, user_ptr, items, row):  # type: ignore[no-untyped-def]
    # The same where every r is 1: how many users have both.
    for p in range(item_ptr[i], item_ptr[i + 1]):
        u = users[p]
        for q in range(user_ptr[u], user_ptr[u + 1]):
            j = items[q]
            if j > i:
                break
            row[j] += 1


@njit(cache=True, nogil=True)
def _store_row(i, row, n, tile, out, begins):  # type: ignore[no-untyped-def]
    for block in range(i // tile + 1):
        start = block * tile
        width = min(tile, n - start)
        base = begins[block] + (i - start) * width
        for j in range(start, min(i + 1, start + width)):
            out[base + j - start] = row[j]
        if i < start + width:  # the diagonal tile is stored whole: mirror this row into its column
            for j in range(start, i):
                out[begins[block] + (j - start) * width + i - start] = row[j]


def check_solvable_without_ridge(data: TrainingData, diagonal: NDArray[np.float64], dropout: float) -> None:
    """Say before the cubic work what would make A singular, and which items are at fault.

    With a ridge A is always positive definite. With dropout alone it is so unless a column is
    empty; without either it is S itself, which needs at least as many users as items and no two
    equal columns.
    """
    empty = np.flatnonzero(diagonal == 0)
    if empty.size:
        raise NotPositiveDefiniteError(
            f"{empty.size:,} item{'s have' if empty.size > 1 else ' has'} no interactions "
            f"({name_some(data.items[empty])}), so without a ridge there is no solution: "
            "set l2 above 0 or leave the items out",
            empty.tolist(),
        )
    if dropout > 0:
        return
    if data.n_users < data.n_items:
        raise NotPositiveDefiniteError(
            f"{data.n_users:,} users cannot determine {data.n_items:,} items ({name_some(data.items)}) "
            "without a ridge: set l2 above 0",
            range(data.n_items),
        )
    # Two equal columns have equal products with any vector, and others almost never have.
    marks, rng = np.zeros(data.n_items), np.random.default_rng(0)
    for block in data.blocks():
        marks += block.astype(np.float64).T @ rng.standard_normal(block.shape[0])
    order = np.argsort(marks, kind="stable")
    same = np.flatnonzero(np.diff(marks[order]) == 0)
    if same.size:
        pair = [int(order[same[0]]), int(order[same[0] + 1])]
        raise NotPositiveDefiniteError(
            f"items {name_some(data.items[pair])} occur with exactly the same users, so without a ridge "
            "there is no single solution: set l2 above 0",
            pair,
        )


def check_size(data: Interactions, diagonal: NDArray[np.float64], dtype: DTypeLike) -> None:
    """Raise DataError if the squares of sums of squares pass the type's largest number."""
    if not diagonal.max() < np.sqrt(np.finfo(dtype).max):
        largest = name_some(data.items[[int(np.nan_to_num(diagonal, nan=np.inf).argmax())]])
        raise DataError(f"the values of item {largest} are too large: divide all values by one number")
