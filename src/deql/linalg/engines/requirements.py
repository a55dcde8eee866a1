"""How large a fit is, and what an engine needs for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from deql._system.units import show_bytes
from deql.errors import DataError
from deql.linalg.packed import PackedSymmetric
from deql.linalg.tiling import choose_tile

if TYPE_CHECKING:
    from deql.split.parts import SplitOrInteractions

__all__ = ["INTERPRETER", "PlannedData", "ProblemSize", "Requirement", "lacking", "problem_size"]

PlannedData: TypeAlias = "SplitOrInteractions | int"
"""What would be fitted on: interactions, a matrix, a split (its training part), or only the number of items."""

INTERPRETER = 192 * 2**20
"""Python and the packages that a fit loads, before any data."""


@dataclass(frozen=True)
class ProblemSize:
    """How large a fit is: what its time and memory depend on.

    Attributes
    ----------
    n : int
        Number of items.
    dtype : str
        float32 or float64.
    matrix : csr_array, optional
        Users × items; None if only the number of items is known.
    matrices : int, default 1
        How many of n × n there are at once: 2 where a Gram matrix is kept, to be inverted with other ridges.
    """

    n: int
    dtype: str
    matrix: Any = None
    matrices: int = 1

    @property
    def stored(self) -> int:
        """Bytes of the interactions, which are in memory already."""
        parts = () if self.matrix is None else (self.matrix.data, self.matrix.indices, self.matrix.indptr)
        return sum(part.nbytes for part in parts)

    @property
    def work(self) -> int:
        """Bytes that the Gram matrix takes for a while: interactions by item, and two numbers for each."""
        return 0 if self.matrix is None else self.stored + 16 * int(self.matrix.nnz)

    @property
    def pairs(self) -> int:
        """Σ_u |u|²: how often two items have a user in common."""
        return 0 if self.matrix is None else int((np.diff(self.matrix.indptr).astype(np.int64) ** 2).sum())

    @property
    def itemsize(self) -> int:
        """Bytes of a number."""
        return 4 if self.dtype == "float32" else 8

    @property
    def tile(self) -> int:
        """Width of the block columns in memory and on disk."""
        return choose_tile(self.n)

    @property
    def packed(self) -> int:
        """Bytes of the packed matrix."""
        return PackedSymmetric.stored_numbers(self.n, self.tile) * self.itemsize


@dataclass(frozen=True)
class Requirement:
    """What one engine needs, and why it cannot have it.

    Attributes
    ----------
    engine : str
    memory : int
        Peak of the process in bytes, with Python and the interactions.
    disk, device_memory : int
        Bytes.
    passes : int
        How often all of the matrix is read from a disk, or copied through a device that cannot hold it, and back.
    why_not : str or None
        None if it fits.
    too_large : bool
        Whether size is the reason, rather than something that is missing.
    seconds : float or None
        Predicted.
    """

    engine: str
    memory: int
    disk: int = 0
    device_memory: int = 0
    passes: int = 0
    why_not: str | None = None
    too_large: bool = True
    seconds: float | None = None


def problem_size(data: PlannedData, dtype: str) -> ProblemSize:
    """What is known of the data: interactions, a matrix, a split (its training part), or a number of items.

    Examples
    --------
    >>> problem_size(38_048, "float32").packed / 2**30 < 2.8
    True
    """
    if isinstance(data, int | np.integer) and not isinstance(data, bool):
        if data < 1:
            raise DataError(f"the number of items must be at least 1, got {data}")
        return ProblemSize(int(data), dtype)
    from scipy.sparse import csr_array

    given: Any = getattr(data, "train", data)
    try:
        matrix = csr_array(getattr(given, "matrix", given))
    except (TypeError, ValueError):
        matrix = None
    if matrix is None or matrix.ndim != 2:
        kind = type(given).__name__
        raise DataError(
            f"a plan needs interactions, a split, a matrix of users × items or a number of items, got {kind}"
        )
    if not matrix.shape[1]:
        raise DataError("there are no items to plan for")
    return ProblemSize(matrix.shape[1], dtype, matrix)


def lacking(what: str, needed: int, free: int) -> str | None:
    """Why something cannot be had, if more is needed than is free.

    Examples
    --------
    >>> lacking("memory", 2**31, 2**30)
    'it needs 2.0 GiB of memory, and 1.0 GiB are free'
    """
    return f"it needs {show_bytes(needed)} of {what}, and {show_bytes(free)} are free" if needed > free else None
