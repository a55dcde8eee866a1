"""A packed matrix in a file, slab by slab: checksummed, read ahead and written behind the work."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import cycle, islice
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import xxhash
from numpy.typing import DTypeLike, NDArray

from deql.errors import TileFileError, reason
from deql.linalg.packed import block_offset

__all__ = ["BUFFERS", "RESUME", "Slab", "SlabIO", "TileFile", "cut_slabs"]

BUFFERS = 6
"""Slabs in memory at once: one at work, three read ahead of it, two being written."""

RESUME = "put that right and fit with the same folder again: it goes on from the last pass that was finished, if any"

_AHEAD = 3
_SYNC_BYTES = 2**26
_to_disk = getattr(os, "fdatasync", os.fsync)


class Slab(NamedTuple):
    """Some whole rows of a block column: contiguous in the file, read and written at once.

    Attributes
    ----------
    number : int
        Of all slabs, in the file's order.
    top, left : int
        First row and first column.
    rows, columns : int
        How many.
    offset : int
        Where it begins in the packed store.
    """

    number: int
    top: int
    left: int
    rows: int
    columns: int
    offset: int


def cut_slabs(n: int, tile: int, height: int) -> list[Slab]:
    """All slabs of a packed matrix, their rows cut at the multiples of ``height``, which is one of ``tile``.

    Examples
    --------
    >>> [(slab.top, slab.left, slab.rows, slab.columns, slab.offset) for slab in cut_slabs(n=5, tile=2, height=4)]
    [(0, 0, 4, 2, 0), (4, 0, 1, 2, 8), (2, 2, 2, 2, 10), (4, 2, 1, 2, 14), (4, 4, 1, 1, 16)]
    """
    slabs: list[Slab] = []
    for left in range(0, n, tile):
        columns = min(tile, n - left)
        first = block_offset(left // tile, n, tile)
        for band in range(left // height * height, n, height):
            top, bottom = max(band, left), min(band + height, n)
            slabs.append(Slab(len(slabs), top, left, bottom - top, columns, first + (top - left) * columns))
    return slabs


class TileFile:
    """A packed store on disk, with the checksum of each of its slabs.

    Parameters
    ----------
    descriptor : int
        Of the open file, which is closed with this object.
    name : str
        The file in messages.
    dtype : dtype
        Type of the numbers.
    keeps : bool
        Whether the file outlives the process, so that what is written must get to the disk.

    Attributes
    ----------
    checksums : list of str
        XXH3 of each slab, by its number.
    """

    def __init__(self, descriptor: int, name: str, dtype: DTypeLike, keeps: bool) -> None:
        self.descriptor = descriptor
        self.name = name
        self.dtype = np.dtype(dtype)
        self.keeps = keeps
        self.checksums: list[str] = []
        self._unsynced = 0

    def read(self, slab: Slab, values: NDArray[Any]) -> None:
        """Fill ``values`` with a slab."""
        rest, place = values.data.cast("B"), slab.offset * self.dtype.itemsize
        while rest:
            try:
                count = os.preadv(self.descriptor, [rest], place)
            except OSError as error:
                raise TileFileError(f"{self.name} cannot be read: {reason(error)}") from None
            if not count:
                raise self._damaged(slab, "are missing")
            rest, place = rest[count:], place + count
        if xxhash.xxh3_64_hexdigest(values.data) != self.checksums[slab.number]:
            raise self._damaged(slab, "do not match their checksum")

    def write(self, slab: Slab, values: NDArray[Any]) -> None:
        """Write a slab and note its checksum."""
        self.checksums[slab.number] = xxhash.xxh3_64_hexdigest(values.data)
        self.put(slab.offset, values)

    def put(self, offset: int, values: NDArray[Any]) -> None:
        """Write contiguous numbers from place ``offset`` of the store on."""
        rest, place = values.data.cast("B"), offset * self.dtype.itemsize
        self._unsynced += len(rest)
        while rest:
            try:
                count = os.pwritev(self.descriptor, [rest], place)
            except OSError as error:
                raise self._unwritten(error) from None
            rest, place = rest[count:], place + count
        if self._unsynced >= _SYNC_BYTES:  # while the work goes on, so that little is left to wait for
            self.sync()

    def sync(self) -> None:
        """Return when all that was written would outlive a power cut."""
        self._unsynced = 0
        if self.keeps:
            try:
                _to_disk(self.descriptor)
            except OSError as error:
                raise self._unwritten(error) from None

    def map(self, numbers: int, mode: Literal["r", "r+"] = "r") -> NDArray[Any]:
        """The whole store, memory-mapped; it stays usable when the file is closed or its name is gone."""
        with open(os.dup(self.descriptor), "rb" if mode == "r" else "r+b") as file:
            return np.memmap(file, self.dtype, mode, shape=(numbers,))

    def close(self) -> None:
        """Let the file go."""
        os.close(self.descriptor)

    def _damaged(self, slab: Slab, what: str) -> TileFileError:
        return TileFileError(
            f"{self.name} is damaged: rows {slab.top:,} to {slab.top + slab.rows - 1:,} of its columns "
            f"{slab.left:,} to {slab.left + slab.columns - 1:,} {what}; delete the folder to begin again"
        )

    def _unwritten(self, error: OSError) -> TileFileError:
        advice = RESUME if self.keeps else "name a folder with more room"
        return TileFileError(f"{self.name} cannot be written: {reason(error)}; {advice}")


class _Buffer:
    """Memory for a slab, and the write that still needs it."""

    def __init__(self, numbers: int, dtype: DTypeLike) -> None:
        self._numbers = np.empty(numbers, dtype)
        self.written: Future[None] | None = None

    def shaped(self, slab: Slab) -> NDArray[Any]:
        return self._numbers[: slab.rows * slab.columns].reshape(slab.rows, slab.columns)

    def wait(self) -> None:
        if self.written is not None:
            self.written.result()
            self.written = None


class SlabIO:
    """Slabs on their way from a file to the work and from it to a file, in a few buffers that are used in turn.

    Parameters
    ----------
    numbers : int
        In the largest slab.
    dtype : dtype
        Type of the numbers.

    Examples
    --------
    >>> import tempfile
    >>> slabs = cut_slabs(n=3, tile=2, height=2)
    >>> with tempfile.TemporaryFile() as raw, SlabIO(4, np.float32) as slab_io:
    ...     file = TileFile(raw.fileno(), "example", np.float32, keeps=False)
    ...     file.checksums = [""] * len(slabs)
    ...     for slab in slabs:
    ...         values = slab_io.empty(slab)
    ...         values[:] = slab.number
    ...         slab_io.write(file, slab)
    ...     slab_io.finish()
    ...     [values.tolist() for slab, values in slab_io.read(file, slabs)]
    [[[0.0, 0.0], [0.0, 0.0]], [[1.0, 1.0]], [[2.0]]]
    """

    def __init__(self, numbers: int, dtype: DTypeLike) -> None:
        self._buffers = [_Buffer(numbers, dtype) for _ in range(BUFFERS)]
        self._turns = cycle(self._buffers)
        self._at_work = self._buffers[0]
        self._reader, self._writer = ThreadPoolExecutor(2), ThreadPoolExecutor(2)

    def read(self, file: TileFile, slabs: Iterable[Slab]) -> Iterator[tuple[Slab, NDArray[Any]]]:
        """Each slab with its numbers, which stay until the next one is asked for, or written until they are."""
        rest = iter(slabs)
        ahead = deque(self._fetch(file, slab) for slab in islice(rest, _AHEAD))
        while ahead:
            slab, buffer, filled = ahead.popleft()
            values = filled.result()
            ahead.extend(self._fetch(file, slab) for slab in islice(rest, 1))
            self._at_work = buffer
            yield slab, values

    def empty(self, slab: Slab) -> NDArray[Any]:
        """Room for a slab that is to be written."""
        self._at_work = next(self._turns)
        self._at_work.wait()
        return self._at_work.shaped(slab)

    def write(self, file: TileFile, slab: Slab) -> None:
        """Begin to write the slab that was read or made last."""
        self._at_work.written = self._writer.submit(file.write, slab, self._at_work.shaped(slab))

    def finish(self) -> None:
        """Return when all is written."""
        for buffer in self._buffers:
            buffer.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for pool in (self._reader, self._writer):
            pool.shutdown(cancel_futures=True)

    def _fetch(self, file: TileFile, slab: Slab) -> tuple[Slab, _Buffer, Future[NDArray[Any]]]:
        buffer = next(self._turns)

        def fill() -> NDArray[Any]:
            buffer.wait()
            values = buffer.shaped(slab)
            file.read(slab, values)
            return values

        return slab, buffer, self._reader.submit(fill)
