"""P = A⁻¹ with its safety net: what cannot be inverted is said before, what went wrong after."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from deql._system.progress import ProgressCallback
from deql.errors import InaccurateInverseError, NotPositiveDefiniteError
from deql.linalg.packed import PackedSymmetric

__all__ = [
    "LARGEST_RESIDUAL",
    "Symmetric",
    "check_diagonal",
    "check_inverse",
    "invert",
    "largest_residual",
    "probe",
    "sign_vectors",
]

LARGEST_RESIDUAL = 0.01
"""Largest accepted entry of |P·A·x − x| over random sign vectors x."""


class Symmetric(Protocol):
    """What the safety net needs of a matrix, wherever it lives."""

    @property
    def n(self) -> int:
        """Order of the matrix."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the numbers."""

    def diagonal(self) -> NDArray[np.float64]:
        """Copy of the diagonal."""

    def matvec(self, x: NDArray[Any]) -> NDArray[np.float64]:
        """Product with a few columns."""


def invert(
    matrix: PackedSymmetric,
    by: Callable[[PackedSymmetric, ProgressCallback | None], None],
    report: ProgressCallback | None = None,
) -> float:
    """Replace a packed matrix A by P = A⁻¹ and return how far P·A is from the identity.

    Before the cubic work the diagonal is checked. Afterwards P·(A·x) is compared with x for a few
    random sign vectors x, whose A·x was kept: two passes over the matrix, and the error that single
    precision made on an ill-conditioned matrix cannot go unseen.

    Parameters
    ----------
    matrix : PackedSymmetric
        Symmetric positive definite; overwritten.
    by : callable
        Does the work: called with the matrix and the report, it leaves the inverse in the matrix.
    report : callable, optional
        Called as ``report(done, total)`` as the work goes on.

    Returns
    -------
    float
        The largest residual seen.

    Raises
    ------
    NotPositiveDefiniteError
        With the columns at fault: all whose diagonal is not positive, before any work, or the first
        whose pivot is not positive.
    InaccurateInverseError
        If the residual is above ``LARGEST_RESIDUAL``.

    Examples
    --------
    >>> import numpy as np
    >>> from deql.linalg.packed import PackedSymmetric
    >>> from deql.linalg.invert import invert
    >>> a = PackedSymmetric.from_dense(np.diag([2.0, 4.0]), tile=2)
    >>> residual = invert(a, lambda matrix, report: matrix.data.put([0, 3], [0.5, 0.25]))
    >>> residual
    0.0
    """
    check_diagonal(matrix)
    images = probe(matrix)
    by(matrix, report)
    matrix.mirror_diagonal_tiles()
    return check_inverse(matrix, images)


def check_diagonal(matrix: Symmetric) -> None:
    """Raise NotPositiveDefiniteError with all columns whose diagonal entry is not positive."""
    diagonal = matrix.diagonal()
    # Written so that NaN counts as not positive too.
    bad = np.flatnonzero(~(diagonal > 0) | ~np.isfinite(diagonal))
    if bad.size:
        raise NotPositiveDefiniteError(
            f"{bad.size} of {matrix.n} diagonal entries are not positive, the first in column {bad[0]}",
            bad.tolist(),
        )


def probe(matrix: Symmetric) -> NDArray[np.float64]:
    """A·x of the random sign vectors x, as :func:`check_inverse` wants it.

    Examples
    --------
    >>> probe(PackedSymmetric(3, 2)).shape
    (3, 4)
    """
    return matrix.matvec(sign_vectors(matrix.n))


def check_inverse(matrix: Symmetric, images: NDArray[np.float64]) -> float:
    """The largest entry of |P·A·x − x|, given A·x; raise InaccurateInverseError if it is above ``LARGEST_RESIDUAL``."""
    residual = largest_residual(matrix, images, sign_vectors(matrix.n))
    if not residual <= LARGEST_RESIDUAL:
        raise InaccurateInverseError(
            f"the inverse is off by {residual:.1g} (at most {LARGEST_RESIDUAL} is accepted): "
            f"the matrix is too ill-conditioned for {matrix.dtype}"
        )
    return residual


def largest_residual(matrix: Symmetric, images: NDArray[np.float64], vectors: NDArray[np.float64]) -> float:
    """The largest entry of |P·A·x − x| over a few vectors x, given A·x.

    Examples
    --------
    >>> P = PackedSymmetric.from_dense(np.diag([0.5, 0.25]), tile=2)
    >>> largest_residual(P, np.array([[2.0], [4.5]]), np.ones((2, 1)))
    0.125
    """
    # Each image is scaled so that it is representable whatever the weights' size.
    scale = np.abs(images).max(axis=0)
    return float(np.abs(matrix.matvec(images / scale) * scale - vectors).max())


def sign_vectors(n: int) -> NDArray[np.float64]:
    """The same few vectors of ±1 before and after.

    Examples
    --------
    >>> sign_vectors(2).shape
    (2, 4)
    """
    return np.asarray(np.random.default_rng(0).integers(0, 2, (n, 4)) * 2 - 1, np.float64)
