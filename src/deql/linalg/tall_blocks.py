"""Products of tall blocks of vectors, n × a few hundred numbers of float32, in threads.

Each task does the same whatever the number of threads, so that results do not depend on it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from deql._system.threads import blas_limited, run_slices
from deql.linalg.blas import gemm
from deql.linalg.packed import mirror_lower

__all__ = ["inner_products", "turn"]

_ROWS = 4096
"""Rows that are multiplied at once; their sums are added up in double precision."""

_STRIP = 64
"""Columns of inner products that are one task."""


def inner_products(X: NDArray[np.float32], Y: NDArray[np.float32]) -> NDArray[np.float64]:
    """XᵀY, where it is known to be symmetric: its lower half is computed, and mirrored.

    Examples
    --------
    >>> X = np.array([[1.0, 2.0], [0.0, 1.0]], np.float32)
    >>> inner_products(X, X)
    array([[1., 2.],
           [2., 5.]])
    """
    n, width = X.shape
    products = np.empty((width, width))

    def strip(first: int, last: int) -> None:
        sums, part = np.zeros((width - first, last - first)), np.empty((width - first, last - first), np.float32)
        for start in range(0, n, _ROWS):
            rows = slice(start, start + _ROWS)
            gemm(1.0, X[rows, first:].T, Y[rows, first:last], 0.0, part)
            sums += part
        products[first:, first:last] = sums

    with blas_limited(1):
        run_slices(strip, _bounds(width, _STRIP))
    mirror_lower(products)
    return products


def turn(X: NDArray[np.float32], rotation: NDArray[np.float64]) -> None:
    """X ← X·rotation, in place.

    Examples
    --------
    >>> X = np.array([[1.0, 2.0], [0.0, 1.0]], np.float32)
    >>> turn(X, np.array([[0.0, 1.0], [1.0, 0.0]]))
    >>> X
    array([[2., 1.],
           [1., 0.]], dtype=float32)
    """
    single = rotation.astype(np.float32)

    def rows(first: int, last: int) -> None:
        product = np.empty((last - first, X.shape[1]), np.float32)
        gemm(1.0, X[first:last], single, 0.0, product)
        X[first:last] = product

    with blas_limited(1):
        run_slices(rows, _bounds(len(X), _ROWS))


def _bounds(count: int, step: int) -> list[int]:
    return [*range(0, count, step), count]
