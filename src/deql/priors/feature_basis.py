"""EASE on the features of items, as a thin factor: no n × n inverse."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.sparse import csr_array

__all__ = ["RANK", "ridge_basis"]

RANK = 1024
"""Directions of the features that are kept: the leading ones, where there are more."""


def ridge_basis(features: csr_array, l2: float, rank: int = RANK) -> NDArray[np.float32]:
    """B with B·Bᵀ = (λ·I + FᵀF)⁻¹ on the leading right singular vectors of F: d × at most ``rank``.

    λ is ``l2`` times the mean of diag(FᵀF) over the features that any item has, so that it means the same for ten
    items and for a million. The smaller of FᵀF and F·Fᵀ is decomposed.

    Parameters
    ----------
    features : csr_array, n × d
        F, the items to learn from.
    l2 : float
        Above 0.
    rank : int, default 1,024

    Examples
    --------
    >>> F = csr_array(np.array([[1.0, 0.0], [0.0, 2.0], [1.0, 2.0]]))
    >>> B = ridge_basis(F, l2=1.0)
    >>> np.allclose(B @ B.T, np.linalg.inv((F.T @ F).toarray() + 5.0 * np.eye(2)))
    True
    """
    exact = features.astype(np.float64)
    energy = np.asarray(exact.multiply(exact).sum(axis=0)).ravel()
    ridge = l2 * float(energy.sum()) / max(1, np.count_nonzero(energy))
    n, d = exact.shape
    products = (exact.T @ exact if d <= n else exact @ exact.T).toarray()
    size = len(products)
    kept = min(rank, size)
    values, vectors = eigh(products, subset_by_index=(size - kept, size - 1), overwrite_a=True, check_finite=False)
    above = values > values[-1] * size * np.finfo(np.float64).eps  # beyond what rounding leaves of a zero
    values, vectors = values[above][::-1], vectors[:, above][:, ::-1]
    if d > n:  # right singular vectors from left ones
        vectors = exact.T @ (vectors / np.sqrt(values))
    basis: NDArray[np.float32] = (vectors / np.sqrt(values + ridge)).astype(np.float32)
    return basis
