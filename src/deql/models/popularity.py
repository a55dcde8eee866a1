"""The baseline every model must beat."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from deql._system.progress import ProgressCallback
from deql.data import Interactions
from deql.models.base import Recommender

__all__ = ["Popularity"]


@dataclass(eq=False, repr=False)
class Popularity(Recommender):
    """Recommends what most users have; the score is the share of users who have the item.

    Parameters
    ----------
    progress : bool, default False
        Show progress bars on standard error.

    Examples
    --------
    >>> import deql
    >>> data = deql.Interactions.from_pairs(list("aabbcccd"), ["tea", "jam", "tea", "jam", "tea", "jam", "egg", "tea"])
    >>> deql.Popularity().fit(data).recommend([["jam"]], k=2).ids.tolist()
    [['tea', 'egg']]
    """

    progress: bool = field(default=False, kw_only=True)

    _is_linear = False

    def _check_parameters(self) -> None:
        """No hyper-parameters to check."""

    def _learn(self, data: Interactions) -> None:
        """Nothing beyond the counts that every model keeps."""

    def _rank(
        self, matrix: csr_array, k: int, exclude_seen: bool, allowed: NDArray[np.bool_], report: ProgressCallback | None
    ) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        return self._popular_lists(matrix, k, exclude_seen, allowed)

    def _contributions(
        self, columns: NDArray[np.int32], values: NDArray[np.floating], target: int
    ) -> tuple[NDArray[np.float64], float]:
        # The history has no say: its parts are zero and the score is the item's own popularity.
        return np.zeros(len(columns)), float(self._share(target))

    def _weights_at(self, sources: NDArray[np.int32], targets: NDArray[np.int32]) -> NDArray[np.float64]:
        return np.zeros(len(sources))

    def _pair_scores(self, matrix: csr_array, pairs: csr_array) -> NDArray[np.float64]:
        return np.asarray(self._share(pairs.indices), np.float64)
