"""A column of a table of features as columns of a matrix: learned from some items, then the same for all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

__all__ = ["FeatureColumn", "learn_matrix"]


@dataclass(frozen=True, eq=False)
class FeatureColumn:
    """What was learned of one column of the table.

    Attributes
    ----------
    name : str
        Of the column; empty for a matrix, which is one column with as many features as it has columns.
    kind : str
        A kind of ``KINDS``.
    factor : ndarray of float64
        What each of its features is multiplied by: one over the deviation of numbers, the idf of words; 0 leaves one
        out.
    weight : float
        What all of them are multiplied by, so that the column weighs as much as any other.
    offset : ndarray of float64
        What is taken off numbers before.
    values : tuple of str
        What categories and tags there are.
    separator : str
        Between the tags of a text.
    """

    name: str
    kind: str
    factor: NDArray[np.float64]
    weight: float = 1.0
    offset: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    values: tuple[str, ...] = ()
    separator: str = ""

    @property
    def width(self) -> int:
        """How many features it gives."""
        return len(self.factor)

    def labels(self) -> list[str]:
        """What people call its features; empty where they have no name."""
        return [f"feature {place + 1}" for place in range(self.width)]

    def encode(self, raw: Any) -> csr_array:
        """The features of some rows."""
        return csr_array(csr_array(raw).multiply(self.factor * self.weight), dtype=np.float32)


def learn_matrix(matrix: csr_array) -> FeatureColumn:
    """The column that stands for a whole matrix; features that are the same for all items are left out."""
    dense_free = csr_array(matrix, dtype=np.float64)
    n = dense_free.shape[0]
    means = np.asarray(dense_free.sum(axis=0)).ravel() / n
    squares = np.asarray(dense_free.multiply(dense_free).sum(axis=0)).ravel() / n
    kept = squares - means**2 > 1e-12 * squares
    return balanced(FeatureColumn("", "matrix", kept.astype(np.float64)), matrix)


def balanced(column: FeatureColumn, raw: Any) -> FeatureColumn:
    """The column with the weight that makes the mean of an item's squared features 1."""
    encoded = column.encode(raw)
    energy = float(encoded.multiply(encoded).sum())
    weight = np.sqrt(encoded.shape[0] / energy) if energy > 0 else 1.0
    return FeatureColumn(
        column.name, column.kind, column.factor, weight, column.offset, column.values, column.separator
    )


def stacked(parts: Sequence[csr_array]) -> csr_array:
    """Features of several columns beside each other."""
    from scipy.sparse import hstack

    return csr_array(hstack(parts, format="csr", dtype=np.float32))
