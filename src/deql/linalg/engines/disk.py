"""The disk engine: the sweep with the packed store in a file, in as much memory as it is given."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import xxhash
from numpy.typing import DTypeLike, NDArray
from scipy.sparse import csr_array

from deql._system.progress import Report, Stage
from deql._system.threads import blas_limited
from deql.errors import NotPositiveDefiniteError, ParameterError, PrecisionError, TileFileError
from deql.linalg.engines.memory import Blas
from deql.linalg.engines.tile_file import ROOMS, Conveyor, Slab, cut_slabs
from deql.linalg.engines.tile_folder import Checkpoint, Scratch, TileFolder, check_room, scratch_folder
from deql.linalg.gram import gram_bands
from deql.linalg.invert import check_diagonal, check_inverse, probe
from deql.linalg.packed import PackedSymmetric, mirror_lower, multiply
from deql.linalg.sweep import Piece, sweep
from deql.linalg.tiling import WIDEST_PIVOT, choose_tile

__all__ = ["DiskTiles", "disk_needed", "invert_on_disk", "least_budget", "widest_pivot", "working_memory"]


def invert_on_disk(
    matrix: csr_array,
    *,
    weights: NDArray[np.float64] | None = None,
    diagonal_plus: NDArray[np.float64],
    dtype: DTypeLike = np.float32,
    budget: int,
    folder: str | os.PathLike[str] | None = None,
    fingerprint: str = "",
    stage: Stage = lambda _label: None,
    tile: int | None = None,
) -> tuple[PackedSymmetric, float]:
    """P = (RᵀΛR + diag(diagonal_plus))⁻¹ in a file, and how far P·A is from the identity.

    Each pivot is one pass: the matrix is read from one file and written to another, and when that is safely
    on disk a manifest says so. Killed at any moment, the same call goes on from the last finished pivot,
    to the same result bit for bit.

    Parameters
    ----------
    matrix : csr_array
        Users × items R, its column indices sorted within each row.
    weights : ndarray, optional
        Of the users; 1 for each if not given.
    diagonal_plus : ndarray
        What is added to the diagonal.
    dtype : dtype, default float32
        Type of the matrix and its inverse.
    budget : int
        Bytes for panels and slabs. What the interpreter, R and its transpose take is not counted.
    folder : path, optional
        Where the files are kept; a fit that was killed there goes on. Afterwards it holds P, on which the
        result is mapped, and another call returns that at once. If not given, the files have no name and
        vanish with the result.
    fingerprint : str
        Of the data and parameters: a folder with the tiles of another fit is refused.
    stage : callable, optional
        Called with the name of each part of the work; returns its ``report(done, total)`` or None.
    tile : int, optional
        Width of the block columns; chosen from the number of items if not given.

    Returns
    -------
    precision : PackedSymmetric
        P, memory-mapped.
    residual : float
        As :func:`deql.linalg.invert` returns it.

    Raises
    ------
    ParameterError
        If the budget is too small.
    TileFileError
        If the disk is full, or the folder is damaged, foreign, in use or of another fit.
    NotPositiveDefiniteError, PrecisionError
        As :func:`deql.linalg.invert` raises them; nothing is kept then.

    Examples
    --------
    >>> R = csr_array([[1.0, 1.0, 0.0], [0.0, 2.0, 1.0]])
    >>> P, residual = invert_on_disk(R, diagonal_plus=np.ones(3), budget=2**20, dtype=np.float64)
    >>> P.to_dense().round(4)
    array([[ 0.5714, -0.1429,  0.1429],
           [-0.1429,  0.2857, -0.2857],
           [ 0.1429, -0.2857,  0.7857]])
    """
    if os.name != "posix":
        raise TileFileError("the disk engine needs Linux or macOS: use engine='memory'")
    n = matrix.shape[1]
    tile, dtype = tile or choose_tile(n), np.dtype(dtype)
    about = {"fingerprint": fingerprint, "n": n, "tile": tile, "dtype": dtype.name}
    with Scratch(scratch_folder()) if folder is None else TileFolder(Path(folder), about) as place:
        found = place.checkpoint
        pivot = widest_pivot(n, tile, dtype, budget) if found is None else found.pivot
        if found is not None and found.done * pivot < n and working_memory(n, tile, dtype, pivot) > budget:
            raise ParameterError(
                f"the fit in {place.path} was begun with {_mib(working_memory(n, tile, dtype, pivot))} of memory: "
                f"{_mib(budget)} are too little to go on with it"
            )
        with DiskTiles(place, n, tile, pivot, dtype) as tiles, blas_limited():
            if found is None:
                bands = gram_bands(matrix, weights=weights, dtype=dtype, tile=tile, report=stage("Gram matrix"))
                tiles.fill(bands, diagonal_plus)
            try:
                if found is None:
                    check_diagonal(tiles)
                    tiles.begin(probe(tiles))
                tiles.report = stage("Inverse")
                sweep(tiles, Blas(dtype), done=tiles.done)
                residual = check_inverse(tiles, place.images)
            except (NotPositiveDefiniteError, PrecisionError):
                place.clear()
                raise
            return tiles.result(), residual


def disk_needed(n: int, dtype: DTypeLike, tile: int | None = None) -> int:
    """Bytes of disk that a fit of n items takes while it goes on; half of them afterwards.

    Examples
    --------
    >>> disk_needed(20_108, "float32") // 2**20
    1591
    """
    return 2 * PackedSymmetric.stored_numbers(n, tile or choose_tile(n)) * np.dtype(dtype).itemsize


def least_budget(n: int, dtype: DTypeLike, tile: int | None = None) -> int:
    """Bytes of memory without which n items cannot be fitted on disk.

    Examples
    --------
    >>> least_budget(20_108, "float32") // 2**20
    109
    """
    tile = tile or choose_tile(n)
    return working_memory(n, tile, dtype, tile)


def working_memory(n: int, tile: int, dtype: DTypeLike, pivot: int) -> int:
    """Bytes that pivots of some width take: two panels, the inverse of a pivot, and slabs."""
    pivot = min(pivot, n)
    return (2 * n * pivot + pivot * pivot + ROOMS * pivot * min(tile, n)) * np.dtype(dtype).itemsize


def widest_pivot(n: int, tile: int, dtype: DTypeLike, budget: int) -> int:
    """Columns of a pivot within the budget: whole tiles, for as few passes over the file as can be."""
    blocks = -(-n // tile)
    fitting = [
        count
        for count in range(1, max(1, min(blocks, WIDEST_PIVOT // tile)) + 1)
        if working_memory(n, tile, dtype, count * tile) <= budget
    ]
    if not fitting:
        raise ParameterError(
            f"{_mib(budget)} of memory are too little for {n:,} items on disk: "
            f"at least {_mib(least_budget(n, dtype, tile))} are needed"
        )
    passes = -(-blocks // fitting[-1])
    return -(-blocks // passes) * tile


def _mib(size: int) -> str:
    return f"{-(-size // 2**20):,} MiB"


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
        self.report: Report | None = None
        self.slabs = cut_slabs(n, tile, pivot)
        self._place = place
        self._swept = 0
        self._numbers = PackedSymmetric.stored_numbers(n, tile)
        size = self._numbers * dtype.itemsize
        found = place.checkpoint
        self.done, generation = (found.done, found.generation) if found else (0, 0)
        self._passes = len(self.pivots())
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
            self._conveyor = opened.enter_context(Conveyor(max(slab.rows * slab.columns for slab in self.slabs), dtype))
            self._opened = opened.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
            values = self._conveyor.empty(slab)
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
        return self._conveyor.read(self._files[self._generation], slabs)

    def _write(self, slab: Slab, values: NDArray[Any], stop: int) -> None:
        if stop == self.n and slab.top == slab.left:  # the last pass: what scoring reads must be whole
            mirror_lower(values[: slab.columns])
        self._conveyor.write(self._files[1 - self._generation], slab)
        self._swept += 1
        if self.report is not None:
            self.report(self.done * len(self.slabs) + self._swept, self._passes * len(self.slabs))

    def _commit(self) -> None:
        """All of a pass is written: from now on the other file holds the matrix."""
        self._conveyor.finish()
        self._files[1 - self._generation].sync()
        self._save(self.done + 1, 1 - self._generation)
        self.done, self._generation, self._swept = self.done + 1, 1 - self._generation, 0

    def _save(self, done: int, generation: int) -> None:
        self._place.save(Checkpoint(self.pivot, done, generation, list(self._files[generation].checksums)))
