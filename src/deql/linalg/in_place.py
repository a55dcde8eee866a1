"""A packed matrix as the sweep sees it, swept where it lies: in memory, or on a device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from deql.linalg.packed import PackedSymmetric
from deql.linalg.sweep import Piece

__all__ = ["InPlace"]


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
