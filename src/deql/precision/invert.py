"""P = A⁻¹ with its safety net: what cannot be inverted is said before, what went wrong after."""

from __future__ import annotations

import numpy as np
from threadpoolctl import threadpool_limits

from deql.errors import NotPositiveDefiniteError, PrecisionError
from deql.parallel import thread_count
from deql.precision.packed import PackedSymmetric
from deql.precision.sweep import sweep
from deql.progress import Report

__all__ = ["LARGEST_RESIDUAL", "invert"]

LARGEST_RESIDUAL = 0.01
"""Largest accepted entry of |P·A·x − x| over random sign vectors x."""


def invert(matrix: PackedSymmetric, report: Report | None = None) -> float:
    """Replace a packed matrix A by P = A⁻¹ and return how far P·A is from the identity.

    Before the cubic work the diagonal is checked. Afterwards P·(A·x) is compared with x for a few
    random sign vectors x, whose A·x was kept: two passes over the matrix, and the error that single
    precision made on an ill-conditioned matrix cannot go unseen.

    Parameters
    ----------
    matrix : PackedSymmetric
        Symmetric positive definite; overwritten.
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
    PrecisionError
        If the residual is above ``LARGEST_RESIDUAL``.

    Examples
    --------
    >>> import numpy as np
    >>> from deql.precision import PackedSymmetric, invert
    >>> a = PackedSymmetric.from_dense(np.diag([2.0, 4.0]), tile=2)
    >>> residual = invert(a)
    >>> a.to_dense()
    array([[0.5 , 0.  ],
           [0.  , 0.25]])
    """
    diagonal = matrix.diagonal()
    # Written so that NaN counts as not positive too.
    bad = np.flatnonzero(~(diagonal > 0) | ~np.isfinite(diagonal))
    if bad.size:
        raise NotPositiveDefiniteError(
            f"{bad.size} of {matrix.n} diagonal entries are not positive, the first in column {bad[0]}",
            bad.tolist(),
        )
    signs = np.random.default_rng(0).integers(0, 2, (matrix.n, 4)).astype(matrix.dtype) * 2 - 1
    image = matrix.matvec(signs)
    with threadpool_limits(thread_count(), user_api="blas"):
        sweep(matrix, report)
    # Each probe is scaled so that its image is representable whatever the weights' size.
    scale = np.abs(image).max(axis=0)
    back = matrix.matvec(image / scale) * scale
    residual = float(np.abs(back - signs).max())
    if not residual <= LARGEST_RESIDUAL:
        raise PrecisionError(
            f"the inverse is off by {residual:.1g} (at most {LARGEST_RESIDUAL} is accepted): "
            f"the matrix is too ill-conditioned for {matrix.dtype}"
        )
    return residual
