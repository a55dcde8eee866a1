"""How the packed matrix is cut into tiles."""

from __future__ import annotations

__all__ = ["STRIP", "choose_tile"]

STRIP = 64
"""Columns scored at once by the top-k kernel; every tile of a cut matrix is a multiple of it."""


def choose_tile(n: int) -> int:
    """Width of the block columns for an n × n matrix.

    A step's panel costs 3·tile/n of the whole work and its pass over the matrix is memory traffic
    that narrow tiles repeat more often; measured on two cores, n/32 balances the two between 5,000
    and 12,000 columns. Up to about 2,000 columns one LAPACK call on the whole matrix is fastest and
    memory does not matter, so the matrix is one tile.

    Examples
    --------
    >>> choose_tile(900), choose_tile(5834), choose_tile(12_000), choose_tile(38_048)
    (900, 192, 384, 1024)
    """
    if n <= 2048:
        return n
    return min(max(round(n / 32 / STRIP), 2), 16) * STRIP
