"""A symmetric matrix in half the memory: its lower triangle as block columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from deql._system.threads import read_only

__all__ = ["PackedSymmetric", "block_offset", "mirror_lower", "multiply"]


_WIDEST_WHOLE = 512
"""Columns up to which a matrix is one tile, whatever their number."""


def block_offset(block: Any, n: int, tile: int) -> Any:
    """Where block column ``block`` starts in the flat store.

    Every block before it is full, so the sum of their sizes is arithmetic:
    Σ_{q < block} (n − q·tile)·tile.

    Examples
    --------
    >>> block_offset(2, n=10, tile=4)
    64
    """
    return block * tile * n - tile * tile * (block * (block - 1) // 2)


@lru_cache(maxsize=8)
def _addresses(n: int, tile: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    # Kept, as they take longer than what one short history is scored for.
    column = np.arange(n, dtype=np.int64)
    block = column // tile
    start = block * tile
    width = np.minimum(tile, n - start)
    base = block_offset(block, n, tile) - start * width + column - start
    return read_only(base), read_only(width)


def mirror_lower(square: NDArray[Any]) -> None:
    """Make a square array symmetric to the last bit: its lower half counts.

    Examples
    --------
    >>> a = np.array([[1, 9], [2, 3]])
    >>> mirror_lower(a)
    >>> a
    array([[1, 2],
           [2, 3]])
    """
    step = 256  # in pieces that stay in the cache
    for start in range(0, len(square), step):
        stop = start + step
        own = square[start:stop, start:stop]
        lower = np.tril(own)
        own[:] = lower + np.tril(lower, -1).T
        square[start:stop, stop:] = square[stop:, start:stop].T


class PackedSymmetric:
    """Symmetric n × n matrix stored as its lower block columns.

    Block column J holds rows J·tile … n−1 of columns J·tile … (J+1)·tile − 1, row by row, so that
    it is one contiguous operand for a matrix product and each of its tiles is contiguous too. The
    tiles on the diagonal are kept whole. The store is n²/2 + n·tile/2 numbers.

    Parameters
    ----------
    n : int
        Order of the matrix.
    tile : int
        Width of a block column.
    data : ndarray, optional
        The flat store to use, for example a memory-mapped one or a tensor; zeros if not given.
    dtype : dtype, default float32
        Type of a new store.

    Examples
    --------
    >>> import numpy as np
    >>> from deql.linalg.packed import PackedSymmetric
    >>> a = PackedSymmetric.from_dense(np.array([[2.0, 1.0, 0.0], [1.0, 3.0, 5.0], [0.0, 5.0, 9.0]]), tile=2)
    >>> a.block(0)
    array([[2., 1.],
           [1., 3.],
           [0., 5.]])
    >>> a.matvec(np.ones(3))
    array([ 3.,  9., 14.])
    """

    __slots__ = ("data", "n", "tile")

    def __init__(self, n: int, tile: int, data: Any = None, dtype: DTypeLike = np.float32) -> None:
        self.n = int(n)
        self.tile = int(tile)
        size = self.stored_numbers(self.n, self.tile)
        self.data: Any = np.zeros(size, dtype) if data is None else data
        if self.data.shape != (size,):
            raise ValueError(f"a packed {n} × {n} matrix in tiles of {tile} is {size} numbers, got {self.data.shape}")

    @staticmethod
    def stored_numbers(n: int, tile: int) -> int:
        """How many numbers the packed form of an n × n matrix takes.

        Examples
        --------
        >>> PackedSymmetric.stored_numbers(10, 4)
        68
        """
        last = (n - 1) // tile
        width = n - last * tile
        return int(block_offset(last, n, tile)) + width * width

    @classmethod
    def from_dense(cls, dense: NDArray[Any], tile: int) -> PackedSymmetric:
        """Pack a dense symmetric matrix."""
        packed = cls(dense.shape[0], tile, dtype=dense.dtype)
        for start, block in packed.blocks():
            block[:] = dense[start:, start : start + block.shape[1]]
        return packed

    def copy(self) -> PackedSymmetric:
        """The same matrix in memory of its own."""
        return PackedSymmetric(self.n, self.tile, self.data.copy())

    def grown(self, extra: int, value: float) -> PackedSymmetric:
        """A copy with ``extra`` more rows and columns that hold ``value`` on the diagonal and nothing else.

        A matrix that is cut keeps its tiles; one that is a single tile stays one while that is no wider than any.

        Examples
        --------
        >>> PackedSymmetric.from_dense(np.array([[2.0, 1.0], [1.0, 3.0]]), tile=2).grown(1, 5.0).to_dense()
        array([[2., 1., 0.],
               [1., 3., 0.],
               [0., 0., 5.]])
        """
        n = self.n + extra
        whole = self.tile >= self.n
        tile = min(n, _WIDEST_WHOLE) if whole else self.tile
        larger = PackedSymmetric(n, tile, dtype=self.dtype)
        cut = (self.block(0)[start:, start : start + tile] for start in range(0, self.n, tile))
        for old, (_, block) in zip(cut if whole else (old for _, old in self.blocks()), larger.blocks(), strict=False):
            block[: old.shape[0], : old.shape[1]] = old
        larger.add_to_diagonal(np.concatenate([np.zeros(self.n), np.full(extra, float(value))]))
        return larger

    def without(self, columns: NDArray[np.int64]) -> PackedSymmetric:
        """A copy without some rows and columns.

        Examples
        --------
        >>> a = PackedSymmetric.from_dense(np.array([[2.0, 1.0, 0.0], [1.0, 3.0, 5.0], [0.0, 5.0, 9.0]]), tile=2)
        >>> a.without(np.array([1])).to_dense()
        array([[2., 0.],
               [0., 9.]])
        """
        kept = np.delete(np.arange(self.n), columns)
        n = len(kept)
        smaller = PackedSymmetric(n, min(n, self.tile), dtype=self.dtype)
        for start, block in smaller.blocks():
            own = kept[start : start + block.shape[1]]
            for place, column in enumerate(own.tolist()):
                index = column // self.tile
                first = index * self.tile
                below = np.searchsorted(kept, first)
                source = self.block(index)
                rows = kept[start:]
                block[max(0, below - start) :, place] = source[rows[max(0, below - start) :] - first, column - first]
                # Above the source's block column lie the mirror images, in rows of blocks further left.
                for row in range(start, below):
                    other = int(kept[row]) // self.tile
                    corner = other * self.tile
                    block[row - start, place] = self.block(other)[column - corner, kept[row] - corner]
        return smaller

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the stored numbers."""
        kind: np.dtype[Any] = self.data.dtype
        return kind

    @property
    def n_blocks(self) -> int:
        """Number of block columns."""
        return -(-self.n // self.tile)

    def block(self, index: int) -> Any:
        """View of block column ``index``: (n − index·tile) × its width, C-contiguous."""
        start = index * self.tile
        height = self.n - start
        width = min(self.tile, height)
        offset = block_offset(index, self.n, self.tile)
        return self.data[offset : offset + height * width].reshape(height, width)

    def blocks(self) -> Iterator[tuple[int, Any]]:
        """Each block column with the index of its first row and column."""
        for index in range(self.n_blocks):
            yield index * self.tile, self.block(index)

    def stored(self) -> tuple[NDArray[Any], NDArray[np.int64], NDArray[np.int64]]:
        """What kernels read: the numbers and :meth:`addresses`.

        Read-only, as those of a file are, so that a kernel is compiled once for fitted and for loaded models.
        """
        return read_only(self.data), *self.addresses()

    def addresses(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """``base`` and ``width`` of each column c: its entry in row r ≥ c is ``data[base[c] + r·width[c]]``.

        Examples
        --------
        >>> a = PackedSymmetric.from_dense(np.array([[2.0, 1.0, 0.0], [1.0, 3.0, 5.0], [0.0, 5.0, 9.0]]), tile=2)
        >>> base, width = a.addresses()
        >>> a.data[base[1] + 2 * width[1]]
        np.float64(5.0)
        """
        return _addresses(self.n, self.tile)

    def diagonal(self) -> NDArray[np.float64]:
        """Copy of the diagonal in float64."""
        return np.concatenate([np.diagonal(block).astype(np.float64) for _, block in self.blocks()])

    def add_to_diagonal(self, values: NDArray[np.float64]) -> None:
        """Add ``values`` to the diagonal in place."""
        for start, block in self.blocks():
            i = np.arange(block.shape[1])
            block[i, i] += values[start : start + len(i)].astype(self.dtype)

    def scale(self, factors: Any) -> None:
        """Multiply row and column i by ``factors[i]``, in place; the factors are of the store's kind and type."""
        for start, block in self.blocks():
            block *= factors[start:, None]
            block *= factors[start : start + block.shape[1]]

    def mirror_diagonal_tiles(self) -> None:
        """Make the tiles on the diagonal symmetric to the last bit: their lower half counts."""
        for _, block in self.blocks():
            mirror_lower(block[: block.shape[1]])

    def to_dense(self) -> NDArray[Any]:
        """The whole matrix, n × n: for small n."""
        dense = np.empty((self.n, self.n), self.dtype)
        for start, block in self.blocks():
            stop = start + block.shape[1]
            dense[start:, start:stop] = block
            dense[start:stop, start:] = block.T
        return dense

    def matvec(self, x: NDArray[Any]) -> NDArray[np.float64]:
        """Product with a vector or a few columns, summed in float64 across slabs of rows."""
        return multiply(((start, start, block) for start, block in self.blocks()), x, self.dtype)


def multiply(parts: Iterable[tuple[int, int, NDArray[Any]]], x: NDArray[Any], dtype: DTypeLike) -> NDArray[np.float64]:
    """Product of a packed matrix, part by part, with a vector or a few columns.

    Parameters
    ----------
    parts : iterable of (top, left, rows)
        Whole rows of the block columns, in any order: row ``top`` and those that follow of the block column whose
        first column is ``left``.
    x : ndarray
        n numbers, or n × a few.
    dtype : dtype
        Type of the products; slabs of rows are summed in float64.

    Examples
    --------
    >>> parts = [(0, 0, np.array([[2.0, 1.0], [1.0, 3.0]])), (2, 0, np.array([[0.0, 5.0]])), (2, 2, np.array([[9.0]]))]
    >>> multiply(parts, np.ones(3), np.float64)
    array([ 3.,  9., 14.])
    """
    vectors = x.reshape(len(x), -1).astype(dtype)
    product = np.zeros(vectors.shape, np.float64)
    slab = 1024
    for top, left, part in parts:
        right = left + part.shape[1]
        for first in range(top, top + len(part), slab):
            rows = part[first - top : first - top + slab]
            product[first : first + len(rows)] += rows @ vectors[left:right]
            # The diagonal tile is stored whole: only what lies below it acts a second time.
            below = rows[max(0, right - first) :]
            if len(below):
                start = max(first, right)
                product[left:right] += below.T @ vectors[start : start + len(below)]
    return product.reshape(x.shape)
