"""Room for another P beside one that is there: in memory, or in a file without a name."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from deql._system.machine import free_memory, scratch_folder
from deql.errors import TileFileError, reason
from deql.linalg.engines.tile_folder import Scratch, check_room
from deql.linalg.packed import PackedSymmetric

__all__ = ["new_store"]


def new_store(
    n: int,
    tile: int,
    dtype: DTypeLike,
    *,
    engine: str = "memory",
    folder: str | os.PathLike[str] | None = None,
) -> NDArray[Any]:
    """The flat store of a packed matrix, yet to be filled.

    It lies in memory, but for the disk engine, and where there is too little memory: then in a file without a name,
    mapped, which vanishes with the array.

    Parameters
    ----------
    n, tile : int
        Order of the matrix and width of a block column.
    dtype : dtype
    engine : str, default "memory"
        The engine that computed P.
    folder : path, optional
        Whose disk a file takes; where the disk engine has its files if not given.

    Raises
    ------
    TileFileError
        If the disk has no room.

    Examples
    --------
    >>> new_store(3, 2, np.float32).shape, type(new_store(3, 2, np.float32, engine="disk")).__name__
    ((7,), 'memmap')
    """
    numbers = PackedSymmetric.stored_numbers(n, tile)
    size = numbers * np.dtype(dtype).itemsize
    if os.name != "posix" or (engine != "disk" and size < free_memory()):
        return np.empty(numbers, dtype)
    place = Path(folder) if folder is not None and Path(folder).is_dir() else scratch_folder()
    check_room(place, size)
    with Scratch(place) as scratch:
        tiles = scratch.open_tiles(0, size, dtype)
    try:
        if hasattr(os, "posix_fallocate"):  # a disk that is full while pages are written would end the process
            os.posix_fallocate(tiles.descriptor, 0, size)
        return tiles.map(numbers, "r+")
    except OSError as error:
        raise TileFileError(f"{tiles.name} cannot be written: {reason(error)}; name a folder with more room") from None
    finally:
        tiles.close()
