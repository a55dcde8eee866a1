"""P after A has changed by few columns, without another inverse: Woodbury's identity on the packed store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deql._system.progress import ProgressCallback
from deql._system.threads import blas_limited
from deql.errors import InaccurateInverseError
from deql.linalg.gram_change import GramChange
from deql.linalg.packed import PackedSymmetric, mirror_lower

__all__ = ["LowRankStep", "low_rank_step", "residual_of", "retiring_step", "step_residual"]


@dataclass(frozen=True, eq=False)
class LowRankStep:
    """P' = P − G·C·Gᵀ, with G = P·F.

    Attributes
    ----------
    columns : ndarray of int64
        The rows of F that are not zero.
    factor : ndarray of float64 or None
        These rows; None for the identity.
    panel : ndarray, n × k
        G, in the type of P.
    core : ndarray of float64, k × k
        C, symmetric.
    """

    columns: NDArray[np.int64]
    factor: NDArray[np.float64] | None
    panel: NDArray[Any]
    core: NDArray[np.float64]

    def precision(self, precision: PackedSymmetric, report: ProgressCallback | None = None) -> PackedSymmetric:
        """P', in a store of its own: whatever happens meanwhile, P stays as it is.

        Parameters
        ----------
        precision : PackedSymmetric
            P.
        report : callable, optional
            Called as ``report(done, total)``.
        """
        updated = PackedSymmetric(precision.n, precision.tile, dtype=precision.dtype)
        for index, (start, block) in enumerate(updated.blocks()):
            width = block.shape[1]
            own = (self.panel[start : start + width].astype(np.float64) @ self.core).astype(precision.dtype)
            block[:] = precision.block(index) - self.panel[start:] @ own.T
            mirror_lower(block[:width])
            if report is not None:
                report(index + 1, precision.n_blocks)
        return updated

    def thin(self, left: NDArray[np.float32]) -> NDArray[np.float32]:
        """P'·U, given P·U: P·U − G·C·(Gᵀ·U), where Gᵀ·U = Fᵀ·P·U."""
        inner = left[self.columns].astype(np.float64)
        if self.factor is not None:
            inner = self.factor.T @ inner
        return np.asarray(left - self.panel @ (self.core @ inner).astype(self.panel.dtype), np.float32)


def low_rank_step(precision: PackedSymmetric, change: GramChange) -> LowRankStep:
    """P after A has become A + F·M·Fᵀ: C = M·(I + Fᵀ·P·F·M)⁻¹.

    Examples
    --------
    >>> P = PackedSymmetric.from_dense(np.diag([0.5, 0.25]), tile=2)
    >>> step = low_rank_step(P, GramChange(np.array([1]), None, np.array([[4.0]])))
    >>> step.precision(P).to_dense()
    array([[0.5  , 0.   ],
           [0.   , 0.125]])
    """
    columns, factor, middle = change.columns, change.factor, change.middle
    panel = gather(precision, columns)
    inner = panel[columns].astype(np.float64)
    if factor is not None:
        inner = factor.T @ inner @ factor
        panel = (panel @ factor.astype(panel.dtype)).astype(panel.dtype)
    with blas_limited(1):
        try:
            core = np.linalg.solve(np.eye(len(middle)) + middle @ inner, middle)
        except np.linalg.LinAlgError:
            raise InaccurateInverseError("the change leaves a matrix that cannot be inverted") from None
    return LowRankStep(columns, factor, panel, (core + core.T) / 2)


def retiring_step(precision: PackedSymmetric, columns: NDArray[np.int64]) -> LowRankStep:
    """P without some items: P − P_K·P_KK⁻¹·P_Kᵀ, whose rows and columns K are zero and can go.

    Examples
    --------
    >>> P = PackedSymmetric.from_dense(np.linalg.inv([[2.0, 1.0], [1.0, 4.0]]), tile=2)
    >>> retiring_step(P, np.array([1])).precision(P).without(np.array([1])).to_dense()
    array([[0.5]])
    """
    panel = gather(precision, columns)
    inner = panel[columns].astype(np.float64)
    with blas_limited(1):
        core = np.linalg.inv((inner + inner.T) / 2)
    return LowRankStep(columns, None, panel, (core + core.T) / 2)


def gather(precision: PackedSymmetric, columns: NDArray[np.int64]) -> NDArray[Any]:
    """Some columns of P, ascending, in one pass over its store.

    Examples
    --------
    >>> P = PackedSymmetric.from_dense(np.array([[2.0, 1.0, 0.0], [1.0, 3.0, 5.0], [0.0, 5.0, 9.0]]), tile=2)
    >>> gather(P, np.array([0, 2])).tolist()
    [[2.0, 0.0], [1.0, 5.0], [0.0, 9.0]]
    """
    panel = np.empty((precision.n, len(columns)), precision.dtype)
    for start, block in precision.blocks():
        stop = start + block.shape[1]
        first, last = np.searchsorted(columns, [start, stop])
        panel[start:, first:last] = block[:, columns[first:last] - start]
        panel[start:stop, last:] = block[columns[last:] - start].T
    return panel


def residual_of(precision: PackedSymmetric, product: Callable[[NDArray[np.float64]], NDArray[np.float64]]) -> float:
    """The largest entry of |P·A·x − x| over a few random sign vectors x, where ``product`` gives A·x.

    Examples
    --------
    >>> P = PackedSymmetric.from_dense(np.diag([0.5, 0.25]), tile=2)
    >>> residual_of(P, lambda x: x * np.array([[2.0], [4.0]]))
    0.0
    """
    signs = np.asarray(np.random.default_rng(0).integers(0, 2, (precision.n, 4)) * 2 - 1, np.float64)
    images = product(signs)
    scale = np.abs(images).max(axis=0)
    return float(np.abs(precision.matvec(images / scale) * scale - signs).max())


def step_residual(before: PackedSymmetric, after: PackedSymmetric, change: GramChange) -> float:
    """What one update added to the residual, found out without A.

    With x = P·y, A·x is y, so that P'·(y + ΔA·x) should be x.

    Examples
    --------
    >>> P = PackedSymmetric.from_dense(np.diag([0.5, 0.25]), tile=2)
    >>> change = GramChange(np.array([1]), None, np.array([[4.0]]))
    >>> step_residual(P, low_rank_step(P, change).precision(P), change)
    0.0
    """
    signs = np.random.default_rng(0).integers(0, 2, (before.n, 4)) * 2.0 - 1.0
    x = before.matvec(signs)
    scale = np.abs(x).max(axis=0)
    x, y = x / scale, signs / scale
    return float(np.abs(after.matvec(y + change.matvec(x)) - x).max())
