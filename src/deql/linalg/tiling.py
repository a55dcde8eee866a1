"""Sizes and names that engines and planner share: tiles, pivots, panels, arithmetics."""

from __future__ import annotations

import numpy as np

from deql.linalg.packed import PackedSymmetric

__all__ = [
    "ARITHMETICS",
    "DEVICE_SLICE",
    "STRIP",
    "WIDEST_PIVOT",
    "choose_tile",
    "device_memory",
    "device_panels",
    "device_tile",
]

STRIP = 64
"""Columns scored at once by the top-k kernel; every tile of a cut matrix is a multiple of it."""

WIDEST_PIVOT = 8192
"""Columns of a pivot where the matrix passes by once for each: from there on products take longer than copies."""

DEVICE_SLICE = 2**30
"""Bytes on a device for the dense rows of users that are summed at once, or for the slabs that stream through it."""

ARITHMETICS = ("float32", "fp16x3", "bf16x3", "tf32x3", "tf32", "float64")
"""Of matrix products on a device. float32, float64: plain. fp16x3, bf16x3, tf32x3: each number as the sum of two
shorter ones, three products on tensor cores. tf32: 11 bits, one product on tensor cores."""


def choose_tile(n: int) -> int:
    """Width of the block columns for an n × n matrix.

    A step's panel costs 3·tile/n of the whole work and its pass over the matrix is memory traffic
    that narrow tiles repeat more often; measured on two cores, n/32 balances the two between 5,000
    and 12,000 columns, and products narrower than 192 are slow. Up to about 500 columns one LAPACK
    call on the whole matrix is fastest, so the matrix is one tile.

    Examples
    --------
    >>> choose_tile(500), choose_tile(5834), choose_tile(12_000), choose_tile(38_048)
    (500, 192, 384, 1024)
    """
    if n <= 512:
        return n
    return min(max(round(n / 32 / STRIP), 3), 16) * STRIP


def device_tile(n: int) -> int:
    """Width of the block columns on a device.

    Wide enough that a pivot's pass over the matrix is not bound by the device's memory, narrow enough that the
    pivots' own inverses, which hardly use it, do not count.

    Examples
    --------
    >>> device_tile(900), device_tile(38_048)
    (900, 1024)
    """
    return min(n, 1024)


def device_memory(n: int, dtype: str, matrices: int = 1) -> int:
    """Bytes on a device that holds n × n matrices, one of which is swept there.

    Examples
    --------
    >>> device_memory(38_048, "float32") / 2**30 < 6
    True
    """
    tile = device_tile(n)
    store = PackedSymmetric.stored_numbers(n, tile) * np.dtype(dtype).itemsize
    return matrices * store + device_panels(n, tile) + DEVICE_SLICE


def device_panels(n: int, columns: int) -> int:
    """Bytes that a pivot of so many columns takes on a device: A_k, N, and both once more as factors.

    Examples
    --------
    >>> device_panels(38_048, 1024) / 2**30 < 2
    True
    """
    return 48 * n * columns
