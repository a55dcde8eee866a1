"""X·P on a device, a strip of columns at a time, for batches of users that fit its memory."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from deql.errors import DeviceError
from deql.linalg.engines.torch_gram import Triple
from deql.linalg.engines.torch_packed import DevicePacked

__all__ = ["SCRATCH", "DeviceHistories", "batches", "strips"]

SCRATCH = 2**30
"""Bytes that scoring may take on a device beside P."""

_LEAST_COLUMNS = 64
_BYTES_PER_ENTRY = 64
"""An entry of a history with all its copies, while they are sorted."""

Made = TypeVar("Made")


class DeviceHistories:
    """Histories ``first`` … ``last − 1`` on a device, a sparse matrix in the order of columns.

    Parameters
    ----------
    matrix : indptr, indices, values
    first, last : int
    n : int
        Number of columns.
    device : torch.device
    dtype : torch.dtype
        Values are rounded to it, then kept in float64.

    Attributes
    ----------
    rows, columns, values : Tensor
        Each entry; rows count from ``first``.
    """

    def __init__(
        self, matrix: Triple, first: int, last: int, n: int, device: torch.device, dtype: torch.dtype = torch.float64
    ) -> None:
        indptr, indices, values = matrix
        part = slice(int(indptr[first]), int(indptr[last]))
        # Copies: what is given may be read-only, which tensors cannot be.
        self._starts = torch.from_numpy(np.array(indptr[first : last + 1] - indptr[first], np.int64)).to(device)
        self._indices = torch.from_numpy(np.array(indices[part], np.int64)).to(device)
        self._values = torch.from_numpy(np.array(values[part], np.float64)).to(device).to(dtype).double()
        self.shape = (last - first, n)
        order = torch.argsort(self._indices)
        self.rows = torch.repeat_interleave(self._starts.diff())[order]
        self.columns, self.values = self._indices[order], self._values[order]
        self._ends = np.concatenate([[0], np.cumsum(np.bincount(indices[part], minlength=n))])

    def within(self, low: int, high: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Rows, columns from ``low`` on, and values of the entries in columns ``low`` … ``high − 1``."""
        part = slice(self._ends[low], self._ends[high])
        return self.rows[part], self.columns[part] - low, self.values[part]

    def compressed(self) -> torch.Tensor:
        """The same as a matrix that can be multiplied."""
        with warnings.catch_warnings():
            # Torch warns that it may change how these are made, and that it does not check them.
            warnings.filterwarnings("ignore", "Sparse", UserWarning)
            return torch.sparse_csr_tensor(
                self._starts.int(), self._indices.int(), self._values, self.shape, check_invariants=False
            )


def strips(
    precision: DevicePacked, histories: DeviceHistories, width: int, wanted: NDArray[np.bool_]
) -> Iterator[tuple[int, int, torch.Tensor]]:
    """``low``, ``high`` and columns ``low`` … ``high − 1`` of X·P in float64, wherever one of them is wanted."""
    n, tile = precision.n, precision.tile
    matrix = histories.compressed()
    blocks: list[Any] = [block for _, block in precision.blocks()]
    room = torch.empty(n * width, dtype=torch.float64, device=precision.device)
    for index, left in enumerate(range(0, n, tile)):
        right = min(left + tile, n)
        for low in range(left, right, width):
            high = min(low + width, right)
            if wanted[low:high].any():
                strip = room[: n * (high - low)].view(n, high - low)
                # Rows above the block column are columns of earlier ones, by symmetry.
                for start, block in zip(range(0, left, tile), blocks, strict=False):
                    strip[start : start + tile] = block[low - start : high - start].T
                strip[left:] = blocks[index][:, low - left : high - left]
                yield low, high, matrix @ strip


def batches(
    precision: DevicePacked,
    entries: NDArray[Any],
    user_bytes: int,
    work: Callable[[int, int, int], Made],
    scratch: int = SCRATCH,
) -> Iterator[tuple[int, int, Made]]:
    """``first``, ``last`` and what ``work(first, last, width)`` made of these users, with strips of that width.

    Where the device's memory does not suffice, a batch is done again with half the memory, and so are
    the ones after it.

    Parameters
    ----------
    precision : DevicePacked
    entries : ndarray
        How many entries the users before each one have.
    user_bytes : int
        What a user takes beside entries and strips.
    work : callable
    scratch : int
        Bytes to use: half of them for a strip of P, half for the users.

    Raises
    ------
    DeviceError
        If the memory does not suffice for one user.
    """
    n, first, users = precision.n, 0, len(entries) - 1
    while first < users:
        width = min(n, precision.tile, max(_LEAST_COLUMNS, scratch // (16 * n)))
        # The sums of two strips, a model's scores, and a copy of these.
        each = user_bytes + 32 * width
        taken = np.asarray(entries, np.int64) * _BYTES_PER_ENTRY + np.arange(users + 1) * each
        last = max(first + 1, int(np.searchsorted(taken, taken[first] + scratch // 2, "right")) - 1)
        try:
            made = work(first, last, width)
        except torch.cuda.OutOfMemoryError:
            needs = 8 * n * width + int(taken[last] - taken[first])
        else:
            yield first, last, made
            first = last
            continue
        # Out here what the failed batch held is free.
        if precision.device.type == "cuda":
            torch.cuda.empty_cache()
        if last == first + 1 and width <= _LEAST_COLUMNS:
            raise DeviceError(
                f"{precision.device} has too little memory to score even one user, which takes about "
                f"{needs / 2**20:,.0f} MiB beside P: free some of it, or score without the device"
            )
        # A batch that took less than it might must shrink, too.
        scratch = min(scratch, needs) // 2
