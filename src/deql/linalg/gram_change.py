"""How A = RᵀΛR + c·diag(D) + l2·I changes with the rows of R: by few columns, so that P changes by few."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, hstack, vstack

from deql.linalg.packed import mirror_lower

__all__ = ["GramChange", "RowsChange", "gram_change"]


@dataclass(frozen=True, eq=False)
class GramChange:
    """ΔA = F·M·Fᵀ, where only a few rows of F, n × k, are not zero.

    Attributes
    ----------
    columns : ndarray of int64
        T, the rows of F that are not zero, ascending.
    factor : csr_array of float64, |T| × k, or None
        These rows; None for the identity.
    middle : ndarray of float64, k × k
        M, symmetric.
    """

    columns: NDArray[np.int64]
    factor: csr_array | None
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
class RowsChange:
    """Rows of R that become others, as three ways to write what that does to A; the cheapest is made when it is needed.

    Attributes
    ----------
    columns : ndarray of int64
        T: items that occur in the rows, or whose diagonal changes.
    diagonal_change : ndarray of float64
        ΔD.
    rank : int
        Columns of F in the cheapest way.
    """

    columns: NDArray[np.int64]
    diagonal_change: NDArray[np.float64]
    rank: int
    _rows: csr_array
    _signed: NDArray[np.float64]
    _on_diagonal: NDArray[np.float64]
    _moves: csr_array | None = None
    _means: csr_array | None = None

    @cached_property
    def change(self) -> GramChange:
        """ΔA = F·M·Fᵀ."""
        T, k = self.columns, self.rank
        rows, signed, moved = self._rows[:, T], self._signed, np.zeros(0, np.int64)
        if self._moves is None and k == len(T):
            whole = (rows.T @ rows.multiply(signed[:, None])).toarray(order="C")
            mirror_lower(whole)  # the same but for rounding
            whole[np.diag_indices(k)] += self._on_diagonal[T]
            return GramChange(T, None, whole)
        middle, first = np.zeros((k, k)), len(signed)
        middle[np.arange(first), np.arange(first)] = signed
        if self._moves is not None:
            moved = np.unique(self._moves.indices).astype(np.int64)
        units = np.union1d(np.flatnonzero(self._on_diagonal), moved).astype(np.int64)
        last = first + len(units)
        middle[np.arange(first, last), np.arange(first, last)] = self._on_diagonal[units]
        at = np.searchsorted(T, units)
        parts = [rows.T, csr_array((np.ones(len(at)), (at, np.arange(len(at)))), shape=(len(T), len(at)))]
        if self._moves is not None and self._means is not None:
            parts.append(self._means[:, T].T @ self._moves[:, moved])
            ours = first + np.searchsorted(units, moved)
            middle[ours, np.arange(last, k)] = middle[np.arange(last, k), ours] = 1.0
        factor = csr_array(hstack(parts, format="csr"))
        return GramChange(T, factor, middle)


def gram_change(
    before: csr_array,
    after: csr_array,
    weights_before: NDArray[np.float64],
    weights_after: NDArray[np.float64],
    dropout_ratio: float = 0.0,
    fresh: NDArray[np.float64] | None = None,
) -> RowsChange:
    """The change of A where some rows of R become others.

    With the rows B before and B' after, ΔA = B'ᵀΛ'B' − BᵀΛB + c·diag(ΔD). It can be written with a column of F for

    - each item of T, which occur in the rows: F is part of the identity;
    - each row, before and after, and each item whose D changes;
    - each row of users who come, go or weigh otherwise, and two for each item i that others have more or less of:
      where Δ = B' − B, a user changes RᵀR by Δᵀr̄ + r̄ᵀΔ with r̄ the mean of both rows, so that e_i and Σ_u λ_u·Δ_ui·r̄_u
      do for all users of i together, and e_i holds its D, too.

    The way with the fewest operations is taken.

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
    >>> found = gram_change(nothing, one, np.ones(1), np.ones(1))
    >>> found.change.columns.tolist(), found.change.factor.toarray().tolist(), found.diagonal_change.tolist()
    ([0, 2], [[1.0], [2.0]], [1.0, 0.0, 4.0])
    """
    before, after = before.astype(np.float64), after.astype(np.float64)
    moves = csr_array(after - before)
    moves.eliminate_zeros()
    same_weight = weights_after == weights_before
    changed = (np.diff(moves.indptr) > 0) | ~same_weight
    before, after, moves = before[changed], after[changed], moves[changed]
    weights_before, weights_after, same_weight = (one[changed] for one in (weights_before, weights_after, same_weight))
    by_item = _diagonal_change(before, after, weights_before, weights_after)
    on_diagonal = dropout_ratio * by_item + (0.0 if fresh is None else fresh)
    rows, signed = _signed_rows(before, after, weights_before, weights_after)
    on = np.flatnonzero(on_diagonal)
    columns = np.union1d(np.unique(rows.indices), on).astype(np.int64)
    n = len(by_item)

    def operations(rank: int) -> int:
        # P' = P − G·C·Gᵀ, G·C and C's inverse; G = P·F takes all T columns of P either way.
        return rank * (n * n + 2 * n * rank + 5 * rank * rank)

    by_rows = len(signed) + len(on)
    stay = same_weight & (np.diff(before.indptr) > 0) & (np.diff(after.indptr) > 0)
    moved = np.unique(moves[stay].indices)
    others = _signed_rows(*(one[~stay] for one in (before, after, weights_before, weights_after)))
    by_items = len(others[1]) + len(np.union1d(on, moved)) + len(moved)
    rank = min((len(columns), by_rows, by_items), key=operations)
    if rank == by_items and rank not in (by_rows, len(columns)):
        own = moves[stay]
        means = csr_array((before[stay] + after[stay]) * 0.5)
        weighed = csr_array(own.multiply(weights_after[stay][:, None]))
        return RowsChange(columns, by_item, rank, *others, on_diagonal, weighed, means)
    return RowsChange(columns, by_item, rank, rows, signed, on_diagonal)


def _signed_rows(
    before: csr_array, after: csr_array, weights_before: NDArray[np.float64], weights_after: NDArray[np.float64]
) -> tuple[csr_array, NDArray[np.float64]]:
    """The rows after and before that are not empty, and what their products count: B'ᵀΛ'B' − BᵀΛB."""
    signed = np.concatenate([weights_after, -weights_before])
    rows = csr_array(vstack([after, before], format="csr"))
    used = (np.diff(rows.indptr) > 0) & (signed != 0)
    return rows[used], signed[used]


def _diagonal_change(
    before: csr_array, after: csr_array, weights_before: NDArray[np.float64], weights_after: NDArray[np.float64]
) -> NDArray[np.float64]:
    """ΔD. User by user first, so that it is 0, not rounding, for an item that nobody has more or less of."""
    counted = []
    for rows, weights in ((after, weights_after), (before, weights_before)):
        counted.append(csr_array(rows.multiply(rows).multiply(weights[:, None])))
    return np.asarray((counted[0] - counted[1]).T @ np.ones(len(weights_after)))
