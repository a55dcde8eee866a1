"""Moments that have a formula: dropout, its emphasis, weights of users, and added noise, in any combination.

Input and target of column i are X = A^(i)·(Δ⊙R + E) and Y_i = A^(i)·R_i, as in eq. 5 with noise E. Entry (u, j) is
kept with chance q_j = 1 − p_j, A_ui is b where Δ_ui keeps and a where it drops, E has independent
entries of mean 0 and variance σ_j², and user u counts w_u. Only Δ_ui and A_ui depend on each other. With S = RᵀΛR,
D its diagonal, Σw = Σ_u w_u and κ_i = E[A_ui²] = p_i·a² + q_i·b²:

    H_jk = κ_i·q_j·q_k·S_jk            H_jj = κ_i·(q_j·D_j + Σw·σ_j²)        j ≠ k, neither of them i
    H_ij = b²·q_i·q_j·S_ij             H_ii = b²·q_i·D_i + κ_i·Σw·σ_i²       E[A_ui²·Δ_ui] = q_i·b²
    v_j  = κ_i·q_j·S_ji                v_i  = b²·q_i·D_i

which is Lemma 3.2 if all p_j are one p and σ = 0. So with K_jk = q_j·q_k·S_jk and K_jj = q_j·D_j + Σw·σ_j², H^(i)/κ_i
differs from K in row and column i alone: a change of rank two, made of K's own row i and e_i.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deql._system.checks import check_range
from deql.data import as_interactions
from deql.errors import DataError, ParameterError
from deql.linalg.gram import gram
from deql.objective.moment_checks import as_real, as_square, check_item, check_symmetric, item_name
from deql.objective.updates import Combination, Update

__all__ = ["Corruption"]

Matrix = NDArray[np.float64]

_LARGEST = 1e100
"""Of a and b, whose squares are multiplied by S."""


class Corruption:
    """Moments of the loss under dropout, emphasis, user weights and noise, for :func:`~deql.objective.solve`.

    Parameters
    ----------
    data : Interactions or matrix
        Users × items R, sparse or dense. For a Gram matrix see :meth:`of_gram`.
    dropout : float or array of n, default 0
        Share of the entries dropped, p, or p_j of each item.
    a, b : float, default 1
        Emphasis on dropped and on kept entries.
    noise_variance : float or array of n, default 0
        σ², or σ_j² of each item: variance of what is added to every entry of the input, and not to the target.
    user_weights : array, optional
        w_u of each user; 1 if not given.
    l2 : float, default 0
        Ridge as the Gram matrix sees it, as in the models: l2 is added to S's diagonal, and so κ_i·q_j²·l2 to H^(i)_jj.
        With one p for all items that is the paper's λ = (1−p)²·κ·l2, which is ``lam`` of :func:`~deql.objective.solve`.

    Attributes
    ----------
    n : int
        How many items.
    items : ndarray or None
        Their ids.

    Examples
    --------
    >>> import deql
    >>> R = np.array([[1.0, 1.0], [0.0, 1.0]])
    >>> deql.objective.solve(Corruption(R, dropout=0.5, b=2.0, l2=1.0)).round(3)  # deql.DEQL(1.0, 0.5, b=2.0)
    array([[0.694, 0.232],
           [0.178, 0.815]])
    """

    def __init__(
        self,
        data: Any,
        *,
        dropout: ArrayLike = 0.0,
        a: float = 1.0,
        b: float = 1.0,
        noise_variance: ArrayLike = 0.0,
        user_weights: ArrayLike | None = None,
        l2: float = 0.0,
    ) -> None:
        table = as_interactions(data)
        if not table.n_items:
            raise DataError("there are no items in the data")
        weights = np.ones(table.n_users)
        if user_weights is not None:
            weights = as_real(user_weights, "user_weights", (table.n_users,))
            if not (np.isfinite(weights) & (weights >= 0)).all():
                raise ParameterError("user_weights must be finite and not negative", parameter="user_weights")
        S = gram(table.matrix, weights=weights, dtype=np.float64).to_dense()
        self._set(S, float(weights.sum()), table.items, dropout, a, b, noise_variance, l2)

    @classmethod
    def of_gram(
        cls,
        S: ArrayLike,
        *,
        total_weight: float | None = None,
        dropout: ArrayLike = 0.0,
        a: float = 1.0,
        b: float = 1.0,
        noise_variance: ArrayLike = 0.0,
        l2: float = 0.0,
    ) -> Self:
        """The same from a Gram matrix S = RᵀΛR; noise needs Σ_u w_u, the number of users if they weigh 1.

        Examples
        --------
        >>> H, v = Corruption.of_gram([[2.0, 1.0], [1.0, 3.0]], dropout=0.5)(0)
        >>> H
        array([[1.  , 0.25],
               [0.25, 1.5 ]])
        """
        matrix = as_square(S, "S").copy()
        check_symmetric(matrix, "S", "RᵀΛR")
        if total_weight is None:
            if np.any(np.asarray(noise_variance)):
                raise ParameterError(
                    "noise on a Gram matrix needs total_weight, the number of users or their weights' sum",
                    parameter="total_weight",
                )
            total_weight = 0.0
        self = cls.__new__(cls)
        self._set(matrix, total_weight, None, dropout, a, b, noise_variance, l2)
        return self

    def _set(
        self, S: Matrix, total_weight: float, items: Any, dropout: Any, a: float, b: float, noise: Any, l2: float
    ) -> None:
        n = len(S)
        self.n, self.items = n, items
        p = _of_items(dropout, "dropout", n, items, most=1.0)
        for name, value in (("a", a), ("b", b), ("l2", l2), ("total_weight", total_weight)):
            check_range(name, value, 0.0, np.inf)
        if max(a, b) > _LARGEST:
            raise ParameterError(
                f"a and b must be at most {_LARGEST:g}, got a={a:g}, b={b:g}: divide both by one number"
            )
        self._kept, self._b2 = 1 - p, float(b) ** 2
        self._kappa = p * float(a) ** 2 + self._kept * self._b2
        empty = np.flatnonzero(self._kappa == 0)
        if empty.size:
            raise ParameterError(
                f"the loss of item {item_name(int(empty[0]), items)} is empty at dropout {p[empty[0]]:g}, "
                f"a={a:g}, b={b:g}: neither dropped nor kept entries count"
            )
        self._signal = self._kept * S.diagonal()
        added = total_weight * _of_items(noise, "noise_variance", n, items) + l2 * self._kept**2
        S *= self._kept
        S *= self._kept[:, None]
        S.flat[:: n + 1] = self._signal + added
        self._K = S  # with the ridge
        # With a = b there is one H for all, and the same array says so.
        self._common = self._kappa[0] * S if a == b else None

    def __call__(self, i: int) -> tuple[Matrix, Matrix]:
        """H^(i) and v^(i)."""
        check_item(i, self.n)
        kappa, row = self._kappa[i], self._K[i]
        v = kappa / self._kept[i] * row
        v[i] = self._b2 * self._signal[i]
        if self._common is not None:
            return self._common, v
        H = kappa * self._K
        H[i] = H[:, i] = self._b2 * row
        H[i, i] = self._b2 * self._signal[i] + kappa * (row[i] - self._signal[i])
        return H, v

    def as_updates(self, lam: float = 0.0) -> tuple[Matrix, Callable[[int], Update]] | None:
        """H₀ and updates for :func:`~deql.objective.solve_updates`, with λ in them; None if they have no such form.

        Columns are divided by κ_i, so that K is H₀; λ becomes λ/κ_i, which is one number if κ is, or if λ = 0.

        Examples
        --------
        >>> import deql
        >>> loss = Corruption([[1.0, 1.0], [0.0, 1.0]], dropout=[0.2, 0.5], b=2.0)
        >>> deql.objective.solve_updates(*loss.as_updates()).round(3)
        array([[0.981, 0.294],
               [0.038, 0.882]])
        """
        H0 = self._K
        if lam:
            if np.ptp(self._kappa) > 1e-14 * self._kappa[0]:
                return None
            H0 = H0.copy()
            H0.flat[:: self.n + 1] += lam / self._kappa[0]
        gain = self._b2 / self._kappa
        beta = gain - 1

        def update(i: int) -> Update:
            signal, entry, q = self._signal[i], H0[i, i], self._kept[i]
            target = Combination(rows={i: 1 / q}, units={i: gain[i] * signal - entry / q})
            if beta[i] == 0:
                return Update(target)
            # β·(e_i·K_iᵀ + K_i·e_iᵀ) counts (i, i) twice, where only β·q_i·D_i is to be added.
            core = [[0.0, beta[i]], [beta[i], beta[i] * (signal - 2 * entry)]]
            return Update(target, [Combination(rows={i: 1.0}), Combination(units={i: 1.0})], core)

        return H0, update


def _of_items(value: ArrayLike, name: str, n: int, items: Any, most: float = np.inf) -> Matrix:
    """A number for each item, from 0 to below ``most``."""
    array = np.asarray(value)
    numbers = as_real(np.broadcast_to(array, (n,)) if array.ndim == 0 else array, name, (n,))
    bad = np.flatnonzero(~((numbers >= 0) & (numbers < most)))
    if bad.size:
        bounds = "from 0 up" if most == np.inf else f"from 0 to below {most:g}"
        whose = f" for item {item_name(int(bad[0]), items)}" if array.ndim else ""
        raise ParameterError(f"{name} must be {bounds}, got {numbers[bad[0]]:g}{whose}", parameter=name)
    return numbers
