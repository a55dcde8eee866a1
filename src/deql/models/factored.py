"""Linear models of low rank: W = left·rightᵀ + diag(shift), and no n × n array anywhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.sparse import csr_array

from deql._system.threads import blas_limited
from deql.models.stored import StoredWeights
from deql.ranking.exact_sum import add_exactly

__all__ = ["FactoredAutoencoder", "row_products"]


@njit(cache=True, nogil=True)
def _parts(left, right, shift, items, values, target, out):  # type: ignore[no-untyped-def]
    for t in range(len(items)):
        weight = 0.0
        for r in range(left.shape[1]):
            weight += np.float64(left[items[t], r]) * np.float64(right[target, r])
        if items[t] == target:
            weight += shift[target]
        out[t] = weight * values[t]
    return add_exactly(out)


@njit(cache=True, nogil=True)
def _score_pairs(first, last, left, right, shift, indptr, indices, values, pair_indptr, pair_indices, out):  # type: ignore[no-untyped-def]
    for u in range(first, last):
        items, history = indices[indptr[u] : indptr[u + 1]], values[indptr[u] : indptr[u + 1]]
        parts = np.empty(len(items))
        for p in range(pair_indptr[u], pair_indptr[u + 1]):
            out[p] = _parts(left, right, shift, items, history, pair_indices[p], parts)


def row_products(left: NDArray[np.float32], right: NDArray[np.float32]) -> NDArray[np.float64]:
    """The diagonal of left·rightᵀ."""
    return np.asarray(np.einsum("ir,ir->i", left, right, dtype=np.float64))


@dataclass(eq=False)
class FactoredAutoencoder(StoredWeights):
    """Base of models whose W has two thin factors.

    Attributes
    ----------
    left_, right_ : ndarray of float32, n × rank
        W = left_·right_ᵀ + diag(shift_).
    shift_ : ndarray of float64
        Added to the diagonal of W.
    """

    def _keep(
        self, left: NDArray[np.floating], right: NDArray[np.floating], shift: NDArray[np.float64] | None = None
    ) -> None:
        """Become fitted with these factors, after the popularity power."""
        n = len(self.item_counts_)
        self.left_ = np.ascontiguousarray(left, np.float32)
        self.right_ = np.ascontiguousarray(right, np.float32)
        self.shift_ = np.zeros(n) if shift is None else np.array(shift, np.float64)
        if self.popularity_power:
            # The diagonal is scaled as a whole, so that one that is zero stays zero.
            own, scale = row_products(self.left_, self.right_) + self.shift_, self._column_scale()
            with np.errstate(over="ignore", invalid="ignore"):
                self.right_ = (self.right_ * scale[:, None]).astype(np.float32)
                self.shift_ = own * scale - row_products(self.left_, self.right_)
            self._check_scaled(self.right_, self.shift_)

    def _scores(self, matrix: csr_array) -> NDArray[np.floating]:
        scores: NDArray[np.floating] = (matrix.astype(np.float32) @ self.left_) @ self.right_.T
        rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
        scores[rows, matrix.indices] += (matrix.data * self.shift_[matrix.indices]).astype(np.float32)
        return scores

    def _stored(self) -> tuple[Any, ...]:
        return self.left_, self.right_, self.shift_

    def _kernels(self) -> tuple[Any, Any]:
        return _parts, _score_pairs

    def weights(self) -> NDArray[Any]:
        """W as a dense n × n array, for small n: scores are X @ W, column i predicts item i."""
        self._check_fitted()
        with blas_limited():
            dense: NDArray[Any] = self.left_ @ self.right_.T
        i = np.arange(len(dense))
        dense[i, i] = self.diagonal()
        return dense

    def diagonal(self) -> NDArray[np.float64]:
        """The diagonal of W."""
        self._check_fitted()
        return row_products(self.left_, self.right_) + self.shift_

    def _state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        arrays, facts = super()._state()
        same = {} if self.left_ is self.right_ else {"right": self.right_}
        return arrays | {"left": self.left_, "shift": self.shift_} | same, facts

    def _restore(self, arrays: dict[str, NDArray[Any]], facts: dict[str, Any]) -> None:
        super()._restore(arrays, facts)
        self.left_ = arrays["left"]
        self.right_ = arrays.get("right", self.left_)
        self.shift_ = np.array(arrays["shift"])
        if self.left_.ndim != 2 or self.left_.shape != self.right_.shape:
            raise ValueError("the factors differ in shape")
        if not self.left_.dtype == self.right_.dtype == np.float32 or self.shift_.dtype != np.float64:
            raise ValueError("the factors are of another type")
        if not len(self.left_) == len(self.shift_) == len(self.items_):
            raise ValueError("the factors and the ids of items differ in number")
