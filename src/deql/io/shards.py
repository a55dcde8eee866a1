"""A flat store in several files: each written by whoever has its numbers, all of them mapped as one array."""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import weakref
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deql._version import __version__
from deql.errors import ModelFileError, reason
from deql.io.atomic import replace_file
from deql.io.container import FileKind, Placed, digest, read_header, write_arrays

__all__ = ["ALIGNMENT", "Shard", "check_shard", "cut", "map_shards", "shards_of", "write_shard"]

ALIGNMENT = 65536
"""Numbers of a shard begin at a multiple of so many bytes in its file: whole pages on every system."""

_KIND = FileKind("deql-shard", 1, ModelFileError, "fit the model again")
_ARRAY = "numbers"
_MAP_FIXED = 0x10
"""In place of what is mapped there; the same on Linux and macOS, and not among Python's names."""

_NewArray = Callable[[int, Any], NDArray[Any]]


@dataclass(frozen=True)
class Shard:
    """Some numbers of a flat store, in a file of their own.

    Attributes
    ----------
    file : str
        Its name within the folder.
    start, count : int
        Which numbers: ``start`` … ``start + count − 1``.
    dtype : str
        Their type.
    checksum : str
        Of all that the file says.

    Examples
    --------
    >>> Shard(**Shard("P-0.safetensors", 0, 3, "float32", "00").to_dict()).count
    3
    """

    file: str
    start: int
    count: int
    dtype: str
    checksum: str

    @property
    def nbytes(self) -> int:
        """What its numbers take."""
        return self.count * np.dtype(self.dtype).itemsize

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return asdict(self)


def write_shard(folder: Path, name: str, start: int, data: NDArray[Any]) -> Shard:
    """Write numbers ``start`` … of a flat store to a file of their own, whole or not at all.

    Parameters
    ----------
    folder : Path
        Where the files are.
    name : str
        Of the store; the file's name begins with it, and ends with the checksum, so that no other numbers have it.
    start : int
        Place of the first number.
    data : ndarray
        They, in one dimension or as a block whose rows follow each other.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     halves = [write_shard(Path(folder), "P", start, np.arange(start, start + 2.0)) for start in (0, 2)]
    ...     map_shards(Path(folder), halves)
    array([0., 1., 2., 3.])
    """
    numbers = np.ascontiguousarray(data).reshape(-1)
    metadata = _metadata(name, start)
    checksum = digest(metadata, {_ARRAY: numbers})
    shard = Shard(f"{name}-{start:015d}-{checksum[:8]}.safetensors", start, len(numbers), numbers.dtype.name, checksum)
    header = {_KIND.key: json.dumps(metadata | {"checksum": checksum, "library_version": __version__}, sort_keys=True)}
    path = Path(folder) / shard.file
    try:
        replace_file(path, lambda place: write_arrays(place, header, {_ARRAY: numbers}, ALIGNMENT))
    except OSError as error:
        raise ModelFileError(f"the shard {path} could not be written: {reason(error)}") from None
    return shard


def _metadata(name: str, start: int) -> dict[str, str]:
    return {"format_version": str(_KIND.version), "name": name, "start": str(start)}


