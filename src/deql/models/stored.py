"""Models whose weights W are held as they are, not through P: what they have in common."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from deql.models.base import Recommender
from deql.models.checks import check_range
from deql.parallel import blas_limited
from deql.progress import Report
from deql.shortlist import rank_scores

__all__ = ["StoredWeights", "read_only"]


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """The same numbers, not to be written: a kernel is compiled once for models fitted and models read from a file.

    Examples
    --------
    >>> read_only(np.zeros(2)).flags.writeable
    False
    """
    view = array.view()
    view.flags.writeable = False
    return view


@dataclass(eq=False)
class StoredWeights(Recommender):
    """Base of linear models that keep W itself: as two thin factors, or entry by entry.

    Parameters
    ----------
    popularity_power : float, default 0
        α: column i of W is scaled by count_i^(−α). Above 0, popular items are held back.
    progress : bool, default False
        Show progress bars on standard error.
    """

    popularity_power: float = field(default=0.0, kw_only=True)
    progress: bool = field(default=False, kw_only=True)

    @abstractmethod
    def _scores(self, matrix: csr_array) -> NDArray[np.floating]:
        """X·W for a few rows, dense."""

    @abstractmethod
    def _pair_scores(self, matrix: csr_array, pairs: csr_array) -> NDArray[np.float64]:
        """The exact scores of the columns stored in ``pairs``, row by row."""

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
        scale: NDArray[np.float64] = np.maximum(self.item_counts_, 1).astype(np.float64) ** -self.popularity_power
        return scale

    def _rank(
        self,
        matrix: csr_array,
        k: int,
        exclude_seen: bool,
        allowed: NDArray[np.bool_],
        report: Report | None,
        squares: NDArray[np.float64] | None = None,
    ) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        with blas_limited():
            return rank_scores(
                self._scores, self._pair_scores, matrix,
                k=k, exclude_seen=exclude_seen, allowed=allowed, squares=squares, report=report,
            )  # fmt: skip
