"""The loss itself: its moments, its value, and the brute-force solution that tests compare with.

Everything here speaks the paper's parameters (λ, p, a, b) and takes the Gram matrix S = RᵀΛR as a
dense array: it is for checking and for study, on small n. The models reach the same solutions through
one inverse and two vectors (:mod:`deql.rules`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["brute_force", "expected_loss", "moments", "sampled_loss"]

Matrix = NDArray[np.float64]


def moments(S: Matrix, i: int, *, p: float, a: float, b: float) -> tuple[Matrix, Matrix]:
    """H^(i) = E[XᵀX] and v^(i) = E[XᵀY_i] of column i, entry by entry as Lemma 3.2 gives them.

    Parameters
    ----------
    S : ndarray, n × n
        Gram matrix.
    i : int
        Column.
    p, a, b : float
        Dropout, and the emphasis on dropped and on kept entries.

    Returns
    -------
    H : ndarray, n × n
    v : ndarray, n

    Examples
    --------
    >>> H, v = moments(np.array([[2.0, 1.0], [1.0, 3.0]]), 0, p=0.5, a=1.0, b=1.0)
    >>> H
    array([[1.  , 0.25],
           [0.25, 1.5 ]])
    >>> v
    array([1. , 0.5])
    """
    n = len(S)
    G = np.full((n, n), (1 - p) ** 2 * p * a**2 + (1 - p) ** 3 * b**2)
    np.fill_diagonal(G, (1 - p) * p * a**2 + (1 - p) ** 2 * b**2)
    G[i, :] = G[:, i] = (1 - p) ** 2 * b**2
    G[i, i] = (1 - p) * b**2
    u = np.full(n, (1 - p) * p * a**2 + (1 - p) ** 2 * b**2)
    u[i] = (1 - p) * b**2
    return G * S, u * S[:, i]


def expected_loss(W: Matrix, S: Matrix, *, lam: float, p: float, a: float, b: float) -> float:
    """The expected loss of any W (eq. 11) plus λ·‖W‖², without sampling and without n matrices H^(i).

    With κ = p·a² + (1−p)·b², w the column without its own entry d = W_ii, and A₀ = S + p/(1−p)·diag(S),
    Lemma 3.2 sums up to

        (1−p)²κ·wᵀA₀w + 2(1−p)²b²·d·S_iᵀw + (1−p)b²·D_i·d² − 2(1−p)κ·S_iᵀw − 2(1−p)b²·D_i·d + κ·D_i.

    Parameters
    ----------
    W, S : ndarray, n × n
        Weights and Gram matrix.
    lam, p, a, b : float
        The paper's parameters.

    Examples
    --------
    >>> S = np.array([[2.0, 1.0], [1.0, 3.0]])
    >>> expected_loss(np.zeros((2, 2)), S, lam=1.0, p=0.5, a=1.0, b=1.0)
    5.0
    """
    kappa = p * a**2 + (1 - p) * b**2
    D, own = np.diag(S), np.diag(W)
    others = W - np.diag(own)
    image = S @ others
    quadratic = (others * image).sum(axis=0) + p / (1 - p) * (D[:, None] * others**2).sum(axis=0)
    cross = np.diag(image)  # S_iᵀw for each column i
    columns = (
        (1 - p) ** 2 * kappa * quadratic
        + 2 * (1 - p) ** 2 * b**2 * own * cross
        + (1 - p) * b**2 * D * own**2
        - 2 * (1 - p) * kappa * cross
        - 2 * (1 - p) * b**2 * D * own
        + kappa * D
    )
    return float(columns.sum() + lam * (W**2).sum())


def sampled_loss(
    W: Matrix,
    R: Matrix,
    *,
    lam: float,
    p: float,
    a: float,
    b: float,
    n_samples: int = 1000,
    seed: int = 0,
    weights: Matrix | None = None,
) -> tuple[float, float]:
    """The same loss by sampling dropout masks (eq. 3): its mean and standard error.

    Parameters
    ----------
    W : ndarray, n × n
    R : ndarray, users × n
    lam, p, a, b : float
        The paper's parameters.
    n_samples, seed : int
        How many masks, and from which seed.
    weights : ndarray, optional
        Weight of each user, Λ.

    Examples
    --------
    >>> R = np.array([[1.0, 1.0], [0.0, 2.0]])
    >>> mean, error = sampled_loss(np.zeros((2, 2)), R, lam=0.0, p=0.5, a=1.0, b=1.0)
    >>> mean, error
    (6.0, 0.0)
    """
    generator = np.random.default_rng(seed)
    user = np.ones(len(R)) if weights is None else weights
    values = np.empty(n_samples)
    for s in range(n_samples):
        kept = generator.random(R.shape) >= p
        emphasis = np.where(kept, b, a)
        values[s] = (user[:, None] * (emphasis * (R - (kept * R) @ W)) ** 2).sum()
    return float(values.mean() + lam * (W**2).sum()), float(values.std(ddof=1) / np.sqrt(n_samples))


def brute_force(
    S: Matrix, *, lam: float, p: float, a: float, b: float, zero_diagonal: bool = False, bound: float | None = None
) -> Matrix:
    """The minimiser column by column: n inverses of n × n matrices, O(n⁴).

    Parameters
    ----------
    S : ndarray, n × n
        Gram matrix.
    lam, p, a, b : float
        The paper's parameters. With b = 0 the diagonal is undetermined (eq. 13) and taken as zero.
    zero_diagonal : bool, default False
        Minimise subject to W_ii = 0 (eq. 15, with ridge), over the other entries.
    bound : float, optional
        Minimise subject to W_ii ≤ bound: where the free solution passes the bound, W_ii is fixed there.

    Returns
    -------
    ndarray, n × n

    Examples
    --------
    >>> S = np.array([[1.0, 1.0], [1.0, 2.0]])
    >>> brute_force(S, lam=1.0, p=0.0, a=1.0, b=1.0)
    array([[0.4, 0.2],
           [0.2, 0.6]])
    """
    n = len(S)
    W = np.zeros((n, n))
    for i in range(n):
        H, v = moments(S, i, p=p, a=a, b=b)
        H = H + lam * np.eye(n)
        others = np.arange(n) != i
        fixed = 0.0 if zero_diagonal or b == 0 else None
        if fixed is None:
            W[:, i] = np.linalg.inv(H) @ v
            if bound is not None and W[i, i] > bound:
                fixed = bound
        if fixed is not None:
            W[i, i] = fixed
            W[others, i] = np.linalg.inv(H[np.ix_(others, others)]) @ (v - fixed * H[:, i])[others]
    return W
