"""The Gram matrix RᵀΛR on a device, as dense products of slices of users.

A sparse product would add one pair of items at a time. Tensor cores are so much faster that multiplying all the
zeros, too, wins: whole numbers and other short values are multiplied exactly in float16 and added in float32.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from deql.device.arithmetic import products_in
from deql.device.packed import DevicePacked, memory_watched
from deql.progress import Report

__all__ = ["SLICE_BYTES", "device_tile", "gram_on_device"]

SLICE_BYTES = 2**30
"""What the dense rows of one slice of users may take."""


def device_tile(n: int) -> int:
    """Width of the block columns on a device.

    Wide enough that a pivot's pass over the matrix is not bound by the device's memory, narrow enough that the
    pivots' own inverses, which hardly use it, do not count.

    Examples
    --------
    >>> device_tile(900), device_tile(38_048)
    (900, 1024)
    """
    return n if n <= 1024 else 1024


def gram_on_device(
    indptr: NDArray[Any],
    indices: NDArray[Any],
    values: NDArray[Any],
    n: int,
    device: torch.device,
    *,
    weights: NDArray[np.float64] | None = None,
    dtype: torch.dtype = torch.float32,
    tile: int | None = None,
    report: Report | None = None,
) -> DevicePacked:
    """S = RᵀΛR with Λ = diag(weights), packed, on a device.

    Counts are exact up to 2²⁴; sums of other values are rounded to float32 once for each slice of users.

    Parameters
    ----------
    indptr, indices, values : ndarray
        Users × items R in compressed rows.
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
    >>> gram_on_device(*R, 3, torch.device("cpu")).to_dense()
    array([[1., 1., 0.],
           [1., 5., 2.],
           [0., 2., 1.]], dtype=float32)
    """
    matrix = DevicePacked.zeros(n, tile or device_tile(n), dtype, device)
    users = len(indptr) - 1
    short = dtype == torch.float32 and device.type == "cuda" and _is_short(values, weights is not None)
    kind = torch.float16 if short else dtype
    scale, parts = (1.0, [np.ones(users)]) if weights is None else (_split(weights) if short else (1.0, [weights]))
    per_slice = max(1, SLICE_BYTES // (n * kind.itemsize * (len(parts) + 1)))
    blocks = list(matrix.blocks())
    with memory_watched("the Gram matrix", device), products_in("float32"):
        for first in range(0, users, per_slice):
            last = min(first + per_slice, users)
            rows = _dense(indptr[first : last + 1], indices, values, n, kind, device)
            heavy = rows
            if weights is not None:
                heavy = torch.cat(
                    [rows * torch.from_numpy(part[first:last]).to(device, kind)[:, None] for part in parts]
                )
                rows = rows.repeat(len(parts), 1)
            for start, block in blocks:
                left, right = heavy[:, start:].T, rows[:, start : start + block.shape[1]]
                if short:
                    torch.addmm(block, left, right, alpha=scale, out_dtype=torch.float32, out=block)
                else:
                    block.addmm_(left, right)
            if report is not None:
                report(last, users)
    return matrix


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


def _is_short(values: NDArray[Any], weighted: bool) -> bool:
    """Whether all values, or their products with weights, are sums of a few float16 numbers, and small enough."""
    if weighted:
        return bool((values == 1).all())
    with np.errstate(over="ignore"):
        short = values.astype(np.float16)
    return bool(np.array_equal(values, short) and np.abs(short).max(initial=0) < 2**8)


def _split(weights: NDArray[np.float64]) -> tuple[float, list[NDArray[np.float64]]]:
    """A scale, and three float16 numbers for each weight that add up to it, to 33 bits."""
    exponent = 7 - math.frexp(float(np.abs(weights).max()))[1]
    left = weights * 2.0**exponent
    parts = []
    for _ in range(3):
        part = left.astype(np.float16).astype(np.float64)
        parts.append(part)
        left = left - part
    return 2.0**-exponent, parts
