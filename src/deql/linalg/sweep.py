"""The cubic step: a symmetric block sweep that inverts a matrix where it lies, on a disk or a device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

from deql._system.progress import ProgressCallback
from deql.linalg.packed import PackedSymmetric

__all__ = ["BlockProducts", "InPlace", "Piece", "Tiles", "sweep"]


class Piece(NamedTuple):
    """Part of the lower triangle: rows ``top`` … of some columns ``left`` …, to be updated in place."""

    top: int
    left: int
    values: Any


class Tiles(Protocol):
    """A symmetric matrix that is swept: its lower triangle, in memory, in a file or on a device."""

    n: int

    def pivots(self) -> list[tuple[int, int]]:
        """First and last column + 1 of each pivot."""

    def gather(self, start: int, stop: int, panel: Any) -> None:
        """Copy columns ``start`` … ``stop − 1``, all n rows of them, into the panel."""

    def pieces(self, start: int, stop: int) -> Iterator[Piece]:
        """All of the lower triangle outside the pivot's rows and columns; none lies on both sides of the pivot."""

    def scatter(self, start: int, stop: int, panel: Any) -> None:
        """Copy the panel back into columns ``start`` … ``stop − 1``, and their mirror images."""


class BlockProducts(Protocol):
    """The matrix products and inverses of a sweep, wherever they are computed."""

    def panel(self, rows: int, columns: int) -> Any:
        """Room for an array."""

    def invert(self, pivot: Any, first: int) -> Any:
        """The inverse of a symmetric positive definite matrix whose first column is column ``first`` of the whole."""

    def solve(self, panel: Any, inverse: Any) -> Any:
        """N = A_K·Q, ready for :meth:`update`, which uses the panel, too."""

    def update(self, piece: Piece, sign: int) -> None:
        """Add sign · N_i·A_jᵀ to the piece in rows i and columns j."""


def sweep(tiles: Tiles, products: BlockProducts, report: ProgressCallback | None = None, done: int = 0) -> None:
    """Replace a symmetric positive definite matrix by its inverse.

    For each pivot block k, with Q = A_kk⁻¹ and N_i = A_ik·Q,

        A_ij ← A_ij − N_i·A_jkᵀ   (i, j ≠ k),    A_ik ← N_i,    A_kk ← −Q

    turns A, pivot by pivot, into −A⁻¹. Here what has been swept on both sides is kept with the opposite
    sign, so that A⁻¹ itself is left in the end: A_kk ← Q, and for i before k, A_ik ← −N_i and
    A_ij ← A_ij + N_i·A_jkᵀ.

    Every pivot does the same work, n³ flops in all whatever the pivots' width, so progress is honest, and
    all but the inverse of a pivot is matrix products. Beside the matrix two panels are needed, A_k and N.

    Parameters
    ----------
    tiles : Tiles
        Overwritten by its inverse. After an error its content is undefined.
    products : BlockProducts
    report : callable, optional
        Called as ``report(done, total)`` after each pivot.
    done : int, default 0
        Pivots that were done before.

    Raises
    ------
    NotPositiveDefiniteError
        At the first pivot that is not positive; it names the column.

    Examples
    --------
    >>> import numpy as np
    >>> from deql.linalg.packed import PackedSymmetric
    >>> from deql.linalg.sweep import InPlace
    >>> from deql.linalg.engines.disk_products import SlicedProducts
    >>> a = PackedSymmetric.from_dense(np.array([[2.0, 1.0, 0.0], [1.0, 3.0, 1.0], [0.0, 1.0, 4.0]]), tile=2)
    >>> sweep(InPlace(a), SlicedProducts(a.dtype))
    >>> a.to_dense().round(4)
    array([[ 0.6111, -0.2222,  0.0556],
           [-0.2222,  0.4444, -0.1111],
           [ 0.0556, -0.1111,  0.2778]])
    """
    pivots = tiles.pivots()
    for number, (start, stop) in enumerate(pivots[done:], done + 1):
        panel = products.panel(tiles.n, stop - start)
        tiles.gather(start, stop, panel)
        inverse = products.invert(panel[start:stop], start)
        solved = products.solve(panel, inverse)
        for piece in tiles.pieces(start, stop):
            products.update(piece, 1 if piece.top < start else -1)
        solved[:start] *= -1
        solved[start:stop] = inverse
        del inverse  # its memory is the next one's
        tiles.scatter(start, stop, solved)
        if report is not None:
            report(number, len(pivots))


class InPlace:
    """Tiles of a packed matrix.

    Parameters
    ----------
    matrix : PackedSymmetric
        Its store may be an array or a tensor.
    blocks_per_pivot : int, default 1
        How many block columns a pivot takes.
    """

    def __init__(self, matrix: PackedSymmetric, blocks_per_pivot: int = 1) -> None:
        self.n = matrix.n
        self.tile = matrix.tile
        self.width = matrix.tile * blocks_per_pivot
        self.blocks = [matrix.block(index) for index in range(matrix.n_blocks)]

    def pivots(self) -> list[tuple[int, int]]:
        return [(start, min(start + self.width, self.n)) for start in range(0, self.n, self.width)]

    def gather(self, start: int, stop: int, panel: Any) -> None:
        for left, block in self._until(stop):
            right = left + block.shape[1]
            if left < start:  # the pivot's rows here are the mirror images of its columns above it
                panel[left:right] = self._fetch(block[start - left : stop - left]).T
            else:
                panel[left:, left - start : right - start] = self._fetch(block)
                panel[left:right, right - start :] = panel[right:stop, left - start : right - start].T

    def pieces(self, start: int, stop: int) -> Iterator[Piece]:
        for left, block in self._until(start):
            yield Piece(left, left, block[: start - left])
            if stop < self.n:
                yield Piece(stop, left, block[stop - left :])
        for index in range(-(-stop // self.tile), len(self.blocks)):
            yield Piece(index * self.tile, index * self.tile, self.blocks[index])

    def scatter(self, start: int, stop: int, panel: Any) -> None:
        for left, block in self._until(stop):
            right = left + block.shape[1]
            if left < start:
                self._put(panel[left:right].T, block[start - left : stop - left])
            else:
                self._put(panel[left:, left - start : right - start], block)

    def _until(self, stop: int) -> Iterator[tuple[int, Any]]:
        """The blocks left of column ``stop``."""
        return ((index * self.tile, self.blocks[index]) for index in range(-(-stop // self.tile)))

    def _fetch(self, stored: Any) -> Any:
        """Part of the store, where the panel is."""
        return stored

    def _put(self, values: Any, stored: Any) -> None:
        """Copy part of a panel to the store."""
        stored[:] = values
