"""The paper on one page: every model is W = P·diag(gain) + diag(shift).

P = A⁻¹ with A = S + p/(1−p)·diag(D) + l2·I, where S = RᵀΛR is the Gram matrix, D its diagonal, p the
dropout and l2 the ridge as the Gram matrix sees it. A rule turns diag(P), D and the hyper-parameters
into the two vectors; it never looks at anything of size n², so trying another b, another diagonal or
another ξ costs O(n) once P is there.

The one identity behind all of them is the Schur complement 1/P_ii = A_ii − z_i, with
z_i = S_i,−i·(A_−i)⁻¹·S_−i,i: what the other items can say about item i.

With a prior, part of the ridge pulls towards weights W₀ instead of towards zero: of l2·‖W‖² the part m·‖W‖² becomes
m·‖W − W₀‖². The solution stays closed, W = P·diag(gain) + diag(shift) + m·P·W₀, and a rule needs no more of W₀ than two
diagonals (:class:`PriorDiagonals`).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "PriorDiagonals", "decoupled", "kept_emphasis", "paper_l2", "popularity_scale", "relaxed", "ridge_of_gram",
    "scale_columns",
]  # fmt: skip

Vector = NDArray[np.float64]


class PriorDiagonals(NamedTuple):
    """What a rule must know of a prior W₀.

    Attributes
    ----------
    m : float
        How much of l2 pulls towards W₀ instead of towards zero.
    own : ndarray of float64
        The diagonal of W₀.
    image : ndarray of float64
        The diagonal of P·W₀.
    """

    m: float
    own: Vector
    image: Vector


def kept_emphasis(b: float, dropout: float) -> float:
    """β = b²/κ with κ = p + (1−p)·b²: the weight of kept entries relative to the average entry.

    ``b`` is the ratio b/a; infinity stands for a = 0. Nothing dropped and nothing kept (p = b = 0)
    is the limit b → 0, so β = 0 there.

    Examples
    --------
    >>> kept_emphasis(1.0, 0.3), kept_emphasis(0.0, 0.3), kept_emphasis(float("inf"), 0.5)
    (1.0, 0.0, 2.0)
    """
    if dropout == 0:
        return float(b > 0)
    if b <= 1:
        return b * b / (dropout + (1.0 - dropout) * b * b)
    inverse = 1.0 / b  # 0 for a = 0
    return 1.0 / (dropout * inverse * inverse + (1.0 - dropout))


def paper_l2(l2: float, dropout: float, b: float) -> float:
    """The paper's λ that belongs to the library's ``l2``: λ = l2·(1−p)²·κ, at a = 1 (b = 1 if a = 0).

    Where nothing is dropped and b = 0 the loss is empty and the model is the limit, EASE, whose own
    λ (eq. 1) is ``l2`` itself.

    Examples
    --------
    >>> paper_l2(100.0, 0.5, b=1.0)
    25.0
    """
    if dropout == 0 and b == 0:
        return l2
    kappa = (1.0 - dropout) if math.isinf(b) else dropout + (1.0 - dropout) * b * b
    return l2 * (1.0 - dropout) ** 2 * kappa


def ridge_of_gram(lam: float, p: float, a: float, b: float) -> float:
    """The library's ``l2`` that belongs to the paper's λ, a and b: l2 = λ / ((1−p)²·κ).

    Examples
    --------
    >>> ridge_of_gram(25.0, 0.5, a=1.0, b=1.0)
    100.0
    """
    return lam / ((1.0 - p) ** 2 * (p * a**2 + (1.0 - p) * b**2))


def decoupled(
    precision_diagonal: Vector,
    gram_diagonal: Vector,
    *,
    l2: float,
    dropout: float,
    b: float,
    zero_diagonal: bool = False,
    prior: PriorDiagonals | None = None,
) -> tuple[Vector, Vector]:
    """Gain and shift of DEQL (eq. 9, eq. 16), and with a zero diagonal of eq. 17.

    With β = b²/κ and the ridge written as l2, every term of the paper's solution scales alike in a
    and b, and it becomes

        W_ii = β·(D_i − z_i) / (β·D_i + (1−p)·(l2 − β²·z_i))
        W_ji = −(1/(1−p) − β·W_ii)·P_ji/P_ii            for j ≠ i.

    So b = 1 is DLAE, and with p = 0 ridge regression (LAE); b = 0 or a zero diagonal is EDLAE, and
    with p = 0 EASE.

    A prior W₀ adds m·W₀ to what each column regresses on, so with o_i = (P·W₀)_ii and q_i = W₀_ii − o_i/P_ii

        W_ii = (β·(D_i − z_i) + (1−p)·m·(W₀_ii − β·q_i)) / (β·D_i + (1−p)·(l2 − β²·z_i))
        W_ji = −(1/(1−p) − β·W_ii + m·o_i)·P_ji/P_ii + m·(P·W₀)_ji      for j ≠ i.

    Parameters
    ----------
    precision_diagonal, gram_diagonal : ndarray of float64
        diag(P) and D.
    l2, dropout, b : float
        As in :class:`deql.DEQL`.
    zero_diagonal : bool, default False
        Put W_ii = 0.
    prior : PriorDiagonals, optional
        What l2 pulls towards; zero if not given.

    Returns
    -------
    gain, shift : ndarray of float64
        W = P·diag(gain) + diag(shift), and with a prior + m·P·W₀.

    Examples
    --------
    >>> import numpy as np
    >>> S = np.array([[2.0, 1.0], [1.0, 3.0]])
    >>> P = np.linalg.inv(S + np.eye(2))
    >>> gain, shift = decoupled(np.diag(P), np.diag(S), l2=1.0, dropout=0.0, b=1.0)
    >>> np.allclose(P * gain + np.diag(shift), P @ S)  # ridge regression
    True
    """
    beta = kept_emphasis(b, dropout)
    m, towards, image = (0.0, 0.0, 0.0) if prior is None else prior
    own = np.zeros_like(precision_diagonal)
    if not zero_diagonal and (beta > 0 or m > 0):
        # D_i − z_i ≥ 0; with it the denominator is a sum of terms that are not negative, (1 − (1−p)β = p/κ).
        unexplained = np.maximum(1.0 / precision_diagonal - dropout / (1.0 - dropout) * gram_diagonal - l2, 0.0)
        dropped = max(1.0 - (1.0 - dropout) * beta, 0.0)
        denominator = beta * dropped * gram_diagonal + (1.0 - dropout) * (l2 + beta**2 * unexplained)
        pulled = m * (towards - beta * (towards - image / precision_diagonal))
        np.divide(beta * unexplained + (1.0 - dropout) * pulled, denominator, out=own, where=denominator > 0)
    gain = -(1.0 / (1.0 - dropout) - beta * own + m * image) / precision_diagonal
    return gain, own - (gain * precision_diagonal + m * image)


def relaxed(
    precision_diagonal: Vector,
    gram_diagonal: Vector,
    *,
    l2: float,
    dropout: float,
    xi: float,
    prior: PriorDiagonals | None = None,
) -> tuple[Vector, Vector]:
    """Gain and shift of RLAE and RDLAE: DLAE whose diagonal may not pass a bound.

    In terms of B = (1−p)·W, the weights for inputs that are not rescaled after dropout, the
    constraint is B_ii ≤ ξ. Its multiplier is positive exactly where the free solution
    B_ii = 1 − γ_i·P_ii would pass ξ, so with γ_i = p/(1−p)·D_i + l2

        B = I − P·diag(max(γ_i, (1−ξ)/P_ii)).

    ξ = 0 is EDLAE and ξ = 1 is DLAE, at the same l2. With a prior the free solution is DLAE's with that prior, and the
    multiplier again takes a column of P off it.

    Parameters
    ----------
    precision_diagonal, gram_diagonal : ndarray of float64
        diag(P) and D.
    l2, dropout, xi : float
        As in :class:`deql.RDLAE`.
    prior : PriorDiagonals, optional
        What l2 pulls towards; zero if not given.

    Returns
    -------
    gain, shift : ndarray of float64
        W = P·diag(gain) + diag(shift), and with a prior + m·P·W₀.

    Examples
    --------
    >>> import numpy as np
    >>> P = np.linalg.inv(np.array([[3.0, 1.0], [1.0, 4.0]]))
    >>> gain, shift = relaxed(np.diag(P), np.array([2.0, 3.0]), l2=1.0, dropout=0.0, xi=0.1)
    >>> np.diag(P) * gain + shift
    array([0.1, 0.1])
    """
    free = dropout / (1.0 - dropout) * gram_diagonal + l2
    m, _, image = (0.0, 0.0, 0.0) if prior is None else prior
    lifted = (1.0 - dropout) * m * image
    gain = -np.maximum(free, (1.0 - xi + lifted) / precision_diagonal) / (1.0 - dropout)
    own = np.minimum(1.0 - free * precision_diagonal + lifted, xi) / (1.0 - dropout)
    return gain, own - (gain * precision_diagonal + m * image)


def scale_columns(
    gain: Vector,
    shift: Vector,
    precision_diagonal: Vector,
    item_counts: NDArray[np.int64],
    popularity_power: float,
) -> tuple[Vector, Vector]:
    """W·diag(count^(−popularity_power)): popular items held back (or, below 0, pushed).

    The whole column is scaled, its diagonal entry too, so a zero diagonal stays zero, exactly.

    Examples
    --------
    >>> import numpy as np
    >>> scale_columns(np.array([-1.0, -1.0]), np.array([1.0, 1.0]), np.ones(2), np.array([4, 1]), 0.5)
    (array([-0.5, -1. ]), array([0.5, 1. ]))
    """
    if popularity_power == 0:
        return gain, shift
    scale = popularity_scale(item_counts, popularity_power)
    own = (gain * precision_diagonal + shift) * scale
    return gain * scale, own - gain * scale * precision_diagonal


def popularity_scale(item_counts: NDArray[np.int64], popularity_power: float) -> Vector:
    """count^(−popularity_power) of each item; an item that nobody has counts as one that one user has.

    Examples
    --------
    >>> popularity_scale(np.array([4, 1, 0]), 0.5)
    array([0.5, 1. , 1. ])
    """
    scale: Vector = np.maximum(item_counts, 1).astype(np.float64) ** -popularity_power
    return scale
