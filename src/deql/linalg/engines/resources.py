"""The resources of this machine: memory, disk and devices."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from deql._system.machine import free_memory, resident_file_system
from deql.linalg.engines.tile_folder import as_path, scratch_folder

__all__ = ["Device", "Resources", "cuda_device", "find_resources"]


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
