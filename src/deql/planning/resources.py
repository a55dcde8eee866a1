"""What is there to fit with: memory, disk and devices."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from deql.machine import free_memory, resident_file_system

__all__ = ["Device", "Resources", "cuda_devices", "find_resources"]


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
    torch: bool = False
    devices: tuple[Device, ...] = ()


def find_resources(folder: str | os.PathLike[str] | None = None, devices: bool = True) -> Resources:
    """Look at the machine.

    Parameters
    ----------
    folder : path, optional
        Where the disk engine would keep its tiles; where it keeps them by itself if not given.
    devices : bool, default True
        Whether to look for devices, for which torch is imported.

    Examples
    --------
    >>> find_resources(devices=False).memory > 0
    True
    """
    from deql.precision.tile_folder import scratch_folder

    place = scratch_folder() if folder is None else Path(folder).absolute()
    # Tiles of a fit that goes on have their room already; files may be longer than what is written of them.
    tiles = place.iterdir() if folder is not None and place.is_dir() else ()
    held = sum(tile.stat().st_blocks * 512 for tile in tiles if tile.is_file())
    there = next(above for above in (place, *place.parents) if above.is_dir())
    return Resources(
        free_memory(),
        shutil.disk_usage(there).free + held,
        there,
        not resident_file_system(there),
        os.access(there, os.W_OK | os.X_OK),
        importlib.util.find_spec("torch") is not None,
        cuda_devices() if devices else (),
    )


def cuda_devices() -> tuple[Device, ...]:
    """The CUDA devices that torch can use, in its order."""
    # Importing torch takes seconds: not where no driver is loaded (NVIDIA's, Windows' own, AMD's).
    drivers = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")
    if not importlib.util.find_spec("torch") or (sys.platform == "linux" and not any(map(os.path.exists, drivers))):
        return ()
    import torch

    if not torch.cuda.is_available():
        return ()
    names = [f"cuda:{index}" for index in range(torch.cuda.device_count())]
    return tuple(Device(name, torch.cuda.get_device_name(name), *torch.cuda.mem_get_info(name)) for name in names)
