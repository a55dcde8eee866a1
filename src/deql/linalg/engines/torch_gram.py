"""The Gram matrix RᵀΛR on a device, as dense products of slices of users.

A sparse product adds one pair of items at a time. Tensor cores are so much faster that multiplying all the zeros,
too, wins unless there are very many users (see :meth:`deql.engines.Torch.gram`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from deql._system.progress import ProgressCallback
from deql.errors import DataError
from deql.linalg.engines.torch_packed import DevicePacked, memory_watched
from deql.linalg.engines.torch_products import arithmetic_set
from deql.linalg.tiling import DEVICE_SLICE, device_tile

__all__ = ["Triple", "gram_on_device"]


Triple = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]
"""A sparse matrix in compressed rows: indptr, indices, values."""


def gram_on_device(
    interactions: Triple,
    n: int,
    device: torch.device,
    *,
    weights: NDArray[np.float64] | None = None,
    dtype: torch.dtype = torch.float32,
    tile: int | None = None,
    report: ProgressCallback | None = None,
) -> DevicePacked:
    """S = RᵀΛR with Λ = diag(weights), packed, on a device.

    Counts and ratings without weights are multiplied in float16, and their sums are exact up to 2²⁴; all else is
    summed in ``dtype``.

    Parameters
    ----------
    interactions : tuple of ndarray
        Users × items R in compressed rows: indptr, indices, values.
    n : int
        Number of items.
    device : torch.device
    weights : ndarray, optional
        Of the users; 1 for each if not given.
    dtype : torch.dtype, default float32
        Of the result; float64 sums in float64.
    tile : int, optional
        Width of the block columns.
    report : callable, optional
        Called as ``report(done, total)``.

    Examples
    --------
    >>> import numpy as np, torch
    >>> R = np.array([0, 2, 4]), np.array([0, 1, 1, 2]), np.array([1.0, 1.0, 2.0, 1.0])
    >>> gram_on_device(R, 3, torch.device("cpu")).to_dense()
    array([[1., 1., 0.],
           [1., 5., 2.],
           [0., 2., 1.]], dtype=float32)
    """
    indptr, indices, values = _checked(interactions, n)
    matrix = DevicePacked.zeros(n, tile or device_tile(n), dtype, device)
    users = len(indptr) - 1
    short = dtype == torch.float32 and device.type == "cuda" and weights is None and _is_short(values)
    kind = torch.float16 if short else dtype
    per_slice = max(1, DEVICE_SLICE // (n * kind.itemsize * (1 if weights is None else 2)))
    blocks = list(matrix.blocks())
    with memory_watched("the Gram matrix", device), arithmetic_set("float32"):
        for first in range(0, users, per_slice):
            last = min(first + per_slice, users)
            rows = _dense(indptr[first : last + 1], indices, values, n, kind, device)
            heavy = rows
            if weights is not None:
                heavy = rows * torch.from_numpy(weights[first:last]).to(device, kind)[:, None]
            for start, block in blocks:
                left, right = heavy[:, start:].T, rows[:, start : start + block.shape[1]]
                if short:
                    torch.addmm(block, left, right, out_dtype=torch.float32, out=block)
                else:
                    block.addmm_(left, right)
            if report is not None:
                report(last, users)
    return matrix


def _checked(interactions: Triple, n: int) -> Triple:
    """Compressed rows of n columns, or DataError: a column that is out of range would end the device's process."""
    indptr, indices, values = (np.asarray(part) for part in interactions)
    whole = (
        len(indptr) and indptr[0] == 0 and indptr[-1] == len(indices) == len(values) and (np.diff(indptr) >= 0).all()
    )
    if not whole:
        raise DataError("interactions must be indptr, indices and values of compressed rows, which these are not")
    for column in (indices.min(initial=0), indices.max(initial=0)):
        if not 0 <= column < n:
            raise DataError(f"interactions must have columns from 0 to {n - 1}, and one is {column}")
    return indptr, indices, values


def _dense(
    indptr: NDArray[Any], indices: NDArray[Any], values: NDArray[Any], n: int, kind: torch.dtype, device: torch.device
) -> torch.Tensor:
    """Rows of a sparse matrix with their zeros."""
    entries = slice(int(indptr[0]), int(indptr[-1]))
    who = torch.repeat_interleave(torch.from_numpy(np.diff(indptr).astype(np.int64)).to(device))
    what = torch.from_numpy(indices[entries].astype(np.int64)).to(device)
    # Rows that do not begin at multiples of 16 bytes cannot be loaded at the device's full rate.
    rows = torch.zeros(len(indptr) - 1, -(-n // 8) * 8, dtype=kind, device=device)
    rows[who, what] = torch.from_numpy(np.ascontiguousarray(values[entries])).to(device, kind)
    return rows[:, :n]


def _is_short(values: NDArray[Any]) -> bool:
    """Whether all values are float16 numbers, as counts and ratings are, and small enough to be added up."""
    with np.errstate(over="ignore"):
        short = values.astype(np.float16)
    return bool(np.array_equal(values, short) and np.abs(short).max(initial=0) < 2**8)
