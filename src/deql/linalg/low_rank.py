"""P after A has changed by few columns, without another inverse: Woodbury's identity on the packed store.

Every task does the same whatever the number of threads, so that results do not depend on it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from deql._system.progress import ProgressCallback
from deql._system.threads import blas_limited, interruptible, run_slices, thread_count
from deql.errors import InaccurateInverseError
from deql.linalg.blas import MOST_CALLERS, cholesky_inverse, gemm, lu_factor, lu_solve
from deql.linalg.invert import Symmetric, largest_residual, sign_vectors
from deql.linalg.packed import PackedSymmetric, Store, mirror_lower
from deql.linalg.panel import panel_product

if TYPE_CHECKING:  # the torch engine does without SciPy
    from scipy.sparse import csr_array

    from deql.linalg.gram_change import GramChange

__all__ = ["LowRankStep", "core_of_change", "low_rank_step", "residual_of", "retiring_step", "step_residual"]

_ROWS = 4096
"""Of a block column, in one task."""

_IN_CACHE = 2**18
"""Numbers of P that are copied at once, and changed while they are in the cache."""

_LOOKED_AT = 64
"""Columns that tell whether numbers cancel out."""

_MOST_CANCELLED = 4.0
"""Times what is left that may cancel out in single precision: two of its 24 bits."""

_SOLVED = 64
"""Columns of C that one task solves for."""


@dataclass(frozen=True, eq=False)
class LowRankStep:
    """P' = P − G·C·Gᵀ, with G = P·F.

    Attributes
    ----------
    columns : ndarray of int64
        The rows of F that are not zero, ascending.
    factor : csr_array of float64 or None
        These rows; None for the identity.
    panel : ndarray or tensor, n × k
        G, in the type of P and where that is.
    core : ndarray of float64, k × k
        C, symmetric.
    """

    columns: NDArray[np.int64]
    factor: csr_array | None
    panel: Any
    core: NDArray[np.float64]

    def precision(
        self,
        precision: PackedSymmetric,
        report: ProgressCallback | None = None,
        store: Store | None = None,
    ) -> PackedSymmetric:
        """P', in a store of its own: whatever happens meanwhile, P stays as it is.

        H = G·C is made a block column at a time, in double precision where the numbers of C cancel out.

        Parameters
        ----------
        precision : PackedSymmetric
            P.
        report : callable, optional
            Called as ``report(done, total)``.
        store : callable, optional
            Called with the order and the tile, gives the flat store to fill; memory of its own if not given.
        """
        n, tile, dtype = precision.n, precision.tile, precision.dtype
        updated = precision.room(n, tile, store)

        kind = np.dtype(np.float64) if self._cancels(precision) else dtype
        core = self.core.astype(kind)

        def factors(index: int) -> NDArray[Any]:
            own = self.panel[index * tile : (index + 1) * tile].astype(kind, copy=False)
            product = np.empty(own.shape, kind)
            gemm(1.0, own, core, 0.0, product)
            return product.astype(dtype, copy=False)

        def change(index: int, first: int, last: int, own: Future[NDArray[Any]]) -> None:
            before, after, right = precision.block(index), updated.block(index), own.result().T
            step = max(1, _IN_CACHE // after.shape[1])
            for top in range(first, last, step):
                rows = slice(top, min(top + step, last))
                after[rows] = before[rows]
                gemm(-1.0, self.panel[index * tile :][rows], right, 1.0, after[rows])
            if first == 0:
                mirror_lower(after[: after.shape[1]])

        with blas_limited(1), ThreadPoolExecutor(min(thread_count(), MOST_CALLERS)) as pool:
            try:
                before: Sequence[Future[None]] = ()
                ahead = pool.submit(factors, 0)
                for index in range(updated.n_blocks):
                    own, (height, width) = ahead, updated.block(index).shape
                    if index + 1 < updated.n_blocks:
                        ahead = pool.submit(factors, index + 1)
                    bounds = [0, *range(width, height, _ROWS), height]
                    tasks = [
                        pool.submit(change, index, first, last, own) for first, last in pairwise(bounds) if first < last
                    ]
                    _finish(before, report, index, updated.n_blocks)
                    before = tasks
                _finish(before, report, updated.n_blocks, updated.n_blocks)
            except BaseException:
                pool.shutdown(wait=True, cancel_futures=True)
                raise
        return updated

    def _cancels(self, precision: PackedSymmetric) -> bool:
        """Whether Σ|G|·|C|·|Gᵀ| is many times what is left on the diagonal of P', at some changed columns."""
        rows = self.columns[:: -(-len(self.columns) // _LOOKED_AT)]
        base, width = precision.addresses()
        own = self.panel[rows].astype(np.float64)
        with blas_limited(1):
            left = precision.data[base[rows] + rows * width[rows]] - ((own @ self.core) * own).sum(axis=1)
            most = ((np.abs(own) @ np.abs(self.core)) * np.abs(own)).sum(axis=1)
        return not (most <= _MOST_CANCELLED * left).all()

    def thin(self, left: NDArray[np.float32]) -> NDArray[np.float32]:
        """P'·U, given P·U: P·U − G·C·(Gᵀ·U), where Gᵀ·U = Fᵀ·P·U."""
        inner = left[self.columns].astype(np.float64)
        if self.factor is not None:
            inner = self.factor.T @ inner
        right = (self.core @ inner).astype(self.panel.dtype)
        updated = np.empty(left.shape, np.float32)

        def rows(first: int, last: int) -> None:
            part = left[first:last].astype(right.dtype)
            gemm(-1.0, self.panel[first:last], right, 1.0, part)
            updated[first:last] = part

        with blas_limited(1), ThreadPoolExecutor(min(thread_count(), MOST_CALLERS)) as pool:
            run_slices(rows, [*range(0, len(left), _ROWS), len(left)], pool=pool)
        return updated


def low_rank_step(precision: PackedSymmetric, change: GramChange) -> LowRankStep:
    """What P becomes where A becomes A + F·M·Fᵀ.

    Raises
    ------
    InaccurateInverseError
        If A then cannot be inverted.

    Examples
    --------
    >>> from deql.linalg.gram_change import GramChange
    >>> P = PackedSymmetric.from_dense(np.diag([0.5, 0.25]), tile=2)
    >>> step = low_rank_step(P, GramChange(np.array([1]), None, np.array([[4.0]])))
    >>> step.precision(P).to_dense()
    array([[0.5  , 0.   ],
           [0.   , 0.125]])
    """
    panel = panel_product(precision, change.columns, change.factor)
    inner = panel[change.columns].astype(np.float64)
    with blas_limited(1):
        core = core_of_change(inner if change.factor is None else change.factor.T @ inner, change.middle)
    return LowRankStep(change.columns, change.factor, panel, core)


def core_of_change(inner: NDArray[np.float64], middle: NDArray[np.float64]) -> NDArray[np.float64]:
    """C = M·(I + K·M)⁻¹, symmetric, with K = Fᵀ·P·F.

    Examples
    --------
    >>> core_of_change(np.array([[0.25]]), np.array([[4.0]]))
    array([[2.]])
    """
    k = len(middle)
    inner = (inner + inner.T) / 2
    factored, core = np.eye(k), np.array(middle, np.float64, order="C")
    bounds = [*range(0, k, _SOLVED), k]
    with blas_limited(1), ThreadPoolExecutor(min(thread_count(), MOST_CALLERS)) as pool:
        run_slices(
            lambda first, last: gemm(1.0, inner[first:last], middle, 1.0, factored[first:last]), bounds, pool=pool
        )
        # By rows this is I + K·M, and by columns, as LAPACK reads it, I + M·K, whose solution for M is C.
        pivots, positive = interruptible(lu_factor, factored)
        if positive:
            run_slices(lambda first, last: lu_solve(factored, pivots, core[first:last]), bounds, pool=pool)
    if not (positive and np.isfinite(core).all()):
        raise InaccurateInverseError("the change leaves a matrix that is not positive definite, or too nearly not")
    core += core.T.copy()
    core /= 2
    return core


def retiring_step(precision: PackedSymmetric, columns: NDArray[np.int64]) -> LowRankStep:
    """P without some items: P − P_K·P_KK⁻¹·P_Kᵀ, whose rows and columns K are zero and can go.

    Examples
    --------
    >>> P = PackedSymmetric.from_dense(np.linalg.inv([[2.0, 1.0], [1.0, 4.0]]), tile=2)
    >>> retiring_step(P, np.array([1])).precision(P).without(np.array([1])).to_dense()
    array([[0.5]])
    """
    panel = panel_product(precision, columns)
    with blas_limited(1):
        core = interruptible(cholesky_inverse, panel[columns].astype(np.float64))
    return LowRankStep(columns, None, panel, core)


def residual_of(precision: Symmetric, product: Callable[[NDArray[np.float64]], NDArray[np.float64]]) -> float:
    """The largest entry of |P·A·x − x| over a few random sign vectors x, where ``product`` gives A·x.

    Examples
    --------
    >>> P = PackedSymmetric.from_dense(np.diag([0.5, 0.25]), tile=2)
    >>> residual_of(P, lambda x: x * np.array([[2.0], [4.0]]))
    0.0
    """
    signs = sign_vectors(precision.n)
    return largest_residual(precision, product(signs), signs)


def step_residual(before: Symmetric, after: Symmetric, change: GramChange) -> float:
    """What one update added to the residual, found out without A.

    With x = P·y, A·x is y, so that P'·(y + ΔA·x) should be x. With signs over diag(P) as y, x is signs but for what
    other items say of each: as large as the vectors of :func:`residual_of`, and nearly as mixed, so that the two may be
    added up. Of heavy updates this finds less than there is: A·signs, which shows more, takes the data.

    Examples
    --------
    >>> from deql.linalg.gram_change import GramChange
    >>> P = PackedSymmetric.from_dense(np.diag([0.5, 0.25]), tile=2)
    >>> change = GramChange(np.array([1]), None, np.array([[4.0]]))
    >>> step_residual(P, low_rank_step(P, change).precision(P), change)
    0.0
    """
    y = sign_vectors(before.n) / before.diagonal()[:, None]
    x = before.matvec(y)
    size = np.abs(x).max(axis=0)
    return largest_residual(after, (y + change.matvec(x)) / size, x / size)


def _finish(tasks: Sequence[Future[None]], report: ProgressCallback | None, done: int, total: int) -> None:
    for task in tasks:
        task.result()
    if report is not None and tasks:
        report(done, total)
