"""Leading eigenvectors of BᵀB, where B is a sparse matrix: users × items, scaled.

Exact for few users or items, by subspace iteration (:mod:`deql.linalg.subspace_iteration`) for many. The solvers
of SciPy were measured beside it (benchmarks/eigenvectors.py): for 512 vectors of 40,981 items ARPACK takes ten times as
long, LOBPCG and PROPACK more.

Seeded, and every task the same whatever the number of threads: so are the vectors. Each has the sign that makes its
largest entry positive. Of eigenvalues that are tied where the last vector is cut off, the solver takes some, the
same each time.
"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.sparse import csr_array

from deql._system.callers import levels_to_the_caller
from deql._system.machine import check_fits, free_memory
from deql._system.progress import ProgressCallback
from deql._system.threads import blas_limited, even_bounds, interruptible, run_slices, thread_count
from deql.errors import DeviceError
from deql.linalg.sparse_product import GramOperator
from deql.linalg.subspace_iteration import CLOSE, block_width, leading_subspace
from deql.linalg.tall_blocks import inner_products, turn

__all__ = ["Eigenvectors", "leading_eigenvectors"]

Block = NDArray[np.float32]
Vector = NDArray[np.float64]

_DENSE = 2000
"""Up to so many users or items the dense solution takes a second or so."""

_NOTHING = {"dense": 1e-10, "blocks": 1e-5}
"""Eigenvalues below this share of the largest are rounding errors of zero, in float64 and in float32."""

_TIED = 1e-3
"""Eigenvalues that differ by less than this share of the largest are all but tied: any of their vectors will do."""

_ROWS = 2**14
"""Rows of a tall block that are looked at at once."""


class Eigenvectors(NamedTuple):
    """Eigenvalues, the largest first, and their eigenvectors as columns.

    Attributes
    ----------
    values : ndarray of float64
    vectors : ndarray of float32, n × k
    distance : float
        About how far VVᵀ is from the true projector: ‖VVᵀ − V*V*ᵀ‖_F/√(2k); 0 if found directly.
    rounds : int
        Of the subspace iteration; 0 if found directly.
    """

    values: Vector
    vectors: Block
    distance: float
    rounds: int


def leading_eigenvectors(
    half: csr_array,
    rank: int,
    *,
    close: float = CLOSE,
    device: str | None = None,
    report: ProgressCallback | None = None,
) -> Eigenvectors:
    """The leading eigenvectors of G = BᵀB, or as many as G has eigenvalues above zero.

    A warning says so where they are not as close as they should be, or where a device had too little memory.

    Parameters
    ----------
    half : csr_array
        B, m × n.
    rank : int
        From 1 to n.
    close : float
        Distance from the true projector at which the subspace iteration ends.
    device : str, optional
        Such as ``"cuda"``: where many vectors of many items are computed by torch; in memory if not given, or if it has
        no room.
    report : callable, optional
        Called as ``report(done, total)``.

    Examples
    --------
    >>> found = leading_eigenvectors(csr_array([[2.0, 0.0, 0.0], [0.0, 1.0, 1.0]]), 2)
    >>> found.values.round(6), np.abs(found.vectors).round(3)
    (array([4., 2.]), array([[1.   , 0.   ],
           [0.   , 0.707],
           [0.   , 0.707]], dtype=float32))
    """
    users, n = half.shape
    few, width = min(users, n), block_width(rank)
    if few <= _DENSE or 2 * width > few:
        check_fits(f"rank {rank:,} of {n:,} items", 40 * few**2 + 12 * n * rank, free_memory(), "choose a lower rank")
        return _dense(half, rank)
    found = None
    if device is not None:
        from deql.linalg.engines.torch_eigenvectors import leading_on_device
        from deql.linalg.engines.torch_packed import open_device

        open_device(device)  # that it is not there is an error
        try:
            found = leading_on_device((half.indptr, half.indices, half.data), n, rank, device, close, report)
        except DeviceError as error:
            warnings.warn(f"{error}; eigenvectors are computed in memory instead", stacklevel=levels_to_the_caller())
    if found is None:
        # X, its image, the one before and the next, and what users have of them on the way.
        needed = 4 * width * (4 * n + users)
        check_fits(f"rank {rank:,} of {n:,} items", needed, free_memory(), "choose a lower rank")
        with blas_limited(1):
            found = leading_subspace(_HostBlocks(half), rank, close=close, report=report)
    values, vectors, distance, rounds = found
    if distance > close and values[rank - 1] - values[-1] > _TIED * values[0]:
        warnings.warn(
            f"after {rounds} rounds the {rank:,} leading eigenvectors are {distance:.2g} away from the true ones, not "
            f"{close:g}: the eigenvalues lie close together, so choose another rank",
            stacklevel=levels_to_the_caller(),
        )
    return Eigenvectors(*_above_zero(values[:rank], vectors[:, :rank], "blocks"), distance, rounds)


def _dense(half: csr_array, rank: int) -> Eigenvectors:
    """By all inner products of the users, or of the items if they are fewer: BBᵀ·u = θ·u gives BᵀB·(Bᵀu) = θ·(Bᵀu)."""
    half = csr_array(half.astype(np.float64))
    by_user = half.shape[0] < half.shape[1]
    square = (half @ half.T if by_user else half.T @ half).toarray()
    with blas_limited(1):
        values, vectors = interruptible(np.linalg.eigh, square)
    values, vectors = values[::-1][:rank], vectors[:, ::-1][:, :rank]
    if by_user:
        vectors = half.T @ (vectors / np.sqrt(np.maximum(values, np.finfo(np.float32).tiny)))
    return Eigenvectors(*_above_zero(values, vectors, "dense"), 0.0, 0)


def _above_zero(values: Vector, vectors: NDArray[Any], solver: str) -> tuple[Vector, Block]:
    """What belongs to eigenvalues above zero, each vector with the sign that makes its largest entry positive."""
    some = int(np.count_nonzero(values > max(_NOTHING[solver] * values[0], 0.0)))
    vectors = vectors[:, :some]
    largest = vectors[np.abs(vectors).argmax(axis=0), np.arange(some)]
    return values[:some].copy(), np.ascontiguousarray(vectors * np.where(largest < 0, -1, 1), dtype=np.float32)


class _HostBlocks:
    """Blocks of float32 in memory."""

    def __init__(self, half: csr_array) -> None:
        self._G = GramOperator(half)

    def start(self, width: int, seed: int) -> Block:
        return np.random.default_rng(seed).standard_normal((self._G.n, width), dtype=np.float32)

    def apply(self, X: Block) -> Block:
        return self._G @ X

    def combine(self, image: Block, current: Block, previous: Block, a: float, b: float) -> None:
        run_slices(
            _combine,
            even_bounds(len(image), 4 * thread_count()),
            image,
            current,
            previous,
            np.float32(a),
            np.float32(b),
        )

    def copy(self, X: Block) -> Block:
        return X.copy()

    def inner(self, X: Block, Y: Block) -> Vector:
        return inner_products(X, Y)

    def turn(self, X: Block, rotation: Vector) -> Block:
        turn(X, rotation)
        return X

    def residuals(self, X: Block, image: Block, values: Vector) -> Vector:
        squares, single = np.zeros(len(values)), values.astype(np.float32)
        for start in range(0, len(X), _ROWS):
            left = image[start : start + _ROWS] - X[start : start + _ROWS] * single
            squares += np.einsum("ij,ij->j", left, left)
        return np.sqrt(squares)

    def eigh(self, matrix: Vector) -> tuple[Vector, Vector]:
        values, vectors = interruptible(np.linalg.eigh, matrix)
        return values, vectors


@njit(cache=True, nogil=True)
def _combine(first, last, image, current, previous, a, b):  # type: ignore[no-untyped-def]
    for i in range(first, last):
        for c in range(image.shape[1]):
            previous[i, c] = a * image[i, c] + b * current[i, c] - previous[i, c]
