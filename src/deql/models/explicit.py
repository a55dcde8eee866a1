"""Linear models that hold W entry by entry: sparse, or dense where n is small."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array, issparse

from deql.models.stored import StoredWeights
from deql.ranking.exact_sum import add_exactly

__all__ = ["ExplicitAutoencoder"]


@njit(cache=True, nogil=True)
def _sparse_parts(indptr, rows, data, items, values, target, out):  # type: ignore[no-untyped-def]
    p, end = indptr[target], indptr[target + 1]
    for t in range(len(items)):
        p += np.searchsorted(rows[p:end], items[t])
        out[t] = values[t] * np.float64(data[p]) if p < end and rows[p] == items[t] else 0.0
    return add_exactly(out)


@njit(cache=True, nogil=True)
def _dense_parts(weights, items, values, target, out):  # type: ignore[no-untyped-def]
    for t in range(len(items)):
        out[t] = values[t] * np.float64(weights[items[t], target])
    return add_exactly(out)


@njit(cache=True, nogil=True)
def _score_sparse_pairs(first, last, w_indptr, w_rows, w_data, indptr, indices, values, pair_indptr, pair_indices, out):  # type: ignore[no-untyped-def]
    for u in range(first, last):
        items, history = indices[indptr[u] : indptr[u + 1]], values[indptr[u] : indptr[u + 1]]
        parts = np.empty(len(items))
        for p in range(pair_indptr[u], pair_indptr[u + 1]):
            out[p] = _sparse_parts(w_indptr, w_rows, w_data, items, history, pair_indices[p], parts)


@njit(cache=True, nogil=True)
def _score_dense_pairs(first, last, weights, indptr, indices, values, pair_indptr, pair_indices, out):  # type: ignore[no-untyped-def]
    for u in range(first, last):
        items, history = indices[indptr[u] : indptr[u + 1]], values[indptr[u] : indptr[u + 1]]
        parts = np.empty(len(items))
        for p in range(pair_indptr[u], pair_indptr[u + 1]):
            out[p] = _dense_parts(weights, items, history, pair_indices[p], parts)


@dataclass(eq=False)
class ExplicitAutoencoder(StoredWeights):
    """Base of models that hold W entry by entry.

    Attributes
    ----------
    weights_ : csc_array or ndarray, n × n
        W, with the rows of each column in order.
    """

    def _keep(self, weights: csc_array | NDArray[np.floating]) -> None:
        """Become fitted with these weights, which are the model's from now on, after the popularity power."""
        if not isinstance(weights, np.ndarray):
            weights.sum_duplicates()
            values = weights.data
            scale = np.repeat(self._column_scale(), np.diff(weights.indptr)) if self.popularity_power else None
        else:
            values, scale = weights, self._column_scale() if self.popularity_power else None
        if scale is not None:
            with np.errstate(over="ignore", invalid="ignore"):
                values *= scale.astype(values.dtype)
            self._check_scaled(values)
        self.weights_: csc_array | NDArray[np.floating] = weights

    def _scores(self, matrix: csr_array) -> NDArray[np.floating]:
        scores = matrix @ self.weights_
        dense: NDArray[np.floating] = scores.toarray() if issparse(scores) else scores
        return dense

    def _stored(self) -> tuple[Any, ...]:
        W = self.weights_
        return (W,) if isinstance(W, np.ndarray) else (W.indptr, W.indices, W.data)

    def _kernels(self) -> tuple[Any, Any]:
        if issparse(self.weights_):
            return _sparse_parts, _score_sparse_pairs
        return _dense_parts, _score_dense_pairs

    def weights(self) -> NDArray[Any]:
        """W as a dense n × n array, for small n: scores are X @ W, column i predicts item i."""
        self._check_fitted()
        W = self.weights_
        return W.copy() if isinstance(W, np.ndarray) else W.toarray()

    def diagonal(self) -> NDArray[np.float64]:
        """The diagonal of W."""
        self._check_fitted()
        return np.array(self.weights_.diagonal(), np.float64)

    def _state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        arrays, facts = super()._state()
        names = ("weights",) if isinstance(self.weights_, np.ndarray) else ("indptr", "rows", "values")
        return arrays | dict(zip(names, self._stored(), strict=True)), facts

    def _restore(self, arrays: dict[str, NDArray[Any]], facts: dict[str, Any]) -> None:
        super()._restore(arrays, facts)
        n = len(self.items_)
        if "weights" in arrays:
            self.weights_ = arrays["weights"]
        else:
            self.weights_ = csc_array((arrays["values"], arrays["rows"], np.array(arrays["indptr"])), shape=(n, n))
            # The kernels trust these.
            self.weights_.check_format(full_check=True)
            if not self.weights_.has_canonical_format:
                raise ValueError("the rows of a column are not in order")
        if self.weights_.shape != (n, n):
            raise ValueError("the weights and the ids of items differ in number")
        if self.weights_.dtype not in (np.float32, np.float64):
            raise ValueError(f"weights of the type {self.weights_.dtype}")
