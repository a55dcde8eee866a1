"""A symmetric matrix in half the memory: its lower triangle as block columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from deql._system.limits import MOST_CALLERS
from deql._system.threads import blas_limited, map_ahead, read_only, run_slices

__all__ = ["PackedSymmetric", "Store", "block_offset", "mirror_lower", "multiply"]


_WIDEST_WHOLE = 512
"""Columns up to which a matrix is one tile, whatever their number."""

_SLAB = 1024
"""Rows whose product is made at once, and added up in float64."""

_TAKEN = 4096
"""Rows that are copied at once."""


Store = Callable[[int, int], Any]
"""Makes the flat store of a matrix of some order and tile, in memory or in a file, yet to be filled."""


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


def _take(
    first: int,
    last: int,
    source: NDArray[Any],
    rows: NDArray[np.int64],
    columns: NDArray[np.int64],
    into: NDArray[Any],
) -> None:
    """Some rows and columns of a block, which need not lie side by side there."""
    into[first:last] = source.take(rows[first:last], axis=0).take(columns, axis=1)


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

    whole: ClassVar[bool] = True
    """Whether every entry is there: see :class:`~deql.linalg.sparse_precision.SparsePrecision`."""

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

    def grown(self, extra: int, value: float, store: Store | None = None) -> PackedSymmetric:
        """A copy with ``extra`` more rows and columns that hold ``value`` on the diagonal and nothing else.

        A matrix that is cut keeps its tiles; one that is a single tile stays one while that is no wider than any.

        Parameters
        ----------
        extra : int
        value : float
        store : callable, optional
            Called with the new order and tile, gives the flat store to fill; memory of its own if not given.

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
        larger = self.room(n, tile, store)
        cut = (self.block(0)[start:, start : start + tile] for start in range(0, self.n, tile))
        olds = iter(cut if whole else (old for _, old in self.blocks()))
        for _, block in larger.blocks():
            old = next(olds, block[:0, :0])
            height, width = old.shape
            block[:height, :width] = old
            block[height:] = 0
            block[:height, width:] = 0
        larger.add_to_diagonal(np.concatenate([np.zeros(self.n), np.full(extra, float(value))]))
        return larger

    def without(self, columns: NDArray[np.int64], store: Store | None = None) -> PackedSymmetric:
        """A copy without some rows and columns.

        Parameters
        ----------
        columns : ndarray of int64
        store : callable, optional
            As :meth:`grown` takes it.

        Examples
        --------
        >>> a = PackedSymmetric.from_dense(np.array([[2.0, 1.0, 0.0], [1.0, 3.0, 5.0], [0.0, 5.0, 9.0]]), tile=2)
        >>> a.without(np.array([1])).to_dense()
        array([[2., 0.],
               [0., 9.]])
        """
        kept = np.delete(np.arange(self.n), columns)
        smaller = self.room(len(kept), min(len(kept), self.tile), store)
        for start, block in smaller.blocks():
            own, rows = kept[start : start + block.shape[1]], kept[start:]
            for index in range(own[0] // self.tile, own[-1] // self.tile + 1):
                corner = index * self.tile
                left, right = np.searchsorted(own, [corner, corner + self.tile])
                run_slices(
                    _take, [*range(left, len(rows), _TAKEN), len(rows)],
                    self.block(index), rows - corner, own[left:right] - corner, block[:, left:right],
                )  # fmt: skip
            mirror_lower(block[: block.shape[1]])  # rows above a source's block column lie in this tile alone
        return smaller

    def room(self, n: int, tile: int, store: Store | None = None) -> PackedSymmetric:
        """Another matrix of this type and kind, yet to be filled: in memory, or in the ``store`` for this size."""
        size = self.stored_numbers(n, tile)
        return PackedSymmetric(n, tile, np.empty(size, self.dtype) if store is None else store(n, tile))

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

    @property
    def largest(self) -> float:
        """What no entry passes in size, if the matrix is positive definite: then |P_ji| ≤ √(P_ii·P_jj)."""
        return float(self.diagonal().max())

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
        vectors = x.reshape(len(x), -1).astype(self.dtype, order="F")
        product = np.zeros(vectors.shape, np.float64)

        def of_block(index: int) -> _PartProduct:
            start = index * self.tile
            return _part_product(start, start, self.block(index), vectors)

        with blas_limited(1):
            for made in map_ahead(of_block, range(self.n_blocks), MOST_CALLERS):  # one order, however many threads
                _add(product, made)
        return product.reshape(x.shape)


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
    vectors = x.reshape(len(x), -1).astype(dtype, order="F")
    product = np.zeros(vectors.shape, np.float64)
    for top, left, part in parts:
        _add(product, _part_product(top, left, part, vectors))
    return product.reshape(x.shape)


_PartProduct = tuple[int, NDArray[np.float64], int, NDArray[np.float64]]


def _part_product(top: int, left: int, part: NDArray[Any], vectors: NDArray[Any]) -> _PartProduct:
    """What some rows of a block column add to a product: to their own rows, and, turned, to those of its columns."""
    right = left + part.shape[1]
    below = np.empty((len(part), vectors.shape[1]))
    turned = np.zeros((right - left, vectors.shape[1]))
    for first in range(top, top + len(part), _SLAB):
        rows = part[first - top : first - top + _SLAB]
        below[first - top : first - top + len(rows)] = rows @ vectors[left:right]
        # The diagonal tile is stored whole: only what lies below it acts a second time.
        again = rows[max(0, right - first) :]
        if len(again):
            start = max(first, right)
            turned += (vectors[start : start + len(again)].T @ again).T
    return top, below, left, turned


def _add(product: NDArray[np.float64], made: _PartProduct) -> None:
    top, below, left, turned = made
    product[top : top + len(below)] += below
    product[left : left + len(turned)] += turned
