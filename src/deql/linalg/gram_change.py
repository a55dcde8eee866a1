"""How A = RᵀΛR + c·diag(D) + l2·I changes with the rows of R: by few columns, so that P changes by few."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack

from deql.linalg.packed import mirror_lower

__all__ = ["GramChange", "RowChange", "row_change"]


@dataclass(frozen=True, eq=False)
class GramChange:
    """ΔA = F·M·Fᵀ, where only a few rows of F, n × k, are not zero.

    Attributes
    ----------
    columns : ndarray of int64
        T, the rows of F that are not zero, ascending.
    factor : ndarray of float64, |T| × k, or None
        These rows; None for the identity.
    middle : ndarray of float64, k × k
        M, symmetric.
    """

    columns: NDArray[np.int64]
    factor: NDArray[np.float64] | None
    middle: NDArray[np.float64]

    @property
    def rank(self) -> int:
        """How many columns F has: no more than that is the rank of the change."""
        return len(self.middle)

    def matvec(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """ΔA·x for a few columns x.

        Examples
        --------
        >>> GramChange(np.array([1]), None, np.array([[3.0]])).matvec(np.ones((2, 1))).tolist()
        [[0.0], [3.0]]
        """
        image = np.zeros_like(x)
        inner = x[self.columns]
        if self.factor is None:
            image[self.columns] = self.middle @ inner
        else:
            image[self.columns] = self.factor @ (self.middle @ (self.factor.T @ inner))
        return image


@dataclass(frozen=True, eq=False)
class RowChange:
    """Rows of R that become others: how much of A that changes, before anything of |T| × |T| is made.

    Attributes
    ----------
    columns : ndarray of int64
        T, the columns of A that change, ascending.
    rows : csr_array
        What comes and what goes, in these columns.
    weights : ndarray of float64
        Λ of what comes, −Λ of what goes.
    on_diagonal : ndarray of float64
        What is added to the diagonal of A beside that, in these columns.
    gram_diagonal : ndarray of float64
        ΔD, of all items.
    """

    columns: NDArray[np.int64]
    rows: csr_array
    weights: NDArray[np.float64]
    on_diagonal: NDArray[np.float64]
    gram_diagonal: NDArray[np.float64]

    @property
    def rank(self) -> int:
        """The most that the rank of the change can be: |T|, or rows and items whose diagonal changes, if fewer."""
        return min(len(self.columns), len(self.weights) + int(np.count_nonzero(self.on_diagonal)))

    def gram_change(self) -> GramChange:
        """ΔA."""
        if self.rank == len(self.columns):
            whole = (self.rows.T @ self.rows.multiply(self.weights[:, None])).toarray(order="C")
            mirror_lower(whole)  # the same but for rounding
            whole[np.diag_indices_from(whole)] += self.on_diagonal
            return GramChange(self.columns, None, whole)
        changed, many = np.flatnonzero(self.on_diagonal), len(self.weights)
        factor = np.zeros((len(self.columns), self.rank))
        factor[:, :many] = self.rows.toarray().T
        factor[changed, many + np.arange(len(changed))] = 1.0
        return GramChange(self.columns, factor, np.diag(np.concatenate([self.weights, self.on_diagonal[changed]])))


def row_change(
    before: csr_array,
    after: csr_array,
    weights_before: NDArray[np.float64],
    weights_after: NDArray[np.float64],
    dropout_ratio: float = 0.0,
    fresh: NDArray[np.float64] | None = None,
) -> RowChange:
    """The change of A where some rows of R become others, and that of D.

    With the rows B before and B' after, ΔS = B'ᵀΛ'B' − BᵀΛB touches the items T that occur in them, and
    ΔA = ΔS + c·diag(ΔD).

    Parameters
    ----------
    before, after : csr_array
        The rows that change, users × items.
    weights_before, weights_after : ndarray
        Λ of these users.
    dropout_ratio : float, default 0
        c = p/(1−p).
    fresh : ndarray, optional
        What else is added to the diagonal, for each item: where a new item's is not what it was begun with.

    Examples
    --------
    >>> nothing, one = csr_array((1, 3)), csr_array([[1.0, 0.0, 2.0]])
    >>> rows = row_change(nothing, one, np.ones(1), np.ones(1))
    >>> change = rows.gram_change()
    >>> change.columns.tolist(), change.factor.tolist(), change.middle.tolist(), rows.gram_diagonal.tolist()
    ([0, 2], [[1.0], [2.0]], [[1.0]], [1.0, 0.0, 4.0])
    """
    signed = np.concatenate([weights_after, -weights_before])
    rows = csr_array(vstack([after, before], format="csr", dtype=np.float64))
    same = _same_rows(after, before) & (weights_after == weights_before)
    used = (np.diff(rows.indptr) > 0) & (signed != 0) & ~np.concatenate([same, same])
    rows, signed = rows[used], signed[used]
    by_item = _diagonal_change(before, after, weights_before, weights_after)
    on_diagonal = dropout_ratio * by_item + (0.0 if fresh is None else fresh)
    touched = np.union1d(rows.indices, np.flatnonzero(on_diagonal)).astype(np.int64)
    return RowChange(touched, csr_array(rows[:, touched]), signed, on_diagonal[touched], by_item)


def _diagonal_change(
    before: csr_array, after: csr_array, weights_before: NDArray[np.float64], weights_after: NDArray[np.float64]
) -> NDArray[np.float64]:
    """ΔD. User by user first, so that it is 0, not rounding, for an item that nobody has more or less of."""
    counted = []
    for rows, weights in ((after, weights_after), (before, weights_before)):
        values = rows.astype(np.float64)
        counted.append(csr_array(values.multiply(values).multiply(weights[:, None])))
    return np.asarray((counted[0] - counted[1]).T @ np.ones(len(weights_after)))


def _same_rows(one: csr_array, other: csr_array) -> NDArray[np.bool_]:
    """Which rows of two matrices of one shape are equal."""
    difference = (one - other).tocsr()
    difference.eliminate_zeros()
    return np.asarray(np.diff(difference.indptr) == 0)
