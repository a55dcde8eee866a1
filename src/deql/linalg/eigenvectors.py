"""Leading eigenvectors of BᵀB, where B is a sparse matrix: users × items, scaled."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.linalg import LinearOperator, eigsh

__all__ = ["Eigenvectors", "leading_eigenvectors"]

_DENSE_ITEMS = 2000
"""Up to so many items the dense solution takes a second or so."""

_NOTHING = 1e-10
"""Eigenvalues below this share of the largest are rounding errors of zero."""


class Eigenvectors(NamedTuple):
    """Eigenvalues, the largest first, and their eigenvectors as columns.

    Attributes
    ----------
    values : ndarray of float64
    vectors : ndarray of float32, n × k
    """

    values: NDArray[np.float64]
    vectors: NDArray[np.float32]


def leading_eigenvectors(half: csr_array, rank: int) -> Eigenvectors:
    """The leading eigenvectors of G = BᵀB, or as many as G has eigenvalues above zero.

    Parameters
    ----------
    half : csr_array
        B, m × n.
    rank : int
        From 1 to n.

    Examples
    --------
    >>> found = leading_eigenvectors(csr_array([[2.0, 0.0, 0.0], [0.0, 1.0, 1.0]]), 2)
    >>> found.values.round(6), found.vectors.round(3)
    (array([4., 2.]), array([[1.   , 0.   ],
           [0.   , 0.707],
           [0.   , 0.707]], dtype=float32))
    """
    n = half.shape[1]
    half = csr_array(half.astype(np.float64))
    if n <= _DENSE_ITEMS or rank >= n // 2:
        values, vectors = scipy.linalg.eigh((half.T @ half).toarray(), subset_by_index=[n - rank, n - 1])
    else:
        back = csr_array(half.T)
        G = LinearOperator((n, n), matvec=lambda x: back @ (half @ x), dtype=np.float64)
        values, vectors = eigsh(G, rank, v0=np.random.default_rng(0).standard_normal(n), tol=1e-5)
    values, vectors = values[::-1], vectors[:, ::-1]
    some = values > _NOTHING * values[0]
    return Eigenvectors(np.ascontiguousarray(values[some]), _signed(vectors[:, some]))


def _signed(vectors: NDArray[np.float64]) -> NDArray[np.float32]:
    """The same directions, each with the sign that makes its largest entry positive."""
    largest = vectors[np.abs(vectors).argmax(axis=0), np.arange(vectors.shape[1])]
    return np.ascontiguousarray(vectors * np.sign(largest), dtype=np.float32)
