"""Models whose weights W are held as they are, not through P: as two thin factors, or entry by entry."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array, issparse

from deql._system.checks import check_range
from deql._system.progress import ProgressCallback
from deql._system.threads import blas_limited, read_only, run_slices
from deql.data.matrices import check_compressed
from deql.errors import ParameterError
from deql.io.model_file import refuse_infinite, vector
from deql.models.base import Recommender
from deql.ranking.candidates import add_exactly
from deql.ranking.shortlist import rank_scores, user_bounds
from deql.rules import popularity_scale

__all__ = ["ExplicitAutoencoder", "FactoredAutoencoder", "StoredWeights", "row_products"]


@dataclass(eq=False, repr=False)
class StoredWeights(Recommender):
    """Base of linear models that keep W itself: as two thin factors, or entry by entry.

    Parameters
    ----------
    popularity_power : float, default 0
        Above 0, popular items are held back: column i of W is scaled by count_i^(−α), with α this.
    progress : bool, default False
        Show progress bars on standard error.
    """

    popularity_power: float = field(default=0.0, kw_only=True)
    progress: bool = field(default=False, kw_only=True)

    _frees_before_fit = False

    @abstractmethod
    def _scores(self, matrix: csr_array) -> NDArray[np.floating]:
        """X·W for a few rows, dense."""

    @abstractmethod
    def _stored(self) -> tuple[Any, ...]:
        """The arrays that hold W, in the order in which its kernels take them."""

    @abstractmethod
    def _kernels(self) -> tuple[Any, Any]:
        """What fills in the parts of one score, and what scores the pairs of some rows."""

    @abstractmethod
    def diagonal(self) -> NDArray[np.float64]:
        """The diagonal of W."""

    @abstractmethod
    def weights(self) -> NDArray[Any]:
        """W as a dense n × n array, for small n: scores are X @ W, column i predicts item i."""

    def _check_parameters(self) -> None:
        check_range("popularity_power", self.popularity_power, -np.inf, np.inf)

    def _column_scale(self) -> NDArray[np.float64]:
        """What popularity_power multiplies each column of W by."""
        with np.errstate(over="ignore"):
            return popularity_scale(self.item_counts_, self.popularity_power)

    def _check_scaled(self, *arrays: NDArray[np.floating]) -> None:
        """Raise ParameterError if the popularity power has made numbers of W infinite."""
        if not all(np.isfinite(array).all() for array in arrays):
            raise ParameterError(
                f"popularity_power={self.popularity_power:g} makes weights too large: take one nearer 0",
                parameter="popularity_power",
            )

    def _pair_scores(self, matrix: csr_array, pairs: csr_array) -> NDArray[np.float64]:
        """The exact scores of the columns stored in ``pairs``, row by row."""
        out = np.zeros(pairs.nnz)
        run_slices(
            self._kernels()[1], user_bounds(matrix.shape[0]), *map(read_only, self._stored()),
            matrix.indptr, matrix.indices, matrix.data.astype(np.float64), pairs.indptr, pairs.indices, out,
        )  # fmt: skip
        return out

    def _contributions(
        self, columns: NDArray[np.int32], values: NDArray[np.floating], target: int
    ) -> tuple[NDArray[np.float64], float]:
        parts = np.zeros(len(columns))
        stored = map(read_only, self._stored())
        score = self._kernels()[0](*stored, columns, values.astype(np.float64), target, parts)
        return parts, score

    def _rank(
        self,
        matrix: csr_array,
        k: int,
        exclude_seen: bool,
        allowed: NDArray[np.bool_],
        report: ProgressCallback | None,
        squares: NDArray[np.float64] | None = None,
    ) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        with blas_limited():
            return rank_scores(
                self._scores, self._pair_scores, matrix,
                k=k, exclude_seen=exclude_seen, allowed=allowed, squares=squares, report=report,
            )  # fmt: skip

    def _rank_group(
        self,
        models: Sequence[Recommender],
        matrix: csr_array,
        k: int,
        squares: NDArray[np.float64] | None,
        report: ProgressCallback | None,
    ) -> NDArray[np.int32]:
        everything = np.ones(len(self.items_), bool)
        return self._rank(matrix, k, True, everything, report, None if squares is None else squares[0])[0][None]


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


@dataclass(eq=False, repr=False)
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
        self.shift_ = vector(arrays, "shift", len(self.items_))
        if self.left_.ndim != 2 or self.left_.shape != self.right_.shape:
            raise ValueError("the factors differ in shape")
        if not self.left_.dtype == self.right_.dtype == np.float32:
            raise ValueError("the factors are of another type")
        if len(self.left_) != len(self.items_):
            raise ValueError("the factors and the ids of items differ in number")
        refuse_infinite("factors", self.left_, self.right_)


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


@dataclass(eq=False, repr=False)
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
        # In the type of W, so that a list does not depend on who else is in the batch, with what weights.
        W, rows = self.weights_, matrix.astype(self.weights_.dtype, copy=False)
        dense: NDArray[np.floating] = rows @ W if isinstance(W, np.ndarray) else (rows @ W).toarray()
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
            check_compressed(self.weights_)
            if not self.weights_.has_canonical_format:
                raise ValueError("the rows of a column are not in order")
        if self.weights_.shape != (n, n):
            raise ValueError("the weights and the ids of items differ in number")
        if self.weights_.dtype not in (np.float32, np.float64):
            raise ValueError(f"weights of the type {self.weights_.dtype}")
        # Of a dense W no more than a vector: all of it would be read for that.
        refuse_infinite("weights", arrays["values"] if "values" in arrays else self.weights_.diagonal())
