"""W of a model that has all of P: how it scores and ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from deql._system.progress import ProgressCallback
from deql._system.threads import run_slices
from deql.linalg.packed import PackedSymmetric
from deql.ranking.kernels import contributions, score_pairs
from deql.ranking.prior_term import PriorTerm, prior_arrays
from deql.ranking.quantised import QuantisedRows
from deql.ranking.rank import rank
from deql.ranking.shortlist import user_bounds

if TYPE_CHECKING:
    from deql.linalg.engines.torch_packed import DevicePacked

__all__ = ["PackedWeights"]


@dataclass(frozen=True, eq=False)
class PackedWeights:
    """W = P·diag(gain) + diag(shift), + left·rightᵀ·diag(scale) with a prior.

    Attributes
    ----------
    precision : PackedSymmetric
    gain, shift : ndarray of float64
        n numbers, or models × n for several models that share P.
    prior : PriorTerm or None
        Likewise.
    on_device, rows : optional
        P once more: see :func:`~deql.ranking.rank.rank`.
    """

    precision: PackedSymmetric
    gain: NDArray[np.float64]
    shift: NDArray[np.float64]
    prior: PriorTerm | None = None
    on_device: DevicePacked | None = None
    rows: QuantisedRows | None = None

    def rank(
        self,
        matrix: csr_array,
        k: int,
        exclude_seen: bool,
        allowed: NDArray[np.bool_],
        report: ProgressCallback | None,
    ) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """The best columns and their exact scores."""
        return rank(
            self.precision, self.gain, self.shift, matrix, k=k, exclude_seen=exclude_seen, allowed=allowed,
            on_device=self.on_device, rows=self.rows, prior=self.prior, report=report,
        )  # fmt: skip

    def rank_all(
        self, matrix: csr_array, k: int, squares: NDArray[np.float64] | None, report: ProgressCallback | None
    ) -> NDArray[np.int32]:
        """The best unseen columns under each of several models, and sums of squares if they are asked for."""
        return rank(
            self.precision, self.gain, self.shift, matrix, k=k, squares=squares, exact=False,
            on_device=self.on_device, prior=self.prior, report=report,
        )[0]  # fmt: skip

    def pair_scores(self, matrix: csr_array, pairs: csr_array) -> NDArray[np.float64]:
        """The exact scores of the columns stored in ``pairs``, row by row."""
        out = np.zeros(pairs.nnz)
        run_slices(
            score_pairs, user_bounds(matrix.shape[0]), *self.precision.stored(), self.gain, self.shift,
            *prior_arrays(self.prior), matrix.indptr, matrix.indices,
            matrix.data.astype(self.precision.dtype, copy=False), pairs.indptr, pairs.indices, out,
        )  # fmt: skip
        return out

    def contributions(
        self, columns: NDArray[np.int32], values: NDArray[np.floating], target: int
    ) -> tuple[NDArray[np.float64], float]:
        """What each item of a history adds to the score of a column, and the score."""
        parts = np.zeros(len(columns))
        score = contributions(
            *self.precision.stored(), self.gain, self.shift, *prior_arrays(self.prior),
            columns, values.astype(self.precision.dtype, copy=False), target, parts,
        )  # fmt: skip
        return parts, score
