"""The best weights of a given rank (Theorem D.1): dense for small n, by sparse products alone for large n.

With a = b every column has the same Σ_xx = (1−p)²·A, A = S + Γ, Γ = p/(1−p)·D + l2·I, and Σ_xy = (1−p)·S. Of all
W of rank k the best is

    W = B·(S·B)ᵀ / (1−p),    S²·B = A·B·Θ,    BᵀAB = I,

with the k largest θ: for Σ_xx = LLᵀ it is L⁻ᵀ[L⁻¹Σ_xy]_k, since L⁻¹Σ_xy has the left singular vectors LᵀB/(1−p)
and the singular values √θ. Its loss, ridge included, is tr(S) − Σθ.

No n × n array is needed to improve a B: subspace iteration takes it to A⁻¹S²B, where the products are sparse and
the solution of A·X = S²B starts from the last B, scaled. A few steps of conjugate gradients are then enough,
for whatever error is left counts squared: the loss of a W built on a B that is off by ε is off by ε².
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
from numba import njit
from numpy.typing import NDArray

from deql._system.progress import ProgressCallback
from deql._system.threads import even_bounds, run_slices, thread_count
from deql.errors import NotPositiveDefiniteError
from deql.linalg.sparse_product import GramOperator

__all__ = ["LowRank", "solve_dense", "solve_operators"]

Block = NDArray[np.float32]
Vector = NDArray[np.float64]

_ROWS = 2**14
"""Rows of a tall block that are worked on at once."""

_STEPS = 20
"""Steps of conjugate gradients between two rotations of B, at most."""

_REDUCTION = 0.03
"""What the square of their residual is to come down to: a rotation gains no more by a better solution."""

_REFILLS = 5
"""Iterations in which directions that were lost are replaced by others."""

_SPARE = 16
"""Vectors carried beside those asked for, so that the last ones settle sooner."""


@dataclass(frozen=True)
class LowRank:
    """B and S·B of the best weights of some rank, and how good they are.

    Attributes
    ----------
    basis, image : ndarray, n × rank
        B and S·B, the largest θ first.
    captured : ndarray of float64
        θ, what each direction takes off the loss.
    loss : float
        tr(S) − Σθ, the expected loss with its ridge.
    iterations : int
        Rotations of B; 0 if it was found directly.
    settled : bool
        Whether the loss came as close to the smallest as was asked for.
    """

    basis: NDArray[np.floating]
    image: NDArray[np.floating]
    captured: Vector
    loss: float
    iterations: int
    settled: bool


def solve_dense(S: Vector, added: Vector, rank: int) -> LowRank:
    """By a Cholesky factor of A and the leading eigenvectors of MMᵀ, M = L⁻¹S: O(n³), in float64.

    Parameters
    ----------
    S : ndarray, n × n
        Gram matrix.
    added : ndarray
        The diagonal of Γ.
    rank : int
        From 1 to n.

    Examples
    --------
    >>> found = solve_dense(np.diag([3.0, 2.0]), np.ones(2), 1)
    >>> found.loss, found.captured
    (2.75, array([2.25]))
    """
    n = len(S)
    A = S.copy()
    A.flat[:: n + 1] += added
    try:
        L = scipy.linalg.cholesky(A, lower=True, overwrite_a=True)
    except np.linalg.LinAlgError as error:
        pivot = int(re.findall(r"\d+", str(error))[0]) - 1
        raise NotPositiveDefiniteError(f"A is singular at item {pivot}", [pivot]) from None
    M = scipy.linalg.solve_triangular(L, S, lower=True)
    theta, U = scipy.linalg.eigh(M @ M.T, subset_by_index=[n - rank, n - 1], overwrite_a=True)
    theta, U = np.maximum(theta[::-1], 0.0), U[:, ::-1]
    basis = scipy.linalg.solve_triangular(L, U, lower=True, trans="T")
    return LowRank(basis, S @ basis, theta, float(np.trace(S) - theta.sum()), 0, True)


def solve_operators(
    S: GramOperator,
    diagonal: Vector,
    added: Vector,
    rank: int,
    *,
    tolerance: float = 1e-4,
    max_iterations: int = 100,
    seed: int = 0,
    report: ProgressCallback | None = None,
) -> LowRank:
    """By subspace iteration on A⁻¹S²: sparse products and blocks of n × rank numbers, in float32.

    Parameters
    ----------
    S : GramOperator
    diagonal, added : ndarray
        D and the diagonal of Γ.
    rank : int
        From 1 to n.
    tolerance : float
        Stop when what further iterations can take off the loss is, by their trend, less than this share of it.
    max_iterations : int
        Stop at the latest then.
    seed : int
        Of the first B.
    report : callable, optional
        Called as ``report(done, total)``.

    Examples
    --------
    >>> R = csr_array(np.random.default_rng(0).random((30, 9)))
    >>> D = (R.toarray() ** 2).sum(axis=0)
    >>> found = solve_operators(GramOperator(R), D, np.ones(9), 3, tolerance=1e-9)
    >>> exact = solve_dense((R.T @ R).toarray(), np.ones(9), 3)
    >>> abs(found.loss / exact.loss - 1) < 1e-5
    True
    """
    width = min(rank + max(_SPARE, rank // 16), S.n)
    shift, inverse = added.astype(np.float32)[:, None], (1.0 / (diagonal + added)).astype(np.float32)[:, None]
    generator = np.random.default_rng(seed)
    B, Z = np.empty((S.n, width), np.float32), np.empty((S.n, width), np.float32)
    _refill(S, B, Z, slice(0, width), generator, inverse)
    total = float(diagonal.sum())
    theta = _rotate(B, Z, added)
    losses = [total - theta[:rank].sum()]
    iteration, left = 0, np.inf
    # The trend flatters: a third of what may be left is what it says as a rule.
    while iteration < max_iterations and left > tolerance / 3 * losses[-1]:
        for part in S.chunks(width):
            _conjugate_gradient(S, B, Z, part, theta[part], float(theta[0]), shift, inverse)
        theta = _rotate(B, Z, added)
        alive = int(np.count_nonzero(theta))
        if alive < min(width, S.users) and iteration < _REFILLS:
            _refill(S, B, Z, slice(alive, width), generator, inverse)
            theta = _rotate(B, Z, added)
        losses.append(total - theta[:rank].sum())
        iteration += 1
        left = _expected_gain(losses)
        if report is not None:
            report(iteration, max_iterations)
    for part in S.chunks(width):  # what was carried along has drifted by some roundings
        Z[:, part] = S @ B[:, part]
    theta = _rotate(B, Z, added)[:rank]
    settled = bool(left <= tolerance / 3 * losses[-1])
    B, Z = np.ascontiguousarray(B[:, :rank]), np.ascontiguousarray(Z[:, :rank])
    return LowRank(B, Z, theta, float(total - theta.sum()), iteration, settled)


def _refill(
    S: GramOperator, B: Block, Z: Block, columns: slice, generator: np.random.Generator, inverse: Block
) -> None:
    """Put random vectors into some columns of B, and their images into Z.

    Not multiplied by S yet: where its spectrum is wide, images are nearly parallel, and directions would be lost.
    """
    root = np.sqrt(inverse)
    for part in S.chunks(columns.stop - columns.start):
        place = slice(columns.start + part.start, columns.start + part.stop)
        B[:, place] = root * generator.standard_normal((S.n, part.stop - part.start), dtype=np.float32)
        Z[:, place] = S @ B[:, place]


def _conjugate_gradient(
    S: GramOperator, B: Block, Z: Block, part: slice, theta: Vector, largest: float, shift: Block, inverse: Block
) -> None:
    """Some steps towards A·X = S²B/θ from X = B, in place, with Z = S·X kept along."""
    X, image = np.ascontiguousarray(B[:, part]), np.ascontiguousarray(Z[:, part])
    worth = theta > 1e-10 * largest  # below, rounding alone; such a column stays as it is
    scale = np.zeros(len(theta), np.float32)
    np.divide(1.0, theta, out=scale, where=worth, casting="unsafe")
    residual = S @ image
    residual *= scale
    residual -= image
    residual -= shift * X
    residual *= worth
    slices = even_bounds(S.n, 4 * thread_count())
    bounds = np.array(slices)  # by which a slice finds its own sums
    sums = np.zeros((len(slices) - 1, len(theta)))

    def summed(kernel: Any, *arguments: Any) -> Vector:
        sums[:] = 0.0
        run_slices(kernel, slices, bounds, *arguments, sums)
        return np.asarray(sums.sum(axis=0))

    direction, moved, still = np.zeros_like(X), np.zeros_like(X), np.zeros(len(theta), np.float32)
    size = summed(_cg_step, shift, inverse, still, direction, moved, X, image, residual)
    run_slices(_cg_direction, slices, inverse, still, residual, direction)
    goal = _REDUCTION * size.sum()
    for _ in range(_STEPS):
        moved = S @ direction
        step = _ratio(size, summed(_curvature, shift, direction, moved))
        before, size = size, summed(_cg_step, shift, inverse, step, direction, moved, X, image, residual)
        if size.sum() <= goal:
            break
        run_slices(_cg_direction, slices, inverse, _ratio(size, before), residual, direction)
    B[:, part], Z[:, part] = X, image


@njit(cache=True, nogil=True)
def _curvature(first, last, bounds, shift, direction, moved, sums):  # type: ignore[no-untyped-def]
    # dᵀAd of each column, where S·d is ``moved``.
    into = sums[np.searchsorted(bounds, first)]
    for i in range(first, last):
        for c in range(direction.shape[1]):
            d = direction[i, c]
            into[c] += d * (moved[i, c] + shift[i, 0] * d)


@njit(cache=True, nogil=True)
def _cg_step(  # type: ignore[no-untyped-def]
    first, last, bounds, shift, inverse, step, direction, moved, X, image, residual, sums
):
    # A step of each column, and the square of its residual, conditioned.
    into = sums[np.searchsorted(bounds, first)]
    for i in range(first, last):
        for c in range(X.shape[1]):
            d, m = step[c] * direction[i, c], step[c] * moved[i, c]
            X[i, c] += d
            image[i, c] += m
            r = residual[i, c] - (m + shift[i, 0] * d)
            residual[i, c] = r
            into[c] += r * r * inverse[i, 0]


@njit(cache=True, nogil=True)
def _cg_direction(first, last, inverse, ratio, residual, direction):  # type: ignore[no-untyped-def]
    # The next direction: the conditioned residual, and as much of the last one as keeps them conjugate.
    for i in range(first, last):
        for c in range(direction.shape[1]):
            direction[i, c] = inverse[i, 0] * residual[i, c] + ratio[c] * direction[i, c]


def _rotate(B: Block, Z: Block, added: Vector) -> Vector:
    """Make BᵀAB = I and ZᵀZ = Θ by a rotation of both, in place; returns θ, the largest first."""
    width = B.shape[1]
    in_a, in_s = _inner_products(B, Z, added.astype(np.float32)[:, None])
    # Columns of nearly the same length first: what B has of a direction twice is then told by small eigenvalues.
    length = np.sqrt(np.maximum(np.diag(in_a), np.finfo(np.float32).tiny))
    values, vectors = scipy.linalg.eigh(in_a / np.outer(length, length))
    good = values > 1e-6 * values[-1]
    onto = vectors[:, good] / np.sqrt(values[good])
    theta, turn = scipy.linalg.eigh(onto.T @ (in_s / np.outer(length, length)) @ onto)
    rotation = np.zeros((width, width), np.float32)
    rotation[:, : good.sum()] = (onto @ turn[:, ::-1]) / length[:, None]
    for start in range(0, len(B), _ROWS):
        rows = slice(start, start + _ROWS)
        B[rows], Z[rows] = B[rows] @ rotation, Z[rows] @ rotation
    full = np.zeros(width)
    full[: good.sum()] = np.maximum(theta[::-1], 0.0)
    return full


def _inner_products(B: Block, Z: Block, added: Block) -> tuple[Vector, Vector]:
    """BᵀAB and ZᵀZ, symmetric.

    Of columns of length 1, so that single precision is that of each product and not of the largest; blocks of rows are
    added up in double precision.
    """
    blocks = [slice(start, start + _ROWS) for start in range(0, len(B), _ROWS)]
    squares = np.zeros((3, B.shape[1]))
    for rows in blocks:
        for k, block in enumerate((B[rows], Z[rows] + added[rows] * B[rows], Z[rows])):
            squares[k] += np.einsum("ij,ij->j", block, block)
    lengths = np.sqrt(np.maximum(squares, np.finfo(np.float32).tiny))
    units = (1.0 / lengths).astype(np.float32)
    in_a, in_s = np.zeros((2, B.shape[1], B.shape[1]))
    for rows in blocks:
        in_a += (B[rows] * units[0]).T @ ((Z[rows] + added[rows] * B[rows]) * units[1])
        image = Z[rows] * units[2]
        in_s += image.T @ image
    in_a *= np.outer(lengths[0], lengths[1])
    in_s *= np.outer(lengths[2], lengths[2])
    return (in_a + in_a.T) / 2, in_s


def _expected_gain(losses: list[float]) -> float:
    """What a geometric trend of the last gains adds up to."""
    if len(losses) < 3:
        return np.inf
    before, last = losses[-3] - losses[-2], losses[-2] - losses[-1]
    if last <= 0:
        return 0.0
    trend = min(last / before, 0.95) if before > 0 else 0.95
    return last * trend / (1 - trend)


def _ratio(above: Vector, below: Vector) -> Block:
    ratio = np.zeros(len(above), np.float32)
    return np.divide(above, below, out=ratio, where=below > 0, casting="unsafe")
