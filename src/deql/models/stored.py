"""Models whose weights W are held as they are, not through P: what they have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from deql._system.checks import check_range
from deql._system.progress import ProgressCallback
from deql._system.threads import blas_limited, read_only, run_slices
from deql.errors import ParameterError
from deql.models.base import Recommender
from deql.ranking.shortlist import rank_scores, user_bounds
from deql.rules import popularity_scale

__all__ = ["StoredWeights"]


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

    def _contributions(self, columns: NDArray[np.int32], target: int) -> tuple[NDArray[np.float64], float]:
        parts = np.zeros(len(columns))
        stored = map(read_only, self._stored())
        score = self._kernels()[0](*stored, columns, np.ones(len(columns)), target, parts)
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
