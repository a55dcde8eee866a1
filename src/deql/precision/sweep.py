"""The cubic step: a symmetric block sweep that inverts a packed matrix where it lies."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import get_blas_funcs
from scipy.linalg.lapack import get_lapack_funcs

from deql.errors import NotPositiveDefiniteError
from deql.precision.packed import PackedSymmetric
from deql.progress import Report

__all__ = ["sweep"]


def sweep(matrix: PackedSymmetric, report: Report | None = None) -> None:
    """Replace a packed symmetric positive definite matrix by its inverse.

    For each pivot block k, with Q = A_kk⁻¹ and N_i = A_ik·Q,

        A_ij ← A_ij − N_i·A_jkᵀ   (i, j ≠ k),    A_ik ← N_i,    A_kk ← −Q,

    and after the last pivot every tile changes sign. Each step does the same work, so progress is
    honest, and all but a tile's Cholesky factor is matrix products. Beside the matrix it needs one
    panel, the N_i: n·tile numbers.

    Parameters
    ----------
    matrix : PackedSymmetric
        Overwritten by its inverse. After an error its content is undefined.
    report : callable, optional
        Called as ``report(done, total)`` after each pivot.

    Raises
    ------
    NotPositiveDefiniteError
        At the first pivot that is not positive; it names the column.

    Examples
    --------
    >>> import numpy as np
    >>> from deql.precision import PackedSymmetric, sweep
    >>> a = PackedSymmetric.from_dense(np.array([[2.0, 1.0, 0.0], [1.0, 3.0, 1.0], [0.0, 1.0, 4.0]]), tile=2)
    >>> sweep(a)
    >>> a.to_dense().round(4)
    array([[ 0.6111, -0.2222,  0.0556],
           [-0.2222,  0.4444, -0.1111],
           [ 0.0556, -0.1111,  0.2778]])
    """
    gemm: Any = get_blas_funcs("gemm", (matrix.data,))
    n, tile, count = matrix.n, matrix.tile, matrix.n_blocks
    blocks = [matrix.block(index) for index in range(count)]
    room = np.empty(n * min(tile, n), matrix.dtype)
    for k, pivot in enumerate(blocks):
        start, width = k * tile, pivot.shape[1]
        stop = start + width
        q = _invert_tile(pivot[:width], start)
        panel = room[: n * width].reshape(n, width)  # the last block may be narrower
        # Block row k left of the pivot: A_ki, the mirror images of the A_ik above it.
        row = [block[start - i * tile : stop - i * tile] for i, block in enumerate(blocks[:k])]
        # BLAS is column-major and the store row-major, so every product is written transposed.
        for i, mirrored in enumerate(row):
            gemm(1.0, q, mirrored.T, 0.0, panel[i * tile : (i + 1) * tile].T, trans_b=True, overwrite_c=True)
        panel[start:stop] = 0
        if stop < n:
            gemm(1.0, q, pivot[width:].T, 0.0, panel[stop:].T, overwrite_c=True)
        for j, block in enumerate(blocks):
            if j < k:  # the tile is part of what the product overwrites, hence the copy
                gemm(-1.0, row[j].copy().T, panel[j * tile :].T, 1.0, block.T, overwrite_c=True)
            elif j > k:
                own = pivot[(j - k) * tile : (j - k) * tile + block.shape[1]]
                gemm(-1.0, own.T, panel[j * tile :].T, 1.0, block.T, trans_a=True, overwrite_c=True)
        for i, mirrored in enumerate(row):
            mirrored[:] = panel[i * tile : (i + 1) * tile].T
        pivot[width:] = panel[stop:]
        np.negative(q, out=pivot[:width])
        if report is not None:
            report(k + 1, count)
    np.negative(matrix.data, out=matrix.data)
    for block in blocks:  # rounding differs above and below the diagonal: the lower half counts
        own = block[: block.shape[1]]
        lower = np.tril_indices(len(own), -1)
        own.T[lower] = own[lower]


def _invert_tile(tile: NDArray[Any], first: int) -> NDArray[Any]:
    """Inverse of one diagonal tile through its Cholesky factor, both triangles filled."""
    potrf: Any = get_lapack_funcs("potrf", (tile,))
    potri: Any = get_lapack_funcs("potri", (tile,))
    factor, failed = potrf(tile.T, lower=1, clean=0, overwrite_a=False)
    if failed > 0:
        column = first + failed - 1
        raise NotPositiveDefiniteError(
            f"the matrix is not positive definite: the pivot of column {column} is not positive", [column]
        )
    inverse, _ = potri(factor, lower=1, overwrite_c=True)
    lower = np.tril(inverse)
    lower += np.tril(lower, -1).T
    return np.asarray(lower)
