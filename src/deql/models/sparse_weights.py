"""W of a model that has some entries of P alone: how it scores and ranks, as :mod:`deql.models.packed_weights` does."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from deql._system.progress import ProgressCallback
from deql._system.threads import run_slices
from deql.linalg.sparse_precision import SparsePrecision
from deql.ranking.popularity_order import PopularityOrder
from deql.ranking.shortlist import user_bounds
from deql.ranking.sparse_kernels import mark_cold_users, score_sparse_pairs, sparse_contributions
from deql.ranking.sparse_rank import rank_sparse, sparse_arrays

__all__ = ["SparseWeights"]


@dataclass(frozen=True, eq=False)
class SparseWeights:
    """W = C·diag(gain) + diag(shift), + E·diag(scale) with a prior.

    Attributes
    ----------
    precision : SparsePrecision
        C and E.
    gain, shift : ndarray of float64
        n numbers, or models × n for several models that share C.
    popularity : PopularityOrder
        The order of items that score 0.
    scale : ndarray of float64 or None
        Likewise.
    """

    precision: SparsePrecision
    gain: NDArray[np.float64]
    shift: NDArray[np.float64]
    popularity: PopularityOrder
    scale: NDArray[np.float64] | None = None

    def rank(
        self,
        matrix: csr_array,
        k: int,
        exclude_seen: bool,
        allowed: NDArray[np.bool_],
        report: ProgressCallback | None,
    ) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """The best columns and their exact scores."""
        return rank_sparse(
            self.precision, self.gain, self.shift, self.popularity, matrix, k=k, exclude_seen=exclude_seen,
            allowed=allowed, scale=self.scale, report=report,
        )  # fmt: skip

    def rank_all(
        self, matrix: csr_array, k: int, squares: NDArray[np.float64] | None, report: ProgressCallback | None
    ) -> NDArray[np.int32]:
        """The best unseen columns under each of several models, and sums of squares if they are asked for."""
        return rank_sparse(
            self.precision, self.gain, self.shift, self.popularity, matrix, k=k, squares=squares, exact=False,
            scale=self.scale, report=report,
        )[0]  # fmt: skip

    def cold(self, indptr: NDArray[np.integer], indices: NDArray[np.integer]) -> NDArray[np.bool_]:
        """Which histories have no weight, other than 0, for an item that is not in them."""
        users = len(indptr) - 1
        found = np.zeros(users, bool)
        run_slices(
            mark_cold_users, user_bounds(users), *sparse_arrays(self.precision, self.scale), self.gain, self._scale,
            indptr, indices, found,
        )  # fmt: skip
        return found

    def pair_scores(self, matrix: csr_array, pairs: csr_array) -> NDArray[np.float64]:
        """The exact scores of the columns stored in ``pairs``, row by row."""
        out = np.zeros(pairs.nnz)
        run_slices(
            score_sparse_pairs, user_bounds(matrix.shape[0]), *sparse_arrays(self.precision, self.scale),
            self.gain, self.shift, self._scale, matrix.indptr, matrix.indices,
            matrix.data.astype(self.precision.dtype, copy=False), pairs.indptr, pairs.indices, out,
        )  # fmt: skip
        return out

    def contributions(
        self, columns: NDArray[np.int32], values: NDArray[np.floating], target: int
    ) -> tuple[NDArray[np.float64], float]:
        """What each item of a history adds to the score of a column, and the score."""
        parts = np.zeros(len(columns))
        score = sparse_contributions(
            *sparse_arrays(self.precision, self.scale), self.gain, self.shift, self._scale,
            columns, values.astype(self.precision.dtype, copy=False), target, parts,
        )  # fmt: skip
        return parts, score

    @property
    def _scale(self) -> NDArray[np.float64]:
        return np.zeros(0) if self.scale is None else self.scale
