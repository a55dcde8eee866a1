"""P = A⁻¹ on a device: the sweep where the matrix lies, or with tiles that stream from the host's memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from deql._system.progress import ProgressCallback
from deql.linalg.engines.torch_packed import DevicePacked, free_bytes, memory_watched
from deql.linalg.engines.torch_products import Products, arithmetic_set
from deql.linalg.engines.torch_streaming import Streamed
from deql.linalg.in_place import InPlace
from deql.linalg.invert import invert
from deql.linalg.packed import PackedSymmetric
from deql.linalg.sweep import sweep
from deql.linalg.tiling import DEVICE_SLICE, WIDEST_PIVOT, device_memory, device_panels

__all__ = ["default_arithmetic", "fits_on_device", "invert_on_device", "invert_through_device"]

_LARGE_RANGE = 2.0**16
"""Between diagonal entries: float16 has full precision over 18 powers of two."""


def default_arithmetic(dtype: str, device: torch.device) -> str:
    """The fastest arithmetic that keeps a type's accuracy on most matrices.

    Split products need tensor cores that add in float32 at full rate, which only those of data centres do: on others
    three of them take longer than a plain one.

    Examples
    --------
    >>> default_arithmetic("float32", torch.device("cpu")), default_arithmetic("float64", torch.device("cpu"))
    ('float32', 'float64')
    """
    if dtype == "float64" or device.type != "cuda" or torch.version.hip is not None:
        return dtype
    return "fp16x3" if torch.cuda.get_device_capability(device) in ((8, 0), (9, 0), (10, 0), (10, 3)) else "float32"


def fits_on_device(n: int, dtype: str, device: torch.device) -> bool:
    """Whether a device has room for the Gram matrix of n items and its inverse.

    Examples
    --------
    >>> fits_on_device(100, "float32", torch.device("cpu"))
    True
    """
    return device.type != "cuda" or device_memory(n, dtype) <= free_bytes(device)


def invert_on_device(
    matrix: DevicePacked, arithmetic: str | None = None, report: ProgressCallback | None = None
) -> float:
    """Replace a matrix on a device by its inverse, and return how far it is from it.

    As :func:`deql.linalg.invert`, in one of the arithmetics of :mod:`deql.linalg.engines.torch_products`.

    Examples
    --------
    >>> import numpy as np, torch
    >>> a = DevicePacked.from_host(PackedSymmetric.from_dense(np.diag([2.0, 4.0]), tile=1), torch.device("cpu"))
    >>> residual = invert_on_device(a)
    >>> a.diagonal()
    array([0.5 , 0.25])
    """
    chosen = arithmetic or default_arithmetic(matrix.dtype.name, matrix.device)

    def by(_: PackedSymmetric, told: ProgressCallback | None) -> None:
        with (
            memory_watched(f"the inverse of {matrix.n:,} columns", matrix.device),
            arithmetic_set(chosen),
            _in_range(matrix, chosen),
        ):
            sweep(InPlace(matrix), Products(chosen, matrix.data.dtype, matrix.device), told)

    return invert(matrix, by, report)


def invert_through_device(
    matrix: PackedSymmetric,
    device: torch.device,
    arithmetic: str | None = None,
    report: ProgressCallback | None = None,
    blocks_per_pivot: int | None = None,
) -> float:
    """Replace a matrix in the host's memory by its inverse, on a device that cannot hold it.

    Parameters
    ----------
    matrix : PackedSymmetric
    device : torch.device
    arithmetic : str, optional
    report : callable, optional
    blocks_per_pivot : int, optional
        As many as the device's memory allows and are of use, if not given.

    Examples
    --------
    >>> import numpy as np, torch
    >>> a = PackedSymmetric.from_dense(np.diag([2.0, 4.0, 5.0]), tile=1)
    >>> residual = invert_through_device(a, torch.device("cpu"), blocks_per_pivot=2)
    >>> a.diagonal()
    array([0.5 , 0.25, 0.2 ])
    """
    chosen = arithmetic or default_arithmetic(matrix.dtype.name, device)
    count = blocks_per_pivot or _widest_pivot(matrix, device)

    def by(_: PackedSymmetric, told: ProgressCallback | None) -> None:
        kind = getattr(torch, matrix.dtype.name)
        with (
            memory_watched(f"panels of {matrix.n:,} × {count * matrix.tile:,} numbers", device),
            arithmetic_set(chosen),
            _in_range(matrix, chosen),
            Streamed(matrix, device, count) as tiles,
        ):
            sweep(tiles, Products(chosen, kind, device), told)

    return invert(matrix, by, report)


@contextmanager
def _in_range(matrix: PackedSymmetric, arithmetic: str) -> Iterator[None]:
    """Bring a diagonal of very different entries near 1 meanwhile, by powers of two: (sAs)⁻¹ = s⁻¹A⁻¹s⁻¹ exactly."""
    diagonal = matrix.diagonal()
    if arithmetic != "fp16x3" or diagonal.max() < _LARGE_RANGE * diagonal.min():
        yield
        return
    powers = np.exp2(-np.round(np.log2(diagonal) / 2)).astype(matrix.dtype)
    factors = torch.from_numpy(powers).to(matrix.device) if isinstance(matrix, DevicePacked) else powers
    matrix.scale(factors)
    yield
    matrix.scale(factors)


def _widest_pivot(matrix: PackedSymmetric, device: torch.device) -> int:
    """Block columns of a pivot that fit the device beside the slabs under way."""
    useful = max(1, WIDEST_PIVOT // matrix.tile)
    if device.type != "cuda":
        return useful
    room = free_bytes(device) - DEVICE_SLICE
    return int(max(1, min(useful, room // device_panels(matrix.n, matrix.tile))))
