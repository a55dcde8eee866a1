"""The leading eigenvectors of a symmetric positive semidefinite G, by subspace iteration with Chebyshev filters.

A block X of a few more vectors than are asked for goes through rounds of

    X ← T(G)·X    T a Chebyshev polynomial that is at most 1 on [0, a] and grows fast above,
    X ← X·Q       Rayleigh-Ritz: Q solves (XᵀGX)·q = θ·(XᵀX)·q, the largest θ first,

with a the smallest θ of the last round. G is only multiplied by. What there is of it, and where the blocks lie, is the
business of :class:`Blocks`: float32 in memory, or on a device. The small matrices are float64.

**What counts as converged.** A residual r_j = ‖G·x_j − θ_j·x_j‖ turns x_j out of the leading subspace by an angle of
about r_j/(θ_j − a), for what is left outside of the block is below a. The mean square of these angles is the squared
distance ‖XXᵀ − VVᵀ‖²_F/(2k) from the true projector; the rounds end when its root is below 0.01.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from deql._system.progress import ProgressCallback

__all__ = ["CLOSE", "Blocks", "Subspace", "block_width", "leading_subspace"]

Vector = NDArray[np.float64]

CLOSE = 0.01
"""Distance from the true projector at which the rounds end."""

_ROUNDS = 30
"""At most: where eigenvalues lie so densely that it takes more, those at the cut are all but tied."""

_GROWTH = 1e5
"""What a filter may blow the first eigenvector up by, of which the others have some rounding errors."""

_STEEPEST = 8
"""Degree of a filter, at most."""

_FLOOR = 1e-3
"""The least a, as a share of the largest eigenvalue: for below it one step may blow up by more than that."""

_ROUNDING = 1e-5
"""Residuals below this share of the largest eigenvalue are rounding errors."""


class Blocks(Protocol):
    """Blocks of vectors, n × width, and what is done to them; X and the others are arrays or tensors."""

    def start(self, width: int, seed: int) -> Any:
        """Random numbers."""

    def apply(self, X: Any) -> Any:
        """G·X, a new block."""

    def combine(self, image: Any, current: Any, previous: Any, a: float, b: float) -> None:
        """previous ← a·image + b·current − previous, in place."""

    def copy(self, X: Any) -> Any:
        """X once more."""

    def inner(self, X: Any, Y: Any) -> Vector:
        """XᵀY, which is symmetric."""

    def turn(self, X: Any, rotation: Vector) -> Any:
        """X·rotation; X may be lost."""

    def residuals(self, X: Any, image: Any, values: Vector) -> Vector:
        """‖image_j − values_j·X_j‖ of each column."""

    def eigh(self, matrix: Vector) -> tuple[Vector, Vector]:
        """Eigenvalues, the smallest first, and eigenvectors."""


class Subspace(NamedTuple):
    """Ritz values and vectors.

    Attributes
    ----------
    values : ndarray of float64
        The largest first.
    vectors : array or tensor, n × width
        More than were asked for.
    distance : float
        About ‖XXᵀ − VVᵀ‖_F/√(2k).
    rounds : int
    """

    values: Vector
    vectors: Any
    distance: float
    rounds: int


def block_width(rank: int) -> int:
    """How many vectors are worked on: the more, the fewer rounds.

    Examples
    --------
    >>> block_width(512)
    576
    """
    return rank + max(32, rank // 8)


def leading_subspace(
    blocks: Blocks, rank: int, *, seed: int = 0, close: float = CLOSE, report: ProgressCallback | None = None
) -> Subspace:
    """The leading eigenvectors of G, and some more that are less exact.

    Parameters
    ----------
    blocks : Blocks
        At least ``block_width(rank)`` rows.
    rank : int
        How many are to be exact.
    seed : int
        Of the first block.
    close : float
        Distance from the true projector at which the rounds end.
    report : callable, optional
        Called as ``report(done, total)``.
    """
    X = blocks.start(block_width(rank), seed)
    furthest = 0
    for number in range(1, _ROUNDS + 1):
        image = blocks.apply(X)
        values, rotation = _ritz(blocks, blocks.inner(X, image), blocks.inner(X, X))
        X, image = blocks.turn(X, rotation), blocks.turn(image, rotation)
        distance = _distance(blocks.residuals(X, image, values), values, rank)
        if report is not None:
            furthest = max(furthest, int(100 * np.log(max(distance, close)) / np.log(close)))
            report(furthest, 100)
        if distance <= close or number == _ROUNDS:
            break
        cut = max(float(values[-1]), _FLOOR * float(values[0]))
        # The first block is random: how large the largest eigenvalue is, it does not know yet.
        X = _filtered(blocks, X, image, cut, 1 if number == 1 else _degree(cut, float(values[0])))
    if report is not None:
        report(100, 100)
    return Subspace(values, X, distance, number)


def _filtered(blocks: Blocks, X: Any, image: Any, cut: float, degree: int) -> Any:
    """T(G)·X, T the Chebyshev polynomial on [0, cut], by its recurrence; X and its image are lost."""
    step = 2.0 / cut
    current = blocks.copy(X)
    blocks.combine(image, X, current, step, 0.0)
    for _ in range(degree - 1):
        blocks.combine(blocks.apply(current), current, X, 2.0 * step, -2.0)
        X, current = current, X
    return current


def _degree(cut: float, largest: float) -> int:
    """The degree whose polynomial grows to the limit at the largest eigenvalue."""
    rate = np.arccosh(max(2.0 * largest / cut - 1.0, 1.0))
    return int(np.clip(np.arccosh(_GROWTH) / max(rate, 1e-9), 1, _STEEPEST))


def _ritz(blocks: Blocks, products: Vector, lengths: Vector) -> tuple[Vector, Vector]:
    """Solve (XᵀGX)·Q = (XᵀX)·Q·diag(θ), QᵀXᵀXQ = I, the largest θ first."""
    # Of columns of length 1, so that what X has of a direction twice is told by small pivots.
    unit = 1.0 / np.sqrt(np.maximum(np.diag(lengths), np.finfo(np.float32).tiny))
    lengths = lengths * np.outer(unit, unit)
    try:
        onto = np.linalg.inv(np.linalg.cholesky(lengths)).T
    except np.linalg.LinAlgError:  # twice indeed: the next filter finds others in the roundings
        sizes, directions = blocks.eigh(lengths)
        onto = directions / np.sqrt(np.maximum(sizes, 1e-6 * sizes[-1]))
    onto *= unit[:, None]
    values, turned = blocks.eigh(onto.T @ products @ onto)
    return values[::-1], onto @ turned[:, ::-1]


def _distance(residuals: Vector, values: Vector, rank: int) -> float:
    left = np.where(residuals <= _ROUNDING * values[0], 0.0, residuals)[:rank]
    gap = np.maximum(values[:rank] - values[-1], np.finfo(np.float32).tiny)
    return float(np.sqrt(np.mean(np.minimum(left / gap, 1.0) ** 2)))
