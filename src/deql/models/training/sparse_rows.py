"""Rows of a sparse matrix on a device, with NumPy and torch alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import embedding_bag

__all__ = ["SparseRows", "sum_rows"]


class SparseRows:
    """Rows of a sparse matrix on a device.

    Parameters
    ----------
    starts : Tensor of int64, on the processor
        Where each row begins in the next two, and where the last one ends.
    columns, values : Tensor of int32 and float32
    n : int
        Number of columns.

    Attributes
    ----------
    lengths : Tensor of int64
        Of the rows.
    """

    def __init__(self, starts: torch.Tensor, columns: torch.Tensor, values: torch.Tensor, n: int) -> None:
        self._starts, self.columns, self.values, self.n = starts, columns, values, n
        self._begins = starts[:-1].to(columns.device)
        self.lengths = starts.diff().to(columns.device)

    @classmethod
    def from_arrays(
        cls, indptr: NDArray[Any], indices: NDArray[Any], values: NDArray[Any], n: int, device: torch.device
    ) -> SparseRows:
        """From the arrays of a matrix in compressed rows; copies, for those may be read-only."""
        parts = np.array(indptr, np.int64), np.array(indices, np.int32), np.array(values, np.float32)
        starts, columns, weights = (torch.from_numpy(part) for part in parts)
        return cls(starts, columns.to(device), weights.to(device), n)

    def __len__(self) -> int:
        return len(self._starts) - 1

    def take(self, rows: torch.Tensor) -> SparseRows:
        """These rows, in this order; their numbers on the processor."""
        starts = torch.zeros(len(rows) + 1, dtype=torch.int64)
        torch.cumsum(self._starts.diff()[rows], 0, out=starts[1:])
        there, total = rows.to(self.columns.device), int(starts[-1])
        moved = self._begins[there] - starts[:-1].to(self.columns.device)
        places = torch.repeat_interleave(moved, self.lengths[there], output_size=total)
        places += torch.arange(total, device=self.columns.device)
        return SparseRows(starts, self.columns[places], self.values[places], self.n)

    def part(self, first: int, last: int) -> SparseRows:
        """Rows ``first`` … ``last − 1``, not copied."""
        begin, end = int(self._starts[first]), int(self._starts[last])
        starts = self._starts[first : last + 1] - begin
        return SparseRows(starts, self.columns[begin:end], self.values[begin:end], self.n)

    def row_numbers(self) -> torch.Tensor:
        """The row of each entry."""
        return torch.repeat_interleave(self.lengths, output_size=len(self.columns))

    def squares(self) -> torch.Tensor:
        """‖x‖² of each row."""
        return self.values.new_zeros(len(self)).index_add_(0, self.row_numbers(), self.values.square())

    def times(self, dense: torch.Tensor) -> torch.Tensor:
        """X·dense."""
        return sum_rows(dense, self.columns, self._begins, self.values)

    def transposed_times(self, dense: torch.Tensor) -> torch.Tensor:
        """Xᵀ·dense; sorted by columns first, so that sums always run in the same order."""
        columns, order = torch.sort(self.columns, stable=True)
        begins = torch.searchsorted(columns, torch.arange(self.n, dtype=columns.dtype, device=columns.device))
        return sum_rows(dense, self.row_numbers()[order], begins, self.values[order])


def sum_rows(dense: torch.Tensor, rows: torch.Tensor, begins: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Sums of weighted rows of ``dense``, each from where it begins to where the next one does: a sparse product.

    Examples
    --------
    >>> parts = torch.tensor([0, 1, 1]), torch.tensor([0, 2]), torch.tensor([1.0, 2.0, 5.0])
    >>> sum_rows(torch.tensor([[1.0], [10.0]]), *parts).tolist()
    [[21.0], [50.0]]
    """
    # Both kinds of places are of one type, which must hold the last of them.
    kind = rows.dtype if len(rows) <= torch.iinfo(torch.int32).max else torch.int64
    return embedding_bag(rows.to(kind), dense, begins.to(kind), mode="sum", per_sample_weights=weights.to(dense.dtype))
