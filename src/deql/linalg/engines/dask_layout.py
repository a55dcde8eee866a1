"""How a packed matrix is cut for a cluster: groups of tiles, pivots, and which worker holds or reads what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from deql._system.threads import even_bounds
from deql.linalg.packed import PackedSymmetric, block_offset
from deql.linalg.tiling import STRIP, choose_tile

__all__ = ["Group", "Layout", "Strip", "choose_layout", "place_groups", "place_parts"]

_PAGED = 4096
"""Items from which on a row of a tile is whole pages, so that shards of P can be mapped one after the other."""

_GROUPS_PER_THREAD = 4
"""Groups of tiles for each thread of the cluster, at least: enough to spread them evenly, and to spill some of them."""

Group = tuple[int, int]
"""A segment of rows and one of columns, which is not below it: the tiles that they have in common."""


@dataclass(frozen=True)
class Strip:
    """Whole rows of a block column, as they lie one after the other in the flat store.

    Attributes
    ----------
    top, bottom : int
        First row and last row + 1.
    left, right : int
        First column and last column + 1.
    """

    top: int
    bottom: int
    left: int
    right: int

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.bottom - self.top, self.right - self.left


@dataclass(frozen=True)
class Layout:
    """Tiles, groups of tiles and pivots of an n × n matrix; it does not depend on which workers there are.

    Rows and columns are cut at the same places into segments of whole tiles. A group is what a segment of rows has in
    the block columns of a segment of columns: the piece of the matrix that one task works on, and one worker holds.

    Attributes
    ----------
    n : int
        Order of the matrix.
    tile : int
        Width of a block column, as in :class:`deql.linalg.packed.PackedSymmetric`.
    width : int
        Most columns of a pivot, which lies within one block column.
    bounds : tuple of int
        Where segments begin, and n.

    Examples
    --------
    >>> layout = Layout(10, tile=2, width=2, bounds=(0, 4, 10))
    >>> layout.groups
    [(0, 0), (1, 0), (1, 1)]
    >>> layout.strips((1, 0))
    [Strip(top=4, bottom=10, left=0, right=2), Strip(top=4, bottom=10, left=2, right=4)]
    """

    n: int
    tile: int
    width: int
    bounds: tuple[int, ...]

    @property
    def segments(self) -> int:
        """How many segments there are."""
        return len(self.bounds) - 1

    @property
    def groups(self) -> list[Group]:
        """All of them, of the lower triangle."""
        return [(a, b) for a in range(self.segments) for b in range(a + 1)]

    @property
    def pivots(self) -> list[tuple[int, int]]:
        """First and last column + 1 of each pivot.

        Examples
        --------
        >>> Layout(7, tile=4, width=3, bounds=(0, 7)).pivots
        [(0, 3), (3, 4), (4, 7)]
        """
        tiles = [(left, min(left + self.tile, self.n)) for left in range(0, self.n, self.tile)]
        return [(at, min(at + self.width, right)) for left, right in tiles for at in range(left, right, self.width)]

    def rows(self, segment: int) -> tuple[int, int]:
        """First and last row + 1 of a segment."""
        return self.bounds[segment], self.bounds[segment + 1]

    def segment(self, row: int) -> int:
        """The segment that a row is in."""
        return next(a for a, (first, last) in enumerate(pairwise(self.bounds)) if first <= row < last)

    def strips(self, group: Group) -> list[Strip]:
        """What a group holds, block column by block column."""
        (first, last), (left, right) = self.rows(group[0]), self.rows(group[1])
        return [
            Strip(max(first, column), last, column, min(column + self.tile, self.n))
            for column in range(left, right, self.tile)
        ]

    def numbers(self, group: Group) -> int:
        """How many numbers a group holds."""
        return sum(strip.shape[0] * strip.shape[1] for strip in self.strips(group))

    def offset(self, strip: Strip) -> int:
        """Where a strip begins in the flat store.

        Examples
        --------
        >>> Layout(10, tile=4, width=4, bounds=(0, 8, 10)).offset(Strip(8, 10, 4, 8))
        56
        """
        begin = int(block_offset(strip.left // self.tile, self.n, self.tile))
        return begin + (strip.top - strip.left) * strip.shape[1]

    @property
    def stored(self) -> int:
        """Numbers of the whole matrix."""
        return PackedSymmetric.stored_numbers(self.n, self.tile)


def choose_layout(n: int, threads: int) -> Layout:
    """The layout for a cluster with so many threads in all.

    Narrow pivots keep the panels small, of which every worker holds a few; wide ones are fewer messages. Twice what
    :func:`~deql.linalg.tiling.choose_tile` takes at most, and never wider than a tile.

    Examples
    --------
    >>> layout = choose_layout(12_000, threads=4)
    >>> layout.tile, layout.width, len(layout.groups)
    (1024, 384, 21)
    """
    narrow = choose_tile(n)
    tile = narrow if n < _PAGED else 1024 * min(4, max(1, n // 65_536))
    parts = -(-tile // narrow)
    width = tile if parts == 1 else -(-tile // parts // STRIP) * STRIP
    segments = 1
    while segments * (segments + 1) // 2 < _GROUPS_PER_THREAD * threads:
        segments += 1
    tiles = -(-n // tile)
    bounds = [min(n, bound * tile) for bound in even_bounds(tiles, min(segments, tiles))]
    return Layout(n, tile, width, tuple(bounds))


def place_groups(layout: Layout, threads: Mapping[str, int]) -> dict[Group, str]:
    """The worker of each group: as many numbers for each thread as for any other, and few segments for each worker.

    A worker needs the panel's rows of all segments that its groups lie in: what it has in common with what it has
    already saves messages.

    Parameters
    ----------
    layout : Layout
    threads : dict
        Of each worker, by its address.

    Examples
    --------
    >>> place_groups(Layout(8, 2, 2, (0, 2, 4, 6, 8)), {"a": 1, "b": 1})[3, 0]
    'a'
    """
    held = dict.fromkeys(threads, 0.0)
    known: dict[str, set[int]] = {address: set() for address in threads}
    placed: dict[Group, str] = {}
    for group in sorted(layout.groups, key=lambda group: (-layout.numbers(group), group)):
        size = layout.numbers(group)
        least = min((held[address] + size) / threads[address] for address in threads)
        fair = [address for address in threads if (held[address] + size) / threads[address] <= 1.1 * least]
        chosen = min(fair, key=lambda address: (len({*group} - known[address]), held[address] / threads[address]))
        placed[group] = chosen
        held[chosen] += size
        known[chosen] |= {*group}
    return placed


def place_parts(sizes: Sequence[int], threads: Mapping[str, int]) -> dict[str, list[int]]:
    """The numbers of the parts of R that each worker reads: as much for each thread as for any other.

    Parameters
    ----------
    sizes : sequence of int
        Of the parts.
    threads : dict
        Of each worker, by its address.

    Examples
    --------
    >>> place_parts([3, 9, 4], {"a": 1, "b": 1})
    {'a': [1], 'b': [2, 0]}
    """
    load = dict.fromkeys(threads, 0)
    placed: dict[str, list[int]] = {address: [] for address in threads}
    for part in sorted(range(len(sizes)), key=lambda part: -sizes[part]):
        at = min(load, key=lambda address: (load[address] + sizes[part]) / threads[address])
        placed[at].append(part)
        load[at] += sizes[part]
    return placed
