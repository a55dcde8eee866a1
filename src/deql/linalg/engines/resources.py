"""How large a fit is, what an engine needs for it, and the resources that are free: memory, disk and devices."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from deql._system.formatting import show_bytes
from deql._system.machine import free_memory, resident_file_system, scratch_folder
from deql.errors import DataError
from deql.linalg.engines.stored_rows import StoredRows
from deql.linalg.packed import PackedSymmetric
from deql.linalg.tiling import choose_tile

if TYPE_CHECKING:
    from deql.split.parts import SplitOrInteractions

__all__ = [
    "INTERPRETER", "Device", "PlannedData", "ProblemSize", "Requirement", "Resources", "cuda_device", "find_resources",
    "lacking", "problem_size",
]  # fmt: skip

PlannedData: TypeAlias = "SplitOrInteractions | StoredRows | int"
"""What would be fitted on: interactions, whole or in parts, a matrix, a split (its training part), or only the number
of items."""

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
    stored_rows : StoredRows, optional
        What is known in place of the matrix where that is not in memory.
    matrices : int, default 1
        How many of n × n there are at once: 2 where a Gram matrix is kept, to be inverted with other ridges.
    beside : int, default 0
        Bytes of memory that are needed beside them, for the factors of a prior.
    """

    n: int
    dtype: str
    matrix: Any = None
    matrices: int = 1
    beside: int = 0
    stored_rows: StoredRows | None = None

    @property
    def stored(self) -> int:
        """Bytes of the interactions, which are in memory already, or will be if an engine joins their parts."""
        if self.stored_rows is not None:
            return self.stored_rows.data.stored
        parts = () if self.matrix is None else (self.matrix.data, self.matrix.indices, self.matrix.indptr)
        return sum(part.nbytes for part in parts)

    @property
    def work(self) -> int:
        """Bytes that the Gram matrix takes for a while: interactions by item, and two numbers for each."""
        if self.stored_rows is not None:  # and the interactions themselves, which are not in memory yet
            return 2 * self.stored + 16 * self.stored_rows.data.n_interactions
        return 0 if self.matrix is None else self.stored + 16 * int(self.matrix.nnz)

    @property
    def pairs(self) -> int:
        """Σ_u |u|²: how often two items have a user in common."""
        if self.stored_rows is not None:
            return self.stored_rows.data.pairs
        return 0 if self.matrix is None else int((np.diff(self.matrix.indptr).astype(np.int64) ** 2).sum())

    @property
    def item_counts(self) -> NDArray[np.int64] | None:
        """How many users have each item; None if only the number of items is known."""
        if self.stored_rows is not None:
            return self.stored_rows.data.item_counts[: self.n]
        return None if self.matrix is None else np.bincount(self.matrix.indices, minlength=self.n)

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

    from deql.data.partitions import PartitionedInteractions

    given: Any = getattr(data, "train", data)
    if isinstance(given, PartitionedInteractions):
        given = StoredRows(given)
    if isinstance(given, StoredRows):
        return ProblemSize(given.shape[1], dtype, stored_rows=given)
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


@dataclass(frozen=True)
class Device:
    """A CUDA device.

    Attributes
    ----------
    name : str
        As torch calls it: ``"cuda:0"``.
    model : str
        What its maker calls it.
    free, total : int
        Bytes of its memory.
    """

    name: str
    model: str
    free: int
    total: int


@dataclass(frozen=True)
class Resources:
    """What a fit may use.

    Attributes
    ----------
    memory : int
        Free bytes of memory, as control groups and limits leave them.
    disk : int
        Free bytes where the disk engine's tiles would go, with what tiles already take there.
    folder : Path
        Where that is, or the nearest folder above that exists.
    on_disk : bool
        False if that folder lies in memory itself.
    writable : bool
        Whether files can be made there.
    unreachable : str
        Why there can be no folder of that name, or nothing.
    torch : bool
        Whether torch is installed.
    devices : tuple of Device
        Those that it can use.
    """

    memory: int
    disk: int
    folder: Path
    on_disk: bool
    writable: bool = True
    unreachable: str = ""
    torch: bool = False
    devices: tuple[Device, ...] = ()


def find_resources(
    folder: str | os.PathLike[str] | None = None, devices: bool = True, device: str | None = None
) -> Resources:
    """Look at the machine.

    Parameters
    ----------
    folder : path, optional
        Where the disk engine would keep its tiles; where it keeps them by itself if not given.
    devices : bool, default True
        Whether to look for a device, for which torch is imported.
    device : str, optional
        Which one; torch's current one if not given.

    Examples
    --------
    >>> find_resources(devices=False).memory > 0
    True
    """
    from deql.linalg.engines.tile_folder import as_path  # not where torch and NumPy are all there is

    place = scratch_folder() if folder is None else as_path(folder)
    unreachable = ""
    if not place.is_dir() and (place.exists() or not place.parent.is_dir()):
        unreachable = f"{place} is not a folder" if place.exists() else f"there is no folder {place.parent}"
    # Tiles of a fit that is resumed have their room already; files may be longer than what is written of them.
    tiles = place.iterdir() if folder is not None and place.is_dir() else ()
    held = 0
    for tile in tiles:
        with suppress(OSError):  # another process may be removing them
            held += tile.stat().st_blocks * 512
    nearest = next(above for above in (place, *place.parents) if above.is_dir())
    return Resources(
        free_memory(),
        shutil.disk_usage(nearest).free + held,
        nearest,
        not resident_file_system(nearest),
        os.access(nearest, os.W_OK | os.X_OK),
        unreachable,
        importlib.util.find_spec("torch") is not None,
        cuda_device(device) if devices else (),
    )


def cuda_device(name: str | None = None) -> tuple[Device, ...]:
    """The CUDA device of this name, or the current one, if torch can use it; others are left alone."""
    # Importing torch takes seconds: not where no driver is loaded (NVIDIA's, Windows' own, AMD's).
    drivers = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")
    absent = sys.platform == "darwin" or (sys.platform == "linux" and not any(map(os.path.exists, drivers)))
    if absent or name == "cpu" or not importlib.util.find_spec("torch"):
        return ()
    try:
        import torch

        from deql.linalg.engines.torch_packed import free_bytes

        if not torch.cuda.is_available():
            return ()
        index = torch.device(name or "cuda").index
        place = f"cuda:{torch.cuda.current_device() if index is None else index}"
        total = torch.cuda.mem_get_info(place)[1]
        return (Device(place, torch.cuda.get_device_name(place), free_bytes(place), total),)
    except (ImportError, OSError, RuntimeError, AssertionError):
        return ()  # a device that is broken, busy or not there: the others are not worse for it
