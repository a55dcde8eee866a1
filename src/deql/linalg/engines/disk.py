"""The disk engine: the sweep with the packed store in a file, in as much memory as it is given."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike

from deql._system.formatting import parse_bytes, show_bytes
from deql._system.machine import free_memory, scratch_folder
from deql._system.progress import Stage
from deql._system.threads import blas_limited
from deql.errors import InaccurateInverseError, NotPositiveDefiniteError, ParameterError, Setting, TileFileError
from deql.io.container import digest
from deql.linalg.engines.disk_products import SlicedProducts
from deql.linalg.engines.disk_tiles import DiskTiles
from deql.linalg.engines.engine import Engine, Problem, Solved
from deql.linalg.engines.resources import INTERPRETER, ProblemSize, Requirement, Resources, lacking
from deql.linalg.engines.tile_file import BUFFERS
from deql.linalg.engines.tile_folder import Scratch, TileFolder, as_path, has_checkpoint
from deql.linalg.gram import gram_bands
from deql.linalg.invert import check_diagonal, check_inverse, probe
from deql.linalg.packed import PackedSymmetric
from deql.linalg.sweep import sweep
from deql.linalg.tiling import WIDEST_PIVOT, choose_tile

__all__ = ["Disk", "disk_needed", "invert_on_disk", "least_budget", "widest_pivot", "working_memory"]


@dataclass(frozen=True, repr=False)
class Disk(Engine):
    """Compute P in two files of n²/2 numbers each, in as much memory as is given: where memory does not suffice.

    Parameters
    ----------
    memory : int or str, optional
        What it may take beside Python and the interactions, such as ``"4GiB"``; half of what is free if not given.
    folder : path, optional
        Where the files are kept. A fit that was killed resumes if it is given the same folder; a fit of other data
        or parameters needs another one. If not given, the files have no name and vanish with the model.

    Examples
    --------
    >>> import deql
    >>> data = deql.Interactions.from_pairs(list("aabb"), list("xyyz"))
    >>> deql.EASE(l2=1.0, engine=deql.engines.Disk(memory="1GiB")).fit(data).engine_
    'disk'
    """

    memory: int | str | None = None
    folder: str | os.PathLike[str] | None = None

    name = "disk"

    def __post_init__(self) -> None:
        if self.memory is not None:
            parse_bytes(self.memory)
        if self.folder is not None:
            as_path(self.folder)

    def budget(self) -> int:
        """Bytes that it may take.

        A fit that resumes needs what it was begun with: where there is one in the folder, all that is free counts.

        Examples
        --------
        >>> Disk(memory="4GiB").budget() == 4 * 2**30
        True
        """
        if self.memory is not None:
            return parse_bytes(self.memory)
        begun = self.folder is not None and has_checkpoint(self.folder)
        return free_memory() if begun else free_memory() // 2

    def requirement(self, size: ProblemSize, resources: Resources) -> Requirement:
        n, dtype, why = size.n, size.dtype, None
        least = least_budget(n, dtype)
        budget = resources.memory // 2 if self.memory is None else parse_bytes(self.memory)
        pivot = widest_pivot(n, size.tile, dtype, max(budget, least))
        more, disk = working_memory(n, size.tile, dtype, pivot) + size.work + size.beside, disk_needed(n, dtype)
        if os.name != "posix":
            why = "it needs Linux or macOS"
        elif resources.unreachable:
            why = resources.unreachable
        elif not resources.writable:
            why = f"{resources.folder} may not be written to: name another folder"
        elif not resources.on_disk and more + disk > resources.memory:
            why = f"{resources.folder} lies in memory itself: name a folder on a disk"
        elif size.matrices > 1:
            why = "it keeps one matrix, and here a Gram matrix is inverted more than once"
        elif budget < least:
            half = "half of what is free is" if self.memory is None else "was given"
            why = f"it needs memory of at least {-(-least // 2**20):,} MiB, and {half} {show_bytes(budget)}"
        too_large = why is None
        why = (
            why
            or lacking("memory", more, resources.memory)
            or lacking(f"disk in {resources.folder}", disk, resources.disk)
        )
        peak = more + size.stored + INTERPRETER
        return Requirement(self.name, peak, disk, passes=-(-n // pivot), why_not=why, too_large=too_large)

    def solve(self, problem: Problem, stage: Stage) -> Solved:
        fingerprint = "" if self.folder is None else _fingerprint(problem)
        found = invert_on_disk(problem, self.budget(), folder=self.folder, fingerprint=fingerprint, stage=stage)
        return Solved(*found, self.name)

    def without_folder(self) -> Disk:
        return replace(self, folder=None)


def invert_on_disk(
    problem: Problem,
    budget: int,
    *,
    folder: str | os.PathLike[str] | None = None,
    fingerprint: str = "",
    stage: Stage = lambda _label: None,
    tile: int | None = None,
) -> tuple[PackedSymmetric, float]:
    """P = (RᵀΛR + diag(added))⁻¹ in a file, and how far P·A is from the identity.

    Each pivot is one pass: the matrix is read from one file and written to another, and when that is safely
    on disk a manifest says so: a checkpoint. Killed at any moment, the same call resumes from the last one, to the
    same result bit for bit.

    Parameters
    ----------
    problem : Problem
    budget : int
        Bytes for panels and slabs. What the interpreter, R and its transpose take is not counted.
    folder : path, optional
        Where the files are kept; a fit that was killed there resumes. Afterwards it holds P, on which the
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
    NotPositiveDefiniteError, InaccurateInverseError
        As :func:`deql.linalg.invert` raises them; nothing is kept then.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> R = csr_array([[1.0, 1.0, 0.0], [0.0, 2.0, 1.0]])
    >>> P, residual = invert_on_disk(Problem(R, np.ones(3), dtype="float64"), 2**20)
    >>> P.to_dense().round(4)
    array([[ 0.5714, -0.1429,  0.1429],
           [-0.1429,  0.2857, -0.2857],
           [ 0.1429, -0.2857,  0.7857]])
    """
    if os.name != "posix":
        raise TileFileError("the disk engine needs Linux or macOS: use ", Setting("engine", "memory"))
    n = problem.n
    tile, dtype = tile or choose_tile(n), np.dtype(problem.dtype)
    about = {"fingerprint": fingerprint, "n": n, "tile": tile, "dtype": dtype.name}
    with Scratch(scratch_folder()) if folder is None else TileFolder(Path(folder), about) as place:
        found = place.checkpoint
        pivot = widest_pivot(n, tile, dtype, budget) if found is None else found.pivot
        if found is not None and found.done * pivot < n and working_memory(n, tile, dtype, pivot) > budget:
            raise ParameterError(
                f"the fit in {place.path} was begun with {_mib(working_memory(n, tile, dtype, pivot))} of memory: "
                f"{_mib(budget)} are too little to go on with it",
                parameter="memory",
            )
        with DiskTiles(place, n, tile, pivot, dtype) as tiles, blas_limited(1):
            if found is None:
                report = stage("Gram matrix")
                bands = gram_bands(problem.matrix, weights=problem.weights, dtype=dtype, tile=tile, report=report)
                tiles.fill(bands, problem.added)
            try:
                if found is None:
                    check_diagonal(tiles)
                    tiles.begin(probe(tiles))
                tiles.report = stage("Inverse")
                sweep(tiles, SlicedProducts(dtype), done=tiles.done)
                residual = check_inverse(tiles, place.images)
            except (NotPositiveDefiniteError, InaccurateInverseError):
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
    110
    """
    tile = tile or choose_tile(n)
    return working_memory(n, tile, dtype, tile)


def working_memory(n: int, tile: int, dtype: DTypeLike, pivot: int) -> int:
    """Bytes that pivots of some width take: two panels, the inverse of a pivot with panels of its own, and slabs."""
    pivot = min(pivot, n)
    own = choose_tile(pivot) % pivot  # one tile needs no panels
    inverse = pivot * pivot + own * (2 * pivot + 3 * own)
    return (2 * n * pivot + inverse + BUFFERS * pivot * min(tile, n)) * np.dtype(dtype).itemsize


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
            f"at least {_mib(least_budget(n, dtype, tile))} are needed",
            parameter="memory",
        )
    passes = -(-blocks // fitting[-1])
    return -(-blocks // passes) * tile


def _mib(size: int) -> str:
    return f"{-(-size // 2**20):,} MiB"


def _fingerprint(problem: Problem) -> str:
    """A checksum of all that P depends on."""
    matrix = problem.matrix
    arrays = {name: np.ascontiguousarray(getattr(matrix, name)) for name in ("indptr", "indices", "data")}
    arrays["added"] = problem.added
    if problem.weights is not None:
        arrays["weights"] = problem.weights
    return digest({"dtype": problem.dtype}, arrays)
