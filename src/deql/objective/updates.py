"""The minimiser where every H^(i) is one matrix plus a low-rank change (Theorem 4.1): one inverse for all columns.

With P = H₀⁻¹ and H^(i) = H₀ + U·C·Uᵀ, where U holds r vectors as columns and C is r × r and symmetric,

    H^(i)⁻¹ v = x − Z·(I + C·M)⁻¹·C·Uᵀx        x = P·v,  Z = P·U,  M = Uᵀ·Z

(Woodbury's identity). Miller's theorem takes the same change as r steps of rank one and gives the same inverse; it
needs every matrix on the way to be regular, this only the last. M^½·C·M^½ has the eigenvalues of C·M, and
H^(i) is positive definite exactly if all of them are above −1.

P times a dense vector costs n². A vector u = H₀·c + s has P·u = c + P·s, which costs n for each entry of c and s
that is not zero, so that a column of W costs O(n·r) rather than O(n²·r).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array

from deql._system.progress import ProgressCallback, stages
from deql._system.threads import blas_limited
from deql.errors import DataError, InaccurateInverseError, NotPositiveDefiniteError
from deql.linalg.engines.memory import invert_in_memory
from deql.linalg.packed import PackedSymmetric
from deql.linalg.tiling import choose_tile
from deql.objective.checks import (
    as_real,
    as_square,
    check_callable,
    check_items,
    check_ridge,
    check_symmetric,
    item_name,
)

__all__ = ["Combination", "Update", "solve_updates"]

Matrix = NDArray[np.float64]

_SLAB = 64
"""Columns solved at once: enough for matrix products, few enough for their n-vectors to stay small."""


@dataclass(frozen=True, eq=False)
class Combination:
    """The vector Σ_j rows[j]·(row j of H₀) + Σ_j units[j]·e_j.

    Parameters
    ----------
    rows, units : mapping of int to float
        By item number.
    """

    rows: Mapping[int, float] = field(default_factory=dict)
    units: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Update:
    """H^(i) = H₀ + Σ_kl core[k][l]·u_k·u_lᵀ and v^(i) of one item; both may be scaled by the same number.

    Parameters
    ----------
    target : Combination or array of n numbers
        v^(i).
    vectors : sequence of Combination or array
        u_1 … u_r; none if H^(i) is H₀.
    core : array, r × r
        Symmetric.
    """

    target: Combination | ArrayLike
    vectors: Sequence[Combination | ArrayLike] = ()
    core: ArrayLike = ()


def solve_updates(
    H0: ArrayLike,
    updates: Callable[[int], Update],
    *,
    lam: float = 0.0,
    zero_diagonal: bool = False,
    items: Any = None,
    progress: bool = False,
) -> Matrix:
    """W with W_i = (H^(i) + λI)⁻¹ v^(i) where H^(i) is H₀ plus a change of rank r: O(n³ + n²·r).

    Parameters
    ----------
    H0 : ndarray, n × n
        Symmetric positive definite, with or without λ.
    updates : callable
        ``updates(i)`` gives the :class:`Update` of item i. Vectors given as :class:`Combination` cost O(n) for each of
        their entries, dense ones O(n²).
    lam : float, default 0
        The paper's λ, added to the diagonal of every H^(i).
    zero_diagonal : bool, default False
        Minimise subject to W_ii = 0, over the other entries (eq. 15).
    items : sequence, optional
        Item ids for error messages.
    progress : bool, default False
        Show progress bars on standard error.

    Returns
    -------
    ndarray, n × n

    Raises
    ------
    NotPositiveDefiniteError
        With the item whose H has no inverse, or the items at which H₀ has none.

    Examples
    --------
    Ridge regression in which item i's own entry counts ten times as much:

    >>> S = np.array([[2.0, 1.0], [1.0, 3.0]])
    >>> def updates(i):
    ...     return Update(Combination(rows={i: 1.0}), [Combination(units={i: 1.0})], [[9.0 * S[i, i]]])
    >>> solve_updates(S, updates).round(3)
    array([[0.085, 0.458],
           [0.305, 0.085]])
    """
    check_ridge(lam)
    check_callable("updates", updates, "the Update of item i")
    base = np.ascontiguousarray(as_square(H0, "H0"))
    n = len(base)
    check_items(items, n)
    check_symmetric(base, "H0")
    W = np.empty((n, n))
    with stages(progress) as stage, blas_limited():
        P = _inverse(base, lam, items, stage("Inverse"))
        report = stage("Columns")
        for start in range(0, n, _SLAB):
            columns = np.arange(start, min(n, start + _SLAB))
            W[:, columns] = _solve_slab(base, P, columns, updates, lam, zero_diagonal, items).T
            if report is not None:
                report(int(columns[-1]) + 1, n)
    return W


def _inverse(H0: Matrix, lam: float, items: Any, report: ProgressCallback | None) -> Matrix:
    packed = PackedSymmetric.from_dense(H0, choose_tile(len(H0)))
    packed.add_to_diagonal(np.full(len(H0), lam))
    try:
        invert_in_memory(packed, report)
    except NotPositiveDefiniteError as error:
        raise NotPositiveDefiniteError(
            f"H0 is not positive definite: what it says of item {item_name(error.indices[0], items)} is zero or "
            f"follows from the items before it; set lam above {lam:g}",
            error.indices,
        ) from None
    except InaccurateInverseError as error:
        raise InaccurateInverseError(f"{error}; set lam above {lam:g}") from None
    dense: Matrix = packed.to_dense()
    return dense


def _solve_slab(
    H0: Matrix,
    P: Matrix,
    columns: NDArray[np.intp],
    updates: Callable[[int], Update],
    lam: float,
    zero_diagonal: bool,
    items: Any,
) -> Matrix:
    """Some columns of W, as rows; every array here has a row, or a stack of r rows, for each of them."""
    names = [item_name(int(i), items) for i in columns]
    found = [_checked(updates(int(i)), name) for i, name in zip(columns, names, strict=True)]
    rank = max(len(own) for _target, own, _core in found)
    core = np.zeros((len(found), rank, rank))
    vectors: list[Any] = []
    for stack, (target, own, own_core) in zip(core, found, strict=True):
        stack[: len(own), : len(own)] = own_core
        vectors += [*own, *[Combination()] * (rank - len(own)), target]
    shape = (len(found), rank + 1, len(H0))
    both = _with_images(vectors, H0, P, lam, [name for name in names for _ in range(rank + 1)])
    U, Z = (part.reshape(shape) for part in both)
    if zero_diagonal:
        # P' = P − P_i·P_iᵀ/P_ii is the inverse without row and column i (eq. 17): all else goes as with P.
        own_row = P[columns]
        own_entry = np.take_along_axis(Z, columns[:, None, None], axis=2)
        Z -= own_entry / P[columns, columns][:, None, None] * own_row[:, None, :]
    U, Z, x = U[:, :rank], Z[:, :rank], Z[:, rank]
    M = U @ Z.transpose(0, 2, 1)
    _check_positive(core, (M + M.transpose(0, 2, 1)) / 2, columns, len(H0), lam, zero_diagonal, items)
    small: Any = np.linalg.solve(np.eye(rank) + core @ M, core @ (U @ x[:, :, None]))
    rows: Matrix = x - (small.transpose(0, 2, 1) @ Z)[:, 0]
    if zero_diagonal:
        rows[np.arange(len(columns)), columns] = 0
    return rows


def _checked(update: Any, name: str) -> tuple[Any, Sequence[Any], Matrix]:
    """Target, vectors and core of an update."""
    if not isinstance(update, Update):
        raise DataError(f"updates must give an Update for item {name}, got {type(update).__name__}")
    if not isinstance(update.vectors, Sequence | np.ndarray):
        raise DataError(f"vectors of item {name} must be a list, got {type(update.vectors).__name__}")
    r = len(update.vectors)
    left_out = isinstance(update.core, Sequence) and not update.core
    core = as_real(np.empty((0, 0)) if left_out else update.core, f"core of item {name}", (r, r))
    if not np.isfinite(core).all() or not np.allclose(core, core.T):
        raise DataError(f"core of item {name} must be finite and symmetric")
    return update.target, update.vectors, core


def _with_images(
    vectors: Sequence[Any], H0: Matrix, P: Matrix, lam: float, names: Sequence[str]
) -> tuple[Matrix, Matrix]:
    """Vectors u and P·u as rows: u = H₀·c + s has P·u = c + P·(s − λ·c), where P = (H₀ + λI)⁻¹."""
    n = len(H0)
    dense = [k for k, vector in enumerate(vectors) if not isinstance(vector, Combination)]
    c = _sparse([vector.rows if isinstance(vector, Combination) else {} for vector in vectors], n, names)
    s = _sparse([vector.units if isinstance(vector, Combination) else {} for vector in vectors], n, names)
    U = c @ H0 + s
    Z = (s - lam * c) @ P + c
    if dense:
        U[dense] = [as_real(vectors[k], f"a vector of item {names[k]}", (n,)) for k in dense]
        _check_finite(U[dense], [names[k] for k in dense])
        Z[dense] = U[dense] @ P
    return U, Z


def _sparse(entries: Sequence[Mapping[int, float]], n: int, names: Sequence[str]) -> csr_array:
    """Mappings of item numbers to values as the rows of a matrix."""
    for own, name in zip(entries, names, strict=True):
        if not isinstance(own, Mapping) or not all(map(_is_entry, own.items())):
            raise DataError(f"a vector of item {name} must map item numbers to numbers, got {own!r}"[:200])
    lengths = [len(own) for own in entries]
    places = np.array([place for own in entries for place in own], np.int64)
    values = np.array([value for own in entries for value in own.values()], np.float64)
    of = [name for name, length in zip(names, lengths, strict=True) for _ in range(length)]
    outside = np.flatnonzero((places < 0) | (places >= n))
    if outside.size:
        k = int(outside[0])
        raise DataError(f"a vector of item {of[k]} names item {places[k]}: items are 0 to {n - 1:,}")
    _check_finite(values[:, None], of)
    return csr_array((values, places, np.concatenate([[0], np.cumsum(lengths)])), shape=(len(entries), n))


def _is_entry(entry: tuple[Any, Any]) -> bool:
    place, value = entry
    return isinstance(place, int | np.integer) and isinstance(value, int | float | np.integer | np.floating)


def _check_finite(values: Matrix, names: Sequence[str]) -> None:
    bad = np.flatnonzero(~np.isfinite(values).all(axis=1))
    if bad.size:
        raise DataError(f"a vector of item {names[int(bad[0])]} has entries that are NaN or infinite")


def _check_positive(
    core: Matrix, M: Matrix, columns: NDArray[np.intp], n: int, lam: float, zero_diagonal: bool, items: Any
) -> None:
    """Raise NotPositiveDefiniteError for the first column whose I + M^½·C·M^½ is not positive definite."""
    if not M.shape[1]:
        return
    # Vectors of length 1 in the metric of P, so that rounding is of one size in all entries.
    length = np.sqrt(np.maximum(np.einsum("skk->sk", M), 0))
    scale = length[:, :, None] * length[:, None, :]
    metric = np.divide(M, scale, out=np.zeros_like(M), where=scale > 0)
    values, axes = np.linalg.eigh(metric)
    root = axes * np.sqrt(np.maximum(values, 0))[:, None, :]
    change = np.linalg.eigvalsh(root.transpose(0, 2, 1) @ (core * scale) @ root)
    rounding = 100 * n * np.finfo(float).eps * np.maximum(1, np.abs(change).max(axis=1))
    bad = columns[1 + change.min(axis=1) <= rounding]
    if bad.size:
        advice = f"set lam above {lam:g}" + ("" if zero_diagonal else " or zero_diagonal=True")
        raise NotPositiveDefiniteError(
            f"H of item {item_name(int(bad[0]), items)} is not positive definite, or too close to it; {advice}", bad
        )