def cut(count: int, dtype: Any, most: int) -> list[tuple[int, int]]:
    """First and last place + 1 of shards of about equally many and at most about ``most`` bytes, cut between pages.

    Examples
    --------
    >>> cut(40_000, np.float32, most=2**16)
    [(0, 16384), (16384, 32768), (32768, 40000)]
    """
    page = ALIGNMENT // np.dtype(dtype).itemsize
    pages = -(-count // page)
    shards = max(1, min(pages, -(-pages * ALIGNMENT // max(most, ALIGNMENT))))
    ends = [min(count, pages * (shard + 1) // shards * page) for shard in range(shards)]
    return list(zip([0, *ends[:-1]], ends, strict=True))


def map_shards(
    folder: Path, shards: Sequence[Shard], *, verify: bool = True, store: _NewArray = np.empty
) -> NDArray[Any]:
    """All numbers of a store, read-only and one after another at one range of addresses.

    The files are mapped where each begins and ends between two pages of memory; else they are read.

    Parameters
    ----------
    folder : Path
        Where the files are.
    shards : sequence of Shard
        In any order.
    verify : bool, default True
        Compare the checksums, for which every file is read once.
    store : callable, default numpy.empty
        Called with how many numbers and their type where the files must be read, gives the array to fill.

    Raises
    ------
    ModelFileError
        If a shard is missing, damaged, of another store, or the shards are not all of it.
    """
    folder = Path(folder)
    shards = sorted(shards, key=lambda shard: shard.start)
    _check_whole(folder, shards)
    offsets = [check_shard(folder / shard.file, shard) for shard in shards]
    if os.name == "posix" and _aligned(shards, offsets):
        owner = _Mapped(folder, shards, offsets)
    else:
        owner = _Mapped(folder, shards, offsets, store(sum(shard.count for shard in shards), shards[0].dtype))
    numbers = np.asarray(owner)
    if verify:
        for shard in shards:
            _verify(folder / shard.file, shard, numbers[shard.start : shard.start + shard.count])
    return numbers


def shards_of(array: NDArray[Any]) -> tuple[Path, list[Shard]] | None:
    """The folder and the shards that an array was mapped from, if it is all of them."""
    owner = array.base
    if not isinstance(owner, _Mapped) or array.shape != (owner.count,) or array.dtype.name != owner.shards[0].dtype:
        return None
    return owner.folder, owner.shards


def _check_whole(folder: Path, shards: Sequence[Shard]) -> None:
    if not shards:
        raise ModelFileError(f"no shards are named for {folder}: fit the model again")
    starts = [0, *accumulate(shard.count for shard in shards)]
    for start, shard in zip(starts, shards, strict=False):
        if shard.start != start or shard.count < 0:
            raise ModelFileError(
                f"the shards in {folder} do not follow each other: {shard.file} begins at number {shard.start:,}, and "
                f"the one before it ends at {start:,}; restore them or fit the model again"
            )
        if shard.dtype != shards[0].dtype:
            raise ModelFileError(
                f"the shards in {folder} are not of one type: {shard.file} is {shard.dtype}, and {shards[0].file} "
                f"{shards[0].dtype}; restore them or fit the model again"
            )


def check_shard(path: Path, shard: Shard) -> int:
    """Where the numbers begin in the file of a shard, if it is this one."""
    if os.path.basename(shard.file) != shard.file or not path.is_file():
        raise ModelFileError(f"the shard {path} is missing: restore it or fit the model again")
    metadata, places = read_header(_KIND, path)
    placed = places.get(_ARRAY)
    own = Placed(np.dtype(shard.dtype), (shard.count,), -1 if placed is None else placed.offset)
    if placed != own or metadata.get("checksum") != shard.checksum or metadata.get("start") != str(shard.start):
        raise ModelFileError(f"{path} is another shard than was written there: restore it or fit the model again")
    return own.offset


def _verify(path: Path, shard: Shard, numbers: NDArray[Any]) -> None:
    metadata, _ = read_header(_KIND, path)
    if digest(_metadata(metadata.get("name", ""), shard.start), {_ARRAY: numbers}) != shard.checksum:
        raise ModelFileError(f"the shard {path} is damaged: its checksum does not match; restore it or {_KIND.remedy}")


def _aligned(shards: Sequence[Shard], offsets: Sequence[int]) -> bool:
    """Whether each file can be mapped at its place: nothing but the end of the last may lie within a page."""
    page, size = mmap.ALLOCATIONGRANULARITY, np.dtype(shards[0].dtype).itemsize
    whole = all(shard.count and not shard.start * size % page for shard in shards)
    return whole and not any(offset % page for offset in offsets)


class _Mapped:
    """Whose memory an array of shards is: unmapped when the last view of it goes."""

    def __init__(
        self, folder: Path, shards: list[Shard], offsets: Sequence[int], memory: NDArray[Any] | None = None
    ) -> None:
        self.folder, self.shards = folder, shards
        self.count = sum(shard.count for shard in shards)
        if memory is None:
            self._address = self._map(offsets)
        else:
            self._memory, self._address = memory, memory.ctypes.data
            for shard, offset in zip(shards, offsets, strict=True):
                with open(folder / shard.file, "rb") as file:
                    file.seek(offset)
                    room = memory[shard.start : shard.start + shard.count].view(np.uint8)
                    if file.readinto(room.data) != shard.nbytes:
                        raise ModelFileError(f"the shard {folder / shard.file} was cut short while it was read")

    @property
    def __array_interface__(self) -> dict[str, Any]:
        kind = np.dtype(self.shards[0].dtype)
        return {"version": 3, "shape": (self.count,), "typestr": kind.str, "data": (self._address, True)}

    def _map(self, offsets: Sequence[int]) -> int:
        library = ctypes.CDLL(None, use_errno=True)
        library.mmap.restype = ctypes.c_void_p
        library.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_longlong]
        library.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]

        def place(address: int | None, size: int, protection: int, flags: int, file: int, offset: int) -> int:
            found = library.mmap(address, size, protection, flags, file, offset)
            if found is None or found == ctypes.c_void_p(-1).value:
                number = ctypes.get_errno()
                raise ModelFileError(f"the shards in {self.folder} cannot be mapped: {os.strerror(number).lower()}")
            return int(found)

        size = sum(shard.nbytes for shard in self.shards)
        # Addresses alone, without memory: each file then takes the place of its own.
        reserve = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
        whole = place(None, size, 0, reserve, -1, 0)
        weakref.finalize(self, library.munmap, whole, size).atexit = False  # others may use them until the end
        at = whole
        for shard, offset in zip(self.shards, offsets, strict=True):
            with open(self.folder / shard.file, "rb") as file:
                place(at, shard.nbytes, mmap.PROT_READ, mmap.MAP_SHARED | _MAP_FIXED, file.fileno(), offset)
            at += shard.nbytes
        return whole
