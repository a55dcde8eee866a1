"""A symmetric matrix in half the memory: its lower triangle as block columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

__all__ = ["PackedSymmetric", "block_offset"]


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
        The flat store to use, for example a memory-mapped one; zeros if not given.
    dtype : dtype, default float32
        Type of a new store.

    Examples
    --------
    >>> import numpy as np
    >>> from deql.precision.packed import PackedSymmetric
    >>> a = PackedSymmetric.from_dense(np.array([[2.0, 1.0, 0.0], [1.0, 3.0, 5.0], [0.0, 5.0, 9.0]]), tile=2)
    >>> a.block(0)
    array([[2., 1.],
           [1., 3.],
           [0., 5.]])
    >>> a.matvec(np.ones(3))
    array([ 3.,  9., 14.])
    """

    __slots__ = ("data", "n", "tile")

    def __init__(self, n: int, tile: int, data: NDArray[Any] | None = None, dtype: DTypeLike = np.float32) -> None:
        self.n = int(n)
        self.tile = int(tile)
        size = self.stored_numbers(self.n, self.tile)
        self.data: NDArray[Any] = np.zeros(size, dtype) if data is None else data
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

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the stored numbers."""
        return self.data.dtype

    @property
    def n_blocks(self) -> int:
        """Number of block columns."""
        return -(-self.n // self.tile)

    def block(self, index: int) -> NDArray[Any]:
        """View of block column ``index``: (n − index·tile) × its width, C-contiguous."""
        start = index * self.tile
        height = self.n - start
        width = min(self.tile, height)
        offset = block_offset(index, self.n, self.tile)
        return self.data[offset : offset + height * width].reshape(height, width)

    def blocks(self) -> Iterator[tuple[int, NDArray[Any]]]:
        """Each block column with the index of its first row and column."""
        for index in range(self.n_blocks):
            yield index * self.tile, self.block(index)

    def addresses(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """``base`` and ``width`` of each column c: its entry in row r ≥ c is ``data[base[c] + r·width[c]]``.

        Examples
        --------
        >>> a = PackedSymmetric.from_dense(np.array([[2.0, 1.0, 0.0], [1.0, 3.0, 5.0], [0.0, 5.0, 9.0]]), tile=2)
        >>> base, width = a.addresses()
        >>> a.data[base[1] + 2 * width[1]]
        np.float64(5.0)
        """
        column = np.arange(self.n, dtype=np.int64)
        block = column // self.tile
        start = block * self.tile
        width = np.minimum(self.tile, self.n - start)
        return block_offset(block, self.n, self.tile) - start * width + column - start, width

    def diagonal(self) -> NDArray[np.float64]:
        """Copy of the diagonal in float64."""
        return np.concatenate([np.diagonal(block).astype(np.float64) for _, block in self.blocks()])

    def add_to_diagonal(self, values: NDArray[np.float64]) -> None:
        """Add ``values`` to the diagonal in place."""
        for start, block in self.blocks():
            i = np.arange(block.shape[1])
            block[i, i] += values[start : start + len(i)].astype(self.dtype)

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
        vectors = x.reshape(self.n, -1).astype(self.dtype)
        product = np.zeros(vectors.shape, np.float64)
        slab = 1024
        for start, block in self.blocks():
            width = block.shape[1]
            own = vectors[start : start + width]
            for top in range(0, block.shape[0], slab):
                rows = block[top : top + slab]
                product[start + top : start + top + len(rows)] += rows @ own
                # The diagonal tile is stored whole: only what lies below it acts a second time.
                below = rows[max(0, width - top) :]
                if len(below):
                    first = start + max(top, width)
                    product[start : start + width] += below.T @ vectors[first : first + len(below)]
        return product.reshape(x.shape)
