"""Some entries of P, row by row: columns of inverses of neighbourhoods, or what pruning leaves."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

__all__ = ["SparsePrecision"]


@dataclass(frozen=True, eq=False)
class SparsePrecision:
    """An n × n matrix C that stands for P: W = C·diag(gain) + diag(shift), + E·diag(prior_scale) with a prior.

    Column i of C is that of the inverse of A on a neighbourhood of item i alone, and nothing outside it. So C is not
    symmetric. It is held by rows, as scores of a history need the rows of its items.

    Attributes
    ----------
    indptr : ndarray of int64, n + 1
        Where each row begins.
    columns : ndarray of int32
        Those of each row, in order; the diagonal is always among them.
    data : ndarray of float32 or float64
        Entries of C.
    images : ndarray of the type of ``data``, or None
        The entries of E in the same places: column i of A⁻¹·W₀ on the neighbourhood of i, where there is a prior W₀.
    """

    indptr: NDArray[np.int64]
    columns: NDArray[np.int32]
    data: NDArray[Any]
    images: NDArray[Any] | None = None

    whole: ClassVar[bool] = False
    """Whether every entry of P is there, so that P can be changed and multiplied."""

    @property
    def n(self) -> int:
        """Order of the matrix."""
        return len(self.indptr) - 1

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the numbers."""
        kind: np.dtype[Any] = self.data.dtype
        return kind

    def diagonal(self) -> NDArray[np.float64]:
        """The diagonal of C in float64.

        Examples
        --------
        >>> SparsePrecision(np.array([0, 2, 3]), np.int32([0, 1, 1]), np.float32([2, 1, 3])).diagonal()
        array([2., 3.])
        """
        return self.data[self._diagonal_places].astype(np.float64)

    def image_diagonal(self) -> NDArray[np.float64]:
        """The diagonal of E in float64."""
        assert self.images is not None
        return self.images[self._diagonal_places].astype(np.float64)

    @cached_property
    def _diagonal_places(self) -> NDArray[np.int64]:
        """Where the diagonal is: the whole of it, as everything that reads it trusts."""
        places = np.empty(self.n, np.int64)
        for first in range(0, self.n, _ROWS):
            bounds = self.indptr[first : first + _ROWS + 1]
            rows = np.repeat(np.arange(first, first + len(bounds) - 1, dtype=np.int32), np.diff(bounds))
            found = np.flatnonzero(self.columns[bounds[0] : bounds[-1]] == rows)
            if len(found) != len(bounds) - 1:
                raise ValueError("the diagonal of its P is not whole")
            places[first : first + len(found)] = found + bounds[0]
        return places

    @cached_property
    def largest(self) -> float:
        """What no entry of C passes in size."""
        return _largest(self.data)

    @cached_property
    def largest_image(self) -> float:
        """What no entry of E passes in size."""
        return 0.0 if self.images is None else _largest(self.images)

    def to_dense(self) -> NDArray[Any]:
        """C as a dense n × n array: for small n."""
        return self._dense(self.data)

    def images_to_dense(self) -> NDArray[Any]:
        """E as a dense n × n array: for small n."""
        assert self.images is not None
        return self._dense(self.images)

    def _dense(self, values: NDArray[Any]) -> NDArray[Any]:
        dense = np.zeros((self.n, self.n), self.dtype)
        dense[np.repeat(np.arange(self.n), np.diff(self.indptr)), self.columns] = values
        return dense


_ROWS = 2**16
"""Rows that are looked through at once: those of a whole matrix would take as much memory as its columns."""


def _largest(values: NDArray[Any]) -> float:
    return float(max(values.max(), -values.min()))
