"""A prior's part of the scan: X·left once, then its product with the columns that are looked at, in float32."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.sparse import csr_array

from deql._system.threads import blas_limited, even_bounds, read_only, thread_count
from deql.linalg.blas import MOST_CALLERS, gemm
from deql.linalg.sparse_product import bounds_by_entries, multiply_sparse
from deql.linalg.tiling import STRIP
from deql.ranking.prior_term import PriorTerm, prior_arrays

__all__ = ["Factors", "PriorScan", "row_lengths"]

_EXTRAS = 2**24
"""Numbers that are multiplied at once, though at least a strip for each user."""

_USERS, _MOST_COLUMNS = 1024, 512
"""What one product in BLAS takes: its parts stay in the second cache."""

_UNDERFLOW = 2.0**-50
"""Added to the lengths of rows: (k + 4)·2⁻²⁴ times the square of it is above what k products and sums lose by
underflow in float32, even where that is to zero."""


class Factors(NamedTuple):
    """A prior for several models that share P, as kernels take it; without columns where there is none.

    Attributes
    ----------
    left, right : ndarray of float32
        See :func:`~deql.ranking.prior_term.prior_arrays`.
    scales : ndarray of float64, models × n
        What a product of rows of them counts.
    """

    left: NDArray[np.float32]
    right: NDArray[np.float32]
    scales: NDArray[np.float64]

    @classmethod
    def of(cls, prior: PriorTerm | None, models: int) -> Factors:
        """Those of a prior, whose scales may be one model's or each model's own."""
        left, right, scale = prior_arrays(prior)
        return cls(left, right, read_only(np.ascontiguousarray(np.broadcast_to(scale, (models, scale.shape[-1])))))

    @property
    def rank(self) -> int:
        """How many columns the factors have; 0 for none, and for a dense prior."""
        return int(self.right.shape[1])

    @property
    def dense(self) -> bool:
        """Whether ``left`` itself is the product."""
        return self.left.shape[1] > 0 and not self.rank


@njit(cache=True, nogil=True)
def _fill_lengths(first, last, matrix, rows, out):  # type: ignore[no-untyped-def]
    for t in range(first, last):
        out[rows[t]] = np.sqrt(_square(matrix[rows[t]]))


@njit(cache=True, nogil=True, fastmath={"contract", "reassoc"})
def _square(row):  # type: ignore[no-untyped-def]
    total = 0.0
    for c in range(len(row)):
        total += np.float64(row[c]) * np.float64(row[c])
    return total


def row_lengths(run: Callable[..., None], matrix: NDArray[np.float32], rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """The lengths of some rows, 0 for the others.

    Examples
    --------
    >>> from deql._system.threads import run_slices
    >>> row_lengths(run_slices, np.float32([[3, 4], [1, 0], [5, 12]]), np.array([0, 2]))
    array([ 5.,  0., 13.])
    """
    out = np.zeros(len(matrix))
    slices = max(1, min(thread_count(), len(rows) // 1024))
    run(_fill_lengths, even_bounds(len(rows), slices), read_only(matrix), rows, out)
    return out


class PriorScan:
    """The extras of some users, (X·left)·rightᵀ, a group of columns at a time.

    An extra in float32 is off by at most lengths_u·errors_i, once it is scaled. With u = 2⁻²⁴, y = Σ_j x_j·left_j and
    T = Σ_j |x_j|·‖left_j‖: y is a sum of m products in float32, in whatever order, so it is off by a vector of length
    m·u·T at most; its product with right_i takes k products and sums, in whatever order: k·u·‖y‖·‖right_i‖. (Both by
    the usual bound γ_k = k·u/(1 − k·u), below 1.1·k·u for k up to a million.) So with lengths = ‖y‖ + (m + 1)/(k + 4)·T
    and errors = 1.1·(k + 4)·u·‖right_i‖·|scale_i|, the product is above both, and above what their own rounding and
    underflow take (see ``_UNDERFLOW``). Users whose extras may overflow get an infinite size, and their items are
    decided without them.

    Parameters
    ----------
    run : callable
        ``run_slices`` on some threads.
    factors : Factors
    matrix : csr_array
        Histories.
    values : ndarray
        Theirs in the type of P.
    elsewhere : bool, default False
        Whether the extras are made on a device, in float64.

    Attributes
    ----------
    sizes : ndarray, models × users
        What the prior's parts of any score of a user add up to in size at most: |left_j·right_i| ≤ ‖left_j‖·‖right_i‖.
    errors : ndarray, models × n, or models × 0 without a prior
    lengths : ndarray
        For each user; 0 where extras are made in float64, as of a dense prior.
    columns : int
        How many columns of extras there can be at a time.
    extras : ndarray of float32, users × columns
        See :meth:`reach`.
    """

    def __init__(
        self,
        run: Callable[..., None],
        factors: Factors,
        matrix: csr_array,
        values: NDArray[np.floating],
        elsewhere: bool = False,
    ) -> None:
        users, n = matrix.shape
        k = factors.rank
        self._run, self._right, self._first, self._end = run, factors.right, 0, 0
        self.columns = n
        self.errors, self.lengths = np.zeros_like(factors.scales), np.zeros(users)
        self.sizes, self.extras = np.zeros((len(factors.scales), users)), np.zeros((users, 0), np.float32)
        if not factors.left.shape[1]:
            return
        of_right = row_lengths(run, factors.right, np.arange(n)) if k else np.ones(n)
        parts = abs(matrix) @ row_lengths(run, factors.left, np.unique(matrix.indices).astype(np.int64))
        self.sizes = parts * abs(factors.scales * of_right).max(axis=1)[:, None]
        if not k or elsewhere:
            return
        self._y = np.empty((users, k), np.float32)
        run(
            multiply_sparse, bounds_by_entries(matrix.indptr), matrix.indptr, matrix.indices, values, factors.left,
            self._y,
        )  # fmt: skip
        lengths = row_lengths(run, self._y, np.arange(users))
        self.lengths = lengths + parts * ((np.diff(matrix.indptr) + 1) / (k + 4)) + _UNDERFLOW
        # Nothing is known of what overflows in float32: an infinite size says so.
        self.sizes[:, ~(self.lengths * of_right.max() < 2.0**120)] = np.inf
        self.errors = 1.1 * (k + 4) * 2.0**-24 * abs(factors.scales) * (of_right + _UNDERFLOW)
        columns = min(_MOST_COLUMNS, _EXTRAS // max(1, users))
        self.columns = min(max(STRIP, columns - columns % STRIP), -(-n // STRIP) * STRIP)

    def reach(self, low: int, high: int) -> int:
        """Have the extras of columns ``low`` … ``high − 1``, ``columns`` at most, ready; returns where they begin."""
        if self._right.shape[1] and high > self._end:
            users = len(self._y)
            self._first, self._end = low, min(len(self._right), low + self.columns)
            if not self.extras.size:
                self.extras = np.empty((users, self.columns), np.float32)
            multiply = partial(_multiply, self._y, self._right[low : self._end].T, self.extras)
            # No more slices at once than BLAS has buffers for.
            for first in range(0, users, _USERS * MOST_CALLERS):
                last = min(users, first + _USERS * MOST_CALLERS)
                with blas_limited(1):
                    self._run(multiply, [*range(first, last, _USERS), last])
        return self._first


def _multiply(
    y: NDArray[np.float32], right: NDArray[np.float32], extras: NDArray[np.float32], first: int, last: int
) -> None:
    gemm(1.0, y[first:last], right, 0.0, extras[first:last, : right.shape[1]])
