"""The memory engine: the packed store swept where it lies, with the products of BLAS."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.linalg.blas import get_blas_funcs
from scipy.linalg.lapack import get_lapack_funcs

from deql._system.formatting import parse_bytes, show_bytes
from deql._system.progress import ProgressCallback, Stage
from deql._system.threads import blas_limited
from deql.linalg.engines.engine import Engine, Problem, Solved
from deql.linalg.engines.resources import INTERPRETER, ProblemSize, Requirement, Resources, lacking
from deql.linalg.invert import invert
from deql.linalg.packed import PackedSymmetric, mirror_lower
from deql.linalg.sweep import InPlace, Piece, not_positive, sweep

__all__ = ["Blas", "Memory", "invert_in_memory"]

_BUFFERS = 64 * 2**20
"""What BLAS, the threads and the inverse of a pivot take beside the panels."""

_SMALL = 512
"""Columns up to which a second thread of BLAS gains nothing, and on a busy machine is waited for."""


@dataclass(frozen=True, repr=False)
class Memory(Engine):
    """Compute P in memory, in n²/2 numbers and two panels: the least trouble where it fits.

    Parameters
    ----------
    memory : int or str, optional
        Refuse fits that would take more than this, such as ``"4GiB"``; all that is free may be taken if not given.

    Examples
    --------
    >>> import deql
    >>> data = deql.Interactions.from_pairs(list("aabb"), list("xyyz"))
    >>> deql.EASE(l2=1.0, engine=deql.engines.Memory()).fit(data).engine_
    'memory'
    """

    memory: int | str | None = None

    name = "memory"

    def __post_init__(self) -> None:
        if self.memory is not None:
            parse_bytes(self.memory)

    def requirement(self, size: ProblemSize, resources: Resources) -> Requirement:
        # The Gram matrix's work arrays are gone before the sweep's panels come.
        more = size.matrices * size.packed + max(2 * size.n * size.tile * size.itemsize, size.work) + _BUFFERS
        why = lacking("memory", more, resources.memory)
        if self.memory is not None and more > (allowed := parse_bytes(self.memory)):
            why = why or f"it needs {show_bytes(more)} of memory, and was given {show_bytes(allowed)}"
        return Requirement(self.name, more + size.stored + INTERPRETER, why_not=why)

    def solve(self, problem: Problem, stage: Stage) -> Solved:
        return self.invert(self.gram(problem, stage), problem.added, stage)

    def invert(self, store: PackedSymmetric, added: NDArray[np.float64], stage: Stage) -> Solved:
        """Replace a Gram matrix by P."""
        store.add_to_diagonal(added)
        with blas_limited(1 if store.n <= _SMALL else None):
            return Solved(store, invert_in_memory(store, stage("Inverse")), self.name)


def invert_in_memory(matrix: PackedSymmetric, report: ProgressCallback | None = None) -> float:
    """Replace a packed matrix by its inverse, and return how far it is from it; see :func:`deql.linalg.invert.invert`.

    Examples
    --------
    >>> a = PackedSymmetric.from_dense(np.diag([2.0, 4.0]), tile=1)
    >>> residual = invert_in_memory(a)
    >>> a.diagonal()
    array([0.5 , 0.25])
    """
    return invert(matrix, lambda store, told: sweep(InPlace(store), Blas(store.dtype), told), report)


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
