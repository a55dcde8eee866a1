"""EASE on the features of items, as a thin factor: no n × n inverse."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from deql._system.progress import ProgressCallback
from deql.linalg.eigenvectors import leading_eigenvectors

__all__ = ["RANK", "ridge_basis"]

RANK = 1024
"""Directions of the features that are kept: the leading ones, where there are more."""


def ridge_basis(
    features: csr_array,
    l2: float,
    rank: int = RANK,
    *,
    device: str | None = None,
    report: ProgressCallback | None = None,
) -> NDArray[np.float32]:
    """B with B·Bᵀ = (λ·I + FᵀF)⁻¹ on the leading right singular vectors of F: d × at most ``rank``.

    λ is ``l2`` times the mean of diag(FᵀF) over the features that any item has, so that it means the same for ten
    items and for a million.

    Parameters
    ----------
    features : csr_array, n × d
        F, the items to learn from.
    l2 : float
        Above 0.
    rank : int, default 1,024
    device, report
        See :func:`~deql.linalg.eigenvectors.leading_eigenvectors`.

    Examples
    --------
    >>> F = csr_array(np.array([[1.0, 0.0], [0.0, 2.0], [1.0, 2.0]]))
    >>> B = ridge_basis(F, l2=1.0)
    >>> np.allclose(B @ B.T, np.linalg.inv((F.T @ F).toarray() + 5.0 * np.eye(2)))
    True
    """
    found = leading_eigenvectors(features, min(rank, *features.shape), device=device, report=report)
    energy = np.asarray(features.multiply(features).sum(axis=0, dtype=np.float64)).ravel()
    ridge = l2 * float(energy.sum()) / max(1, int(np.count_nonzero(energy)))
    return np.asarray(found.vectors / np.sqrt(found.values + ridge).astype(np.float32))
