"""The order that items come in where a history says nothing of them."""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

__all__ = ["PopularityOrder"]


class PopularityOrder(NamedTuple):
    """Columns by popularity: more users first, then the lower column.

    Attributes
    ----------
    columns : ndarray of int32
        All of them, the most popular first.
    counts : ndarray of int64
        How many users each column has.
    """

    columns: NDArray[np.int32]
    counts: NDArray[np.int64]

    @classmethod
    def of(cls, counts: NDArray[np.int64]) -> Self:
        """The order by these counts.

        Examples
        --------
        >>> PopularityOrder.of(np.array([1, 3, 0, 3])).columns.tolist()
        [1, 3, 0, 2]
        """
        return cls(np.argsort(-counts, kind="stable").astype(np.int32), counts)

    def among(self, allowed: NDArray[np.bool_]) -> NDArray[np.int32]:
        """Those columns that are allowed, in this order.

        Examples
        --------
        >>> PopularityOrder.of(np.array([1, 3, 0, 3])).among(np.array([True, False, True, True])).tolist()
        [3, 0, 2]
        """
        return self.columns if allowed.all() else self.columns[allowed[self.columns]]
