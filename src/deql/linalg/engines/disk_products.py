"""Products for a sweep whose pieces come one after the other: each cut by rows among the threads."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from deql._system.threads import run_slices, thread_count
from deql.errors import NotPositiveDefiniteError
from deql.linalg.blas import MOST_CALLERS, cholesky_inverse, gemm, not_positive
from deql.linalg.packed import mirror_lower
from deql.linalg.parallel_sweep import TASK_FLOPS, parallel_sweep
from deql.linalg.sweep import Piece
from deql.linalg.tiling import choose_tile

__all__ = ["SlicedProducts"]

_LEAST_ROWS = 256
"""Of a task: with fewer, BLAS takes long to lay out the other factor."""


class SlicedProducts:
    """Products and inverses by BLAS, which is to be limited to one thread: the threads are ours.

    Parameters
    ----------
    dtype : dtype
        float32 or float64.
    """

    def __init__(self, dtype: DTypeLike) -> None:
        self.dtype = np.dtype(dtype)
        self._rooms = (np.empty(0, dtype), np.empty(0, dtype))

    def panel(self, rows: int, columns: int) -> NDArray[Any]:
        if self._rooms[0].size < rows * columns:
            self._rooms = (np.empty(rows * columns, self.dtype), np.empty(rows * columns, self.dtype))
        self._panel, self._solved = (room[: rows * columns].reshape(rows, columns) for room in self._rooms)
        return self._panel

    def invert(self, pivot: NDArray[Any], first: int) -> NDArray[Any]:
        tile = choose_tile(len(pivot))
        if tile == len(pivot):
            return cholesky_inverse(pivot, first)
        inverse = np.array(pivot, order="C")
        try:
            parallel_sweep([inverse[left:, left : left + tile] for left in range(0, len(inverse), tile)])
        except NotPositiveDefiniteError as error:
            raise not_positive(first + error.indices[0]) from None
        mirror_lower(inverse)
        return inverse

    def solve(self, panel: NDArray[Any], inverse: NDArray[Any]) -> NDArray[Any]:
        def rows(first: int, last: int) -> None:
            gemm(1.0, panel[first:last], inverse, 0.0, self._solved[first:last])

        _by_rows(rows, len(panel), inverse.size)
        return self._solved

    def update(self, piece: Piece, sign: int) -> None:
        top, left, values = piece
        columns = self._panel[left : left + values.shape[1]].T

        def rows(first: int, last: int) -> None:
            gemm(sign, self._solved[top + first : top + last], columns, 1.0, values[first:last])

        _by_rows(rows, len(values), columns.size)


def _by_rows(work: Callable[[int, int], None], count: int, products_in_row: int) -> None:
    """Do work on all rows, cut the same way for any number of threads: a fit resumes to the same bits with fewer."""
    size = max(_LEAST_ROWS, TASK_FLOPS // (2 * products_in_row))
    with ThreadPoolExecutor(min(thread_count(), MOST_CALLERS)) as pool:
        run_slices(work, [*range(0, count, size), count], pool=pool)
