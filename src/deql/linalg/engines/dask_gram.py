"""The Gram matrix on a cluster: what each worker's users add to a strip of tiles, and the sums of that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack

from deql._system.threads import even_bounds
from deql.linalg.engines.dask_layout import Strip
from deql.linalg.engines.dask_tiles import TileGroup
from deql.linalg.engines.engine import RowPart

__all__ = ["UserRows", "add_products", "assemble", "gram_products", "load_rows", "round_products"]


@dataclass(frozen=True, eq=False)
class UserRows:
    """Some users' rows of R, by user and by item.

    Attributes
    ----------
    rows : csr_array
        With sorted columns.
    item_ptr, users, weighted : ndarray
        Which users have each item, and r·w for each; ``weighted`` is empty where every r and w is 1.
    """

    rows: csr_array
    item_ptr: NDArray[Any]
    users: NDArray[Any]
    weighted: NDArray[np.float64]

    def __sizeof__(self) -> int:
        own = (self.rows.data, self.rows.indices, self.rows.indptr, self.item_ptr, self.users, self.weighted)
        return sum(array.nbytes for array in own)


def load_rows(parts: Sequence[RowPart]) -> UserRows:
    """Read parts of R where they are summed.

    Examples
    --------
    >>> from deql.linalg.engines.engine import RowSlice
    >>> load_rows([RowSlice(csr_array([[1.0, 0.0]])), RowSlice(csr_array([[1.0, 1.0]]))]).item_ptr
    array([0, 2, 3], dtype=int32)
    """
    loaded = [part.load() for part in parts]
    weights: NDArray[np.float64] | None = None
    if any(own is not None for _, own in loaded):
        weights = np.concatenate([np.ones(rows.shape[0]) if own is None else own for rows, own in loaded])
    matrix = loaded[0][0] if len(loaded) == 1 else csr_array(vstack([rows for rows, _ in loaded], format="csr"))
    loaded.clear()  # before there is a third copy, by item
    by_item = matrix.tocsc()
    if weights is None and bool((matrix.data == 1).all()):
        return UserRows(matrix, by_item.indptr, by_item.indices, np.empty(0))
    of_users = 1.0 if weights is None else weights[by_item.indices]
    return UserRows(matrix, by_item.indptr, by_item.indices, by_item.data * of_users)


def gram_products(rows: UserRows, strip: Strip, threads: int = 1) -> NDArray[Any]:
    """What these users add to a strip of RᵀΛR: counts where every weight is 1, else in float64.

    Parameters
    ----------
    rows : UserRows
    strip : Strip
    threads : int, default 1
        Among which the rows of the strip are divided: each is summed by one, into the same array.

    Examples
    --------
    >>> from deql.linalg.engines.engine import RowSlice
    >>> rows = load_rows([RowSlice(csr_array([[1.0, 1.0, 0.0], [0.0, 2.0, 1.0]]))])
    >>> gram_products(rows, Strip(1, 3, 0, 2), threads=2)
    array([[1., 5.],
           [0., 2.]])
    """
    counts = not len(rows.weighted)
    sums = np.zeros(strip.shape, np.int32 if counts else np.float64)
    own = rows.rows
    begins, ends = np.empty((2, own.shape[0]), np.int64)

    def find(first: int, last: int) -> None:
        for column, found in ((strip.left, begins), (strip.right, ends)):
            _positions(own.indptr[first : last + 1], own.indices, column, found[first:last])

    def add(first: int, last: int) -> None:
        out = sums[first - strip.top : last - strip.top]
        args = first, strip.left, rows.item_ptr, rows.users, begins, ends, own.indices
        if counts:
            _count(*args, out)
        else:
            _sum(*args, own.data, rows.weighted, out)

    _in_threads(find, even_bounds(own.shape[0], threads), threads)
    # Rows of about equally many entries, in more slices than threads, as an entry's cost is that of its user.
    slices = 4 * threads if threads > 1 else 1
    shares = np.linspace(rows.item_ptr[strip.top], rows.item_ptr[strip.bottom], slices + 1)[1:-1]
    cuts = np.clip(np.searchsorted(rows.item_ptr, shares), strip.top, strip.bottom)
    _in_threads(add, np.unique([strip.top, *cuts, strip.bottom]).tolist(), threads)
    return sums


def _in_threads(work: Callable[[int, int], None], bounds: Sequence[int], threads: int) -> None:
    """Slices in so many threads of its own: on a worker other tasks choose how many the process uses for theirs."""
    if threads == 1:
        work(bounds[0], bounds[-1])
        return
    with ThreadPoolExecutor(threads) as pool:
        for made in [pool.submit(work, first, last) for first, last in pairwise(bounds)]:
            made.result()


def add_products(*parts: NDArray[Any]) -> NDArray[Any]:
    """The sum of what several workers' users add.

    Examples
    --------
    >>> add_products(np.array([1], np.int32), np.array([2], np.int32), np.array([0.5]))
    array([3.5])
    """
    total = parts[0].astype(np.result_type(*parts))
    for part in parts[1:]:
        total += part
    return total


def round_products(strip: Strip, added: NDArray[np.float64], dtype: str, *parts: NDArray[Any]) -> NDArray[Any]:
    """A strip of A: the sum, rounded once, and what is added on the diagonal."""
    values = add_products(*parts).astype(dtype)
    if strip.top == strip.left:
        own = np.arange(strip.right - strip.left)
        values[own, own] += added.astype(dtype)
    return values


def assemble(strips: list[Strip], *arrays: NDArray[Any]) -> TileGroup:
    """Strips that a worker has as one group."""
    return TileGroup(strips, list(arrays))


@njit(cache=True, nogil=True)
def _positions(user_ptr, items, column, found):  # type: ignore[no-untyped-def]
    """Where each user's items from this column on begin."""
    for u in range(len(found)):
        low, high = user_ptr[u], user_ptr[u + 1]
        while low < high:
            middle = (low + high) // 2
            if items[middle] < column:
                low = middle + 1
            else:
                high = middle
        found[u] = low


@njit(cache=True, nogil=True)
def _sum(top, left, item_ptr, users, begins, ends, items, values, weighted, out):  # type: ignore[no-untyped-def]
    # S_ij = Σ_u (w_u·r_ui)·r_uj over the users u who have i, for the columns j of the strip.
    for i in range(len(out)):
        row = out[i]
        for p in range(item_ptr[top + i], item_ptr[top + i + 1]):
            x = weighted[p]
            for q in range(begins[users[p]], ends[users[p]]):
                row[items[q] - left] += x * values[q]


@njit(cache=True, nogil=True)
def _count(top, left, item_ptr, users, begins, ends, items, out):  # type: ignore[no-untyped-def]
    # The same where every r is 1: how many users have both.
    for i in range(len(out)):
        row = out[i]
        for p in range(item_ptr[top + i], item_ptr[top + i + 1]):
            for q in range(begins[users[p]], ends[users[p]]):
                row[items[q] - left] += 1
