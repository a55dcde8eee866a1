"""How strong a prior is whose own scale is arbitrary: as strong as fits the interactions best."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from scipy.sparse import csr_array

from deql.linalg.sparse_product import GramOperator
from deql.linalg.tall_blocks import inner_products
from deql.priors.prior import PriorWeights

__all__ = ["fitted_scale"]


def fitted_scale(blocks: Iterable[csr_array], weights: PriorWeights) -> float:
    """The number c with which R·W₀·c fits R best in least squares: c = ⟨R, R·W₀⟩ / ‖R·W₀‖²; 0 where R·W₀ is 0.

    With W₀ = U·Vᵀ·diag(s) + diag(d) and S = RᵀR nothing of users × items or users × rank is made: ‖R·U·Vᵀ·diag(s)‖² is
    ⟨UᵀSU, Vᵀ·diag(s²)·V⟩, and what the diagonal adds touches the entries of R alone.

    Parameters
    ----------
    blocks : iterable of csr_array
        R, users × items, in blocks of rows.
    weights : PriorWeights
        W₀, of low rank.

    Examples
    --------
    >>> R = csr_array(np.array([[1.0, 1.0], [1.0, 0.0]]))
    >>> U = np.array([[1.0], [1.0]], np.float32)
    >>> W = PriorWeights(U, U, np.full(2, 2.0), np.zeros(2))
    >>> fitted_scale([R], W), np.sum(R @ W.to_dense() * R) / np.sum((R @ W.to_dense()) ** 2)
    (0.25, np.float64(0.25))
    """
    if weights.right is None:
        raise ValueError("a prior that is n × n is taken as it is")
    left, right = weights.left, weights.right * weights.scale.astype(np.float32)[:, None]
    overlaps, largest = inner_products(right, right), 0.0
    thin, norm = np.zeros(len(left)), 0.0  # ⟨R, R·U·Vᵀ⟩ by item, (SU)_i·V_i; and ⟨UᵀSU, VᵀV⟩
    squares = np.zeros(len(left))
    for block in blocks:
        # All is divided by the largest value: c is the same, and float32 holds the sums.
        before, largest = largest, max(largest, float(abs(block.data).max(initial=0.0)))
        if not block.nnz:
            continue
        shrunk = (before / largest) ** 2
        thin, norm, squares = thin * shrunk, norm * shrunk, squares * shrunk
        matrix = csr_array(block / block.dtype.type(largest))
        S = GramOperator(matrix)
        for some in S.chunks(left.shape[1]):
            image = S @ left[:, some]
            thin += np.einsum("ik,ik->i", image, right[:, some], dtype=np.float64)
            norm += float(np.sum((left.T @ image) * overlaps[:, some]))
        squares += np.asarray(matrix.multiply(matrix).sum(axis=0), np.float64).ravel()
    matched = thin.sum() + squares @ weights.diagonal
    norm += float(2.0 * (thin @ weights.diagonal) + squares @ weights.diagonal**2)
    return float(matched / norm) if norm > 0 else 0.0
