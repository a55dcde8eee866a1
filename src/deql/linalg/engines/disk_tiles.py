"""A packed matrix in a file as the sweep sees it: read from one file and written to another, once for each pivot."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import Any, Self

import numpy as np
import xxhash
from numpy.typing import NDArray

from deql._system.progress import ProgressCallback
from deql.linalg.engines.tile_file import Slab, SlabIO, cut_slabs
from deql.linalg.engines.tile_folder import Checkpoint, Scratch, TileFolder, check_room
from deql.linalg.packed import PackedSymmetric, mirror_lower, multiply
from deql.linalg.sweep import Piece

__all__ = ["DiskTiles"]


class DiskTiles:
    """A packed matrix in a file as the sweep sees it, pivots of several tiles at a time.

    Slabs are cut where pivots begin and end, so that each is either of a pivot or on one side of it. A pass
    reads every slab once from one file and writes it once to the other.

    Parameters
    ----------
    place : TileFolder or Scratch
        Where the files are.
    n, tile : int
        Order of the matrix and width of its block columns.
    pivot : int
        Width of a pivot, a multiple of ``tile``.
    dtype : dtype
        Type of the numbers.

    Attributes
    ----------
    done : int
        Pivots that are swept.
    report : callable or None
        Called as ``report(done, total)`` as slabs are swept, every pivot counting them all.
    """

    def __init__(self, place: TileFolder | Scratch, n: int, tile: int, pivot: int, dtype: np.dtype[Any]) -> None:
        self.n, self.tile, self.pivot, self.dtype = n, tile, pivot, dtype
        self.report: ProgressCallback | None = None
        self.slabs = cut_slabs(n, tile, pivot)
        self._place = place
        self._swept = 0
        self._numbers = PackedSymmetric.stored_numbers(n, tile)
        size = self._numbers * dtype.itemsize
        found = place.checkpoint
        self.done, generation = (found.done, found.generation) if found else (0, 0)
        self._passes = len(self.pivots())
        if isinstance(place, TileFolder) and found is not None:
            numbered = len(found.checksums) == len(self.slabs) and self.done <= self._passes
            if not numbered or (pivot % tile and pivot < n):
                raise place.damaged()
        check_room(place.path, size if self.done == self._passes else 2 * size)
        with ExitStack() as opened:
            self._files = {}
            for number in (generation, 1 - generation):  # if the first is damaged, the second is left alone
                file = self._files[number] = place.open_tiles(number, size, dtype)
                opened.callback(file.close)
                file.checksums = [""] * len(self.slabs)
            if found:
                self._files[generation].checksums = found.checksums
            self._generation = generation
            self._slab_io = opened.enter_context(SlabIO(max(slab.rows * slab.columns for slab in self.slabs), dtype))
            self._opened = opened.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._opened.close()

    def fill(self, bands: Iterable[tuple[int, list[NDArray[Any]]]], diagonal_plus: NDArray[np.float64]) -> None:
        """Write the Gram matrix as it is made, ``diagonal_plus`` added to its diagonal."""
        file = self._files[self._generation]
        hashes = {(slab.left, slab.top // self.pivot): (slab, xxhash.xxh3_64()) for slab in self.slabs}
        for first, parts in bands:
            i = np.arange(len(parts[-1]))
            parts[-1][i, i] += diagonal_plus[first : first + len(i)].astype(self.dtype)
            for block, part in enumerate(parts):
                slab, whole = hashes[block * self.tile, first // self.pivot]
                whole.update(part.data)
                file.put(slab.offset + (first - slab.top) * slab.columns, part)
        for slab, whole in hashes.values():
            file.checksums[slab.number] = whole.hexdigest()
        file.sync()

    def begin(self, images: NDArray[np.float64]) -> None:
        """Make the first checkpoint, before any pivot."""
        self._place.begin(images)
        self._save(0, self._generation)

    def result(self) -> PackedSymmetric:
        """The matrix, memory-mapped; the other file is removed."""
        self._place.drop_tiles(1 - self._generation)
        return PackedSymmetric(self.n, self.tile, self._files[self._generation].map(self._numbers))

    def diagonal(self) -> NDArray[np.float64]:
        """Copy of the diagonal in float64."""
        corners = [slab for slab in self.slabs if slab.top == slab.left]
        return np.concatenate([np.diagonal(values).astype(np.float64) for _, values in self._read(corners)])

    def matvec(self, x: NDArray[Any]) -> NDArray[np.float64]:
        """Product with a vector or a few columns: one pass over the file."""
        parts = ((slab.top, slab.left, values) for slab, values in self._read(self.slabs))
        return multiply(parts, x, self.dtype)

    def pivots(self) -> list[tuple[int, int]]:
        return [(start, min(start + self.pivot, self.n)) for start in range(0, self.n, self.pivot)]

    def gather(self, start: int, stop: int, panel: NDArray[Any]) -> None:
        for (_, top, left, rows, columns, _), values in self._read(self._of_pivot(start)):
            if top < stop:  # rows of the pivot: the mirror images of its columns
                panel[left : left + columns, top - start : top - start + rows] = values.T
            if left >= start:
                panel[top : top + rows, left - start : left - start + columns] = values

    def pieces(self, start: int, stop: int) -> Iterator[Piece]:
        own = {slab.number for slab in self._of_pivot(start)}
        for slab, values in self._read(slab for slab in self.slabs if slab.number not in own):
            yield Piece(slab.top, slab.left, values)
            self._write(slab, values, stop)

    def scatter(self, start: int, stop: int, panel: NDArray[Any]) -> None:
        for slab in self._of_pivot(start):
            _, top, left, rows, columns, _ = slab
            values = self._slab_io.empty(slab)
            if left >= start:
                values[:] = panel[top : top + rows, left - start : left - start + columns]
            else:
                values[:] = panel[left : left + columns, top - start : top - start + rows].T
            self._write(slab, values, stop)
        self._commit()

    def _of_pivot(self, start: int) -> list[Slab]:
        """Slabs in the pivot's rows or columns."""
        return [
            slab
            for slab in self.slabs
            if start in (slab.top // self.pivot * self.pivot, slab.left // self.pivot * self.pivot)
        ]

    def _read(self, slabs: Iterable[Slab]) -> Iterator[tuple[Slab, NDArray[Any]]]:
        return self._slab_io.read(self._files[self._generation], slabs)

    def _write(self, slab: Slab, values: NDArray[Any], stop: int) -> None:
        if stop == self.n and slab.top == slab.left:  # the last pass: what scoring reads must be whole
            mirror_lower(values[: slab.columns])
        self._slab_io.write(self._files[1 - self._generation], slab)
        self._swept += 1
        if self.report is not None:
            self.report(self.done * len(self.slabs) + self._swept, self._passes * len(self.slabs))

    def _commit(self) -> None:
        """All of a pass is written: from now on the other file holds the matrix."""
        self._slab_io.finish()
        self._files[1 - self._generation].sync()
        self._save(self.done + 1, 1 - self._generation)
        self.done, self._generation, self._swept = self.done + 1, 1 - self._generation, 0

    def _save(self, done: int, generation: int) -> None:
        self._place.save(Checkpoint(self.pivot, done, generation, list(self._files[generation].checksums)))
