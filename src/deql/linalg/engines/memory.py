"""The memory engine: the packed store swept where it lies, with the products of BLAS."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.linalg.blas import get_blas_funcs
from scipy.linalg.lapack import get_lapack_funcs

from deql._system.progress import Report
from deql.linalg.in_place import InPlace
from deql.linalg.packed import PackedSymmetric, mirror_lower
from deql.linalg.sweep import Piece, not_positive, sweep

__all__ = ["Blas", "sweep_in_memory"]


def sweep_in_memory(matrix: PackedSymmetric, report: Report | None = None) -> None:
    """Replace a packed matrix by its inverse.

    Examples
    --------
    >>> a = PackedSymmetric.from_dense(np.diag([2.0, 4.0]), tile=1)
    >>> sweep_in_memory(a)
    >>> a.diagonal()
    array([0.5 , 0.25])
    """
    sweep(InPlace(matrix), Blas(matrix.dtype), report)


class Blas:
    """Products and inverses by BLAS and LAPACK.

    Parameters
    ----------
    dtype : dtype
        float32 or float64.
    """

    def __init__(self, dtype: DTypeLike) -> None:
        self.dtype = np.dtype(dtype)
        example = np.empty(0, dtype)
        self._gemm: Any = get_blas_funcs("gemm", (example,))
        self._potrf: Any = get_lapack_funcs("potrf", (example,))
        self._potri: Any = get_lapack_funcs("potri", (example,))
        self._rooms = (np.empty(0, dtype), np.empty(0, dtype))

    def panel(self, rows: int, columns: int) -> NDArray[Any]:
        if self._rooms[0].size < rows * columns:
            self._rooms = (np.empty(rows * columns, self.dtype), np.empty(rows * columns, self.dtype))
        self._panel, self._solved = (room[: rows * columns].reshape(rows, columns) for room in self._rooms)
        return self._panel

    def invert(self, pivot: NDArray[Any], first: int) -> NDArray[Any]:
        factor, failed = self._potrf(pivot.T, lower=0, clean=0, overwrite_a=False)
        if failed > 0:
            raise not_positive(first + failed - 1)
        inverse, _ = self._potri(factor, lower=0, overwrite_c=True)
        mirror_lower(inverse.T)
        return np.asarray(inverse.T)

    def solve(self, panel: NDArray[Any], inverse: NDArray[Any]) -> NDArray[Any]:
        # BLAS is column-major and the store row-major, so every product is written transposed.
        self._gemm(1.0, inverse.T, panel.T, 0.0, self._solved.T, overwrite_c=True)
        return self._solved

    def update(self, piece: Piece, sign: int) -> None:
        top, left, values = piece
        rows, columns = self._solved[top : top + len(values)], self._panel[left : left + values.shape[1]]
        self._gemm(sign, columns.T, rows.T, 1.0, values.T, trans_a=True, overwrite_c=True)
