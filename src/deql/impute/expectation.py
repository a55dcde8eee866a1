"""Rows with holes and a matrix P: the holes filled, the Gram matrix that is to be expected, errors left out.

For P = A⁻¹ and a row with observed columns O and missing columns M, block inversion gives

    x̂_M = A_MO·A_OO⁻¹·x_O = −P_MM⁻¹·P_MO·x_O,         A_MM − A_MO·A_OO⁻¹·A_OM = P_MM⁻¹:

the conditional mean of normal data whose covariance is proportional to A, and (times that proportion)
its conditional covariance. With one missing entry the first is EASE, −P_ji/P_ii. So the same P that
ranks items in the family fills every pattern of holes.

Column 0 is the constant 1, always observed: it makes the mean of each column a weight like the others, so nothing
needs to be centred again when holes are filled with something else than the mean.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from deql._system.threads import blas_limited, run_slices, thread_count
from deql.errors import NotPositiveDefiniteError
from deql.impute.row_kernels import fill_rows, leave_out, sweep_block

__all__ = ["IncompleteRows", "expected_gram", "filled", "left_out_errors", "ridge_inverse"]

Matrix = NDArray[np.float64]
_BATCH = 2_000_000
"""Numbers worked on at once: 16 MB, beside the rows themselves."""
_SMALL = 1000
"""Up to here a matrix is inverted without BLAS, whose threads wait for each other, on a busy machine for seconds."""
_QUICK = 1e6
"""Work that takes about a millisecond, less than it takes to start threads."""


@dataclass(frozen=True, eq=False)
class IncompleteRows:
    """Rows sorted by what they miss.

    Attributes
    ----------
    values : ndarray of float64
        Sorted rows; column 0 is 1, missing entries are 0.
    order : ndarray of int64
        Where each sorted row was.
    begins, columns, bounds : ndarray of int64
        Patterns, as the kernels take them. A pattern with many rows is cut where a batch ends.
    batch : int
        Rows in a batch.
    """

    values: Matrix
    order: NDArray[np.int64]
    begins: NDArray[np.int64]
    columns: NDArray[np.int64]
    bounds: NDArray[np.int64]
    batch: int

    @classmethod
    def of(cls, values: Matrix) -> Self:
        """Sort rows of a matrix in which NaN is missing.

        Examples
        --------
        >>> rows = IncompleteRows.of(np.array([[1.0, 2.0], [np.nan, 3.0], [4.0, 5.0]]))
        >>> rows.order.tolist(), rows.begins.tolist(), rows.columns.tolist()
        ([0, 2, 1], [0, 2, 3], [1])
        """
        m, n = values.shape
        missing = np.isnan(values)
        bits = np.packbits(missing, axis=1)
        order = np.lexsort(bits.T[::-1])
        batch = max(1, _BATCH // (n + 1))
        starts = np.append(True, (bits[order[1:]] != bits[order[:-1]]).any(axis=1))
        starts[::batch] = True
        firsts = np.flatnonzero(starts)
        pattern, columns = np.nonzero(missing[order[firsts]])
        bounds = np.append(0, np.cumsum(np.bincount(pattern, minlength=len(firsts))))
        sorted_values = np.ones((m, n + 1))
        sorted_values[:, 1:] = np.where(missing, 0.0, values)[order]
        return cls(sorted_values, order, np.append(firsts, m), columns + 1, bounds, batch)

    @property
    def missing_counts(self) -> NDArray[np.int64]:
        """How many rows miss each column."""
        rows = np.repeat(np.diff(self.begins), np.diff(self.bounds))
        counts = np.bincount(self.columns, weights=rows, minlength=self.values.shape[1])
        return counts.astype(np.int64)

    def batches(self) -> Iterator[tuple[int, int, slice]]:
        """First pattern, last pattern + 1 and rows of each batch."""
        for first_row in range(0, len(self.values), self.batch):
            last_row = min(first_row + self.batch, len(self.values))
            first, last = np.searchsorted(self.begins, (first_row, last_row))
            yield int(first), int(last), slice(first_row, last_row)


def ridge_inverse(S: Matrix, l2: float) -> Matrix:
    """P = (S + l2·I)⁻¹, where the constant column 0 has no ridge.

    Examples
    --------
    >>> ridge_inverse(np.diag([1.0, 3.0]), 1.0)
    array([[1.  , 0.  ],
           [0.  , 0.25]])
    """
    A = S.copy()
    A[np.diag_indices(len(A))] += np.append(0.0, np.full(len(A) - 1, l2))
    least = 1e-12 * S.diagonal().max()
    if len(A) <= _SMALL:
        good = sweep_block(A, len(A), np.empty(len(A)), least)
        inverse = -A
    else:
        with blas_limited():
            factor, failed = lapack.dpotrf(A, lower=1, overwrite_a=1)
            good = not failed and factor.diagonal().min() ** 2 > least
            inverse = lapack.dpotri(factor, lower=1, overwrite_c=1)[0] if good else A
    if not good:
        raise NotPositiveDefiniteError(
            f"with l2={l2:g} there is no solution, because some columns follow exactly from others: give a larger l2",
            [],
        )
    return np.ascontiguousarray(np.tril(inverse) + np.tril(inverse, -1).T)


def filled(rows: IncompleteRows, P: Matrix) -> Matrix:
    """All rows with their holes filled, in the order they were given in, without the constant column."""
    result = np.empty((len(rows.values), rows.values.shape[1] - 1))
    for _, _, where, _, values in _filled_batches(rows, P, np.empty((0, 0, 0))):
        result[rows.order[where]] = values[:, 1:]
    return result


def expected_gram(rows: IncompleteRows, P: Matrix, weight: float) -> Matrix:
    """E[XᵀX] given what is observed, if rows are normal with covariance P⁻¹/weight: EM's expectation step.

    Filled rows alone would make columns look more alike than they are; what each leaves uncertain,
    P_MM⁻¹/weight, is added.

    Examples
    --------
    >>> rows = IncompleteRows.of(np.array([[1.0], [-1.0], [np.nan]]))
    >>> expected_gram(rows, np.diag([1 / 3, 1 / 3]), 3.0)
    array([[3., 0.],
           [0., 3.]])
    """
    n = rows.values.shape[1]
    spread = np.zeros((thread_count(), n, n))
    total = np.zeros((n, n))
    for *_, values in _filled_batches(rows, P, spread):
        with blas_limited():
            total += values.T @ values
    total += spread.sum(axis=0) / weight
    return total


def left_out_errors(rows: IncompleteRows, P: Matrix) -> float:
    """Sum of squared errors of every observed entry, each predicted from the others observed in its row.

    Examples
    --------
    >>> rows = IncompleteRows.of(np.array([[1.0, 2.0]]))
    >>> left_out_errors(rows, np.linalg.inv([[1.0, 0.0, 0.0], [0.0, 2.0, 1.0], [0.0, 1.0, 2.0]]))  # 0² + 1.5²
    2.25
    """
    total = 0.0
    for first, last, _, product, values in _filled_batches(rows, P, np.empty((0, 0, 0))):
        errors = np.zeros_like(values)
        _run(leave_out, rows, first, last, P, product, values, errors)
        total += float(np.vdot(errors[:, 1:], errors[:, 1:]))
    return total


def _filled_batches(
    rows: IncompleteRows, P: Matrix, spread: Matrix
) -> Iterator[tuple[int, int, slice, Matrix, Matrix]]:
    """First and last pattern, place, X·P and filled rows of each batch."""
    for first, last, where in rows.batches():
        values = rows.values[where].copy()
        with blas_limited():
            product = values @ P
        cuts = _cuts(rows, first, last)
        room = np.zeros(last, np.int64)
        room[cuts[:-1]] = np.arange(len(cuts) - 1)
        _run(fill_rows, rows, first, last, P, product, values, room, spread)
        yield first, last, where, product, values


def _cuts(rows: IncompleteRows, first: int, last: int) -> NDArray[np.int64]:
    """Where to cut patterns so that each thread has about as much to do."""
    missing = np.diff(rows.bounds[first : last + 1]).astype(np.float64)
    work = np.append(0.0, np.cumsum(missing**3 + np.diff(rows.begins[first : last + 1]) * missing**2 + 1.0))
    shares = np.linspace(0.0, work[-1], (thread_count() if work[-1] > _QUICK else 1) + 1)
    return np.unique(first + np.searchsorted(work, shares))


def _run(kernel: Any, rows: IncompleteRows, first: int, last: int, *arguments: Any) -> None:
    stop = np.zeros(1, np.bool_)
    run_slices(
        kernel, _cuts(rows, first, last), first, rows.begins, rows.columns, rows.bounds, *arguments, stop, stop=stop
    )
