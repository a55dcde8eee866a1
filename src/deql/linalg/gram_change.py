"""How A = RᵀΛR + c·diag(D) + l2·I changes with the rows of R: by few columns, so that P changes by few."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack

__all__ = ["GramChange", "gram_change"]


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


def gram_change(
    before: csr_array,
    after: csr_array,
    weights_before: NDArray[np.float64],
    weights_after: NDArray[np.float64],
    dropout_ratio: float = 0.0,
    fresh: NDArray[np.float64] | None = None,
) -> tuple[GramChange, NDArray[np.float64]]:
    """The change of A where some rows of R become others, and that of D.

    With the rows B before and B' after, ΔS = B'ᵀΛ'B' − BᵀΛB touches the items T that occur in them, and
    ΔA = ΔS + c·diag(ΔD). Its rank is at most |T|, and at most the number of rows and of items whose D changes: the
    smaller of the two is taken.

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
    >>> change, by = gram_change(nothing, one, np.ones(1), np.ones(1))
    >>> change.columns.tolist(), change.factor.tolist(), change.middle.tolist(), by.tolist()
    ([0, 2], [[1.0], [2.0]], [[1.0]], [1.0, 0.0, 4.0])
    """
    signed = np.concatenate([weights_after, -weights_before])
    rows = csr_array(vstack([after, before], format="csr", dtype=np.float64))
    same = _same_rows(after, before) & (weights_after == weights_before)
    used = (np.diff(rows.indptr) > 0) & (signed != 0) & ~np.concatenate([same, same])
    rows, signed = rows[used], signed[used]
    by_item = _diagonal_change(before, after, weights_before, weights_after)
    on_diagonal = dropout_ratio * by_item + (0.0 if fresh is None else fresh)
    changed = np.flatnonzero(on_diagonal)
    touched = np.union1d(np.unique(rows.indices), changed).astype(np.int64)
    thin = rows.shape[0] + len(changed)
    columns = rows[:, touched]
    at = np.searchsorted(touched, changed)
    if thin < len(touched):
        factor, middle = np.zeros((len(touched), thin)), np.zeros(thin)
        factor[:, : len(signed)] = columns.toarray().T
        factor[at, len(signed) + np.arange(len(changed))] = 1.0
        middle[: len(signed)], middle[len(signed) :] = signed, on_diagonal[changed]
        return GramChange(touched, factor, np.diag(middle)), by_item
    whole = np.asarray((columns.T @ columns.multiply(signed[:, None])).todense())
    whole[at, at] += on_diagonal[changed]
    return GramChange(touched, None, (whole + whole.T) / 2), by_item


def _diagonal_change(
    before: csr_array, after: csr_array, weights_before: NDArray[np.float64], weights_after: NDArray[np.float64]
) -> NDArray[np.float64]:
    """ΔD. User by user first, so that it is 0, not rounding, for an item that nobody has more or less of."""
    counted = []
    for rows, weights in ((after, weights_after), (before, weights_before)):
        values = rows.astype(np.float64)
        counted.append(csr_array(values.multiply(values).multiply(weights[:, None])))
    return np.asarray((counted[0] - counted[1]).sum(axis=0), np.float64).ravel()


def _same_rows(one: csr_array, other: csr_array) -> NDArray[np.bool_]:
    """Which rows of two matrices of one shape are equal."""
    difference = (one - other).tocsr()
    difference.eliminate_zeros()
    return np.asarray(np.diff(difference.indptr) == 0)
