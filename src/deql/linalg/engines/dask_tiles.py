"""The sweep on a worker of a cluster: pure NumPy on the tiles that it holds, one call for each group and pivot."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from deql._system.threads import blas_limited
from deql.io.shards import Shard, write_shard
from deql.linalg.blas import gemm
from deql.linalg.engines.dask_layout import Group, Layout, Strip
from deql.linalg.packed import mirror_lower, multiply

__all__ = [
    "Factor",
    "StaleTilesError",
    "TileGroup",
    "diagonal",
    "factor",
    "failed_column",
    "finish",
    "panel",
    "product",
    "read_group",
    "save_group",
    "update",
    "write_shards",
]


class StaleTilesError(RuntimeError):
    """Tiles that a pivot was swept on already: a task was run twice, as happens when a worker is lost."""


@dataclass(eq=False)
class TileGroup:
    """The tiles of one group, swept in place.

    Attributes
    ----------
    strips : list of Strip
        Where they are in the matrix.
    arrays : list of ndarray
        Their numbers; of tiles on the diagonal the lower half counts.
    done : int
        Pivots that they were swept on. Dask takes tasks for pure, and may run one again whose result was lost; what
        has been changed in place meanwhile is then told by this number.
    """

    strips: list[Strip]
    arrays: list[NDArray[Any]]
    done: int = 0

    def __sizeof__(self) -> int:
        return sum(array.nbytes for array in self.arrays)

    def items(self) -> list[tuple[Strip, NDArray[Any]]]:
        """Strips with their numbers."""
        return list(zip(self.strips, self.arrays, strict=True))

    def writable(self) -> None:
        """Copy what was mapped or received read-only."""
        self.arrays = [array if array.flags.writeable else array.copy() for array in self.arrays]


class Factor(NamedTuple):
    """L⁻¹ of a pivot L·Lᵀ, or the column at which it is not positive."""

    inverse: NDArray[Any]
    failed: int | None


def factor(group: TileGroup, start: int, stop: int) -> Factor:
    """The inverse of a pivot's Cholesky factor; a failure is told rather than raised, so that no worker logs it.

    Examples
    --------
    >>> group = TileGroup([Strip(0, 2, 0, 2)], [np.array([[4.0, 0.0], [2.0, 2.0]])])
    >>> factor(group, 0, 2).inverse
    array([[ 0.5,  0. ],
           [-0.5,  1. ]])
    """
    from scipy.linalg.lapack import get_lapack_funcs

    square = _square(group, start, stop)
    functions: Any = get_lapack_funcs(("potrf", "trtri"), (square,))
    potrf, trtri = functions
    with blas_limited(1):
        lower, failed = potrf(square, lower=True, clean=True)
        if failed == 0:
            inverse, failed = trtri(lower, lower=True)
    if failed:
        return Factor(np.zeros_like(square), start + failed - 1)
    return Factor(np.ascontiguousarray(np.tril(inverse)), None)


def failed_column(found: Factor) -> int | None:
    """The column whose pivot is not positive, if there is one."""
    return found.failed


def panel(group: TileGroup, pivot: int, layout: Layout, segment: int, found: Factor) -> NDArray[Any]:
    """X_i = A_ik·L⁻ᵀ for the rows i of a segment: N_i·A_jkᵀ = X_i·X_jᵀ, so that X alone goes to all workers.

    Parameters
    ----------
    group : TileGroup
        What holds A_ik, or, above the pivot, its mirror image.
    pivot : int
        Number of the pivot.
    layout : Layout
    segment : int
        Rows i.
    found : Factor
        Of the pivot.
    """
    _check(group, pivot)
    start, stop = layout.pivots[pivot]
    first, last = layout.rows(segment)
    columns = np.zeros((last - first, stop - start), group.arrays[0].dtype)
    for strip, values in group.items():
        if strip.left <= start < strip.right:
            top = max(strip.top, stop)
            if top < strip.bottom:
                columns[top - first :] = values[top - strip.top :, start - strip.left : stop - strip.left]
        if strip.top <= start < strip.bottom:
            right = min(strip.right, start)
            if first <= strip.left < right:  # rows of the pivot in columns before it are mirror images
                rows = values[start - strip.top : stop - strip.top, : right - strip.left]
                columns[strip.left - first : right - first] = rows.T
    made = np.empty_like(columns)
    with blas_limited(1):
        gemm(1.0, columns, found.inverse.T, 0.0, made)
    return made


def update(
    group: TileGroup, pivot: int, layout: Layout, rows: NDArray[Any], columns: NDArray[Any], found: Factor
) -> TileGroup:
    """Sweep a group on a pivot, in place: see :func:`deql.linalg.sweep.sweep`, with X_i·X_jᵀ for N_i·A_jkᵀ.

    Parameters
    ----------
    group : TileGroup
    pivot : int
        Number of the pivot.
    layout : Layout
    rows, columns : ndarray
        X of the group's segments of rows and of columns.
    found : Factor
        Of the pivot.
    """
    _check(group, pivot)
    group.writable()
    group.done = -1  # in the middle of it: of no use should the task end here
    start, stop = layout.pivots[pivot]
    above, beside = group.strips[0].top, group.strips[0].left
    with blas_limited(1):
        for strip, values in group.items():
            x_rows = rows[strip.top - above : strip.bottom - above]
            x_columns = columns[strip.left - beside : strip.right - beside]
            _update_strip(strip, values, start, stop, x_rows, x_columns, found.inverse)
    group.done = pivot + 1
    return group


def _update_strip(
    strip: Strip,
    values: NDArray[Any],
    start: int,
    stop: int,
    x_rows: NDArray[Any],
    x_columns: NDArray[Any],
    inverse: NDArray[Any],
) -> None:
    # Rows and columns before the pivot, of it and after it; what lies above the diagonal is left as it is.
    top, middle, end = (int(np.clip(row - strip.top, 0, len(values))) for row in (start, stop, strip.bottom))
    left, right, edge = (int(np.clip(column - strip.left, 0, values.shape[1])) for column in (start, stop, strip.right))
    if top and left:
        gemm(1.0, x_rows[:top], x_columns[:left].T, 1.0, values[:top, :left])
    if middle < end:
        if left:
            gemm(-1.0, x_rows[middle:], x_columns[:left].T, 1.0, values[middle:, :left])
        if right < edge:
            gemm(-1.0, x_rows[middle:], x_columns[right:].T, 1.0, values[middle:, right:])
        if left < right:  # N_i = X_i·L⁻¹
            gemm(1.0, x_rows[middle:], inverse, 0.0, values[middle:, left:right])
    if top < middle:
        if left:  # −N_jᵀ
            gemm(-1.0, inverse.T, x_columns[:left].T, 0.0, values[top:middle, :left])
        if left < right:  # Q = L⁻ᵀ·L⁻¹
            gemm(1.0, inverse.T, inverse, 0.0, values[top:middle, left:right])


def finish(group: TileGroup) -> TileGroup:
    """Make the tiles on the diagonal symmetric to the last bit."""
    group.writable()
    for strip, values in group.items():
        if strip.top == strip.left:
            mirror_lower(values[: values.shape[1]])
    return group


def diagonal(group: TileGroup) -> NDArray[np.float64]:
    """The diagonal of a group that lies on it."""
    return np.concatenate([np.diagonal(values).astype(np.float64) for values in group.arrays])


def product(group: TileGroup, rows: NDArray[Any], columns: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """What a group adds to a product with a few columns: in its rows, and, turned, in the rows of its columns.

    Parameters
    ----------
    group : TileGroup
    rows, columns : ndarray
        What it is multiplied with, in the group's segments of rows and of columns.

    Examples
    --------
    >>> group = TileGroup([Strip(2, 3, 0, 2)], [np.array([[1.0, 2.0]])])
    >>> product(group, np.array([[3.0]]), np.ones((2, 1)))
    (array([[3.]]), array([[3.],
           [6.]]))
    """
    on_diagonal, beside = _on_diagonal(group), group.strips[0].left
    shift = 0 if on_diagonal else len(columns) - group.strips[0].top + beside
    parts = [(strip.top - beside + shift, strip.left - beside, values) for strip, values in group.items()]
    both = columns if on_diagonal else np.concatenate([columns, rows])
    with blas_limited(1):
        made = multiply(parts, both, group.arrays[0].dtype)
    return (made, np.zeros_like(made)) if on_diagonal else (made[len(columns) :], made[: len(columns)])


def save_group(group: TileGroup, path: str) -> str:
    """Write a group to a file of the shared folder, whole or not at all."""
    beside = f"{path}.{os.getpid()}.new"
    try:
        with open(beside, "wb") as file:
            for array in group.arrays:
                np.save(file, array, allow_pickle=False)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except OSError:
        if os.path.exists(beside):
            os.remove(beside)
        raise
    return path


def read_group(path: str, layout: Layout, group: Group, done: int) -> TileGroup:
    """A group as :func:`save_group` wrote it."""
    strips = layout.strips(group)
    with open(path, "rb") as file:
        return TileGroup(strips, [np.load(file, allow_pickle=False) for _ in strips], done)


def write_shards(group: TileGroup, folder: str, layout: Layout) -> list[Shard]:
    """Write a group of P into the shared folder, where the numbers of each strip follow each other."""
    return [write_shard(Path(folder), "precision", layout.offset(strip), values) for strip, values in group.items()]


def _check(group: TileGroup, pivot: int) -> None:
    if group.done != pivot:
        raise StaleTilesError(f"tiles swept on {group.done} pivots were to be swept on pivot {pivot}")


def _on_diagonal(group: TileGroup) -> bool:
    return group.strips[0].top == group.strips[0].left


def _square(group: TileGroup, start: int, stop: int) -> NDArray[Any]:
    for strip, values in group.items():
        if strip.left <= start < strip.right:
            return values[start - strip.top : stop - strip.top, start - strip.left : stop - strip.left]
    raise ValueError(f"columns {start} … {stop - 1} are not in this group")
