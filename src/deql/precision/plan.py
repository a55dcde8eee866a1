"""How the packed matrix is cut into tiles."""

from __future__ import annotations

__all__ = ["STRIP", "choose_tile"]

STRIP = 64
"""Columns scored at once by the top-k kernel; every tile of a cut matrix is a multiple of it."""


def choose_tile(n: int) -> int:
    """Width of the block columns for an n × n matrix.

    Measured on two cores against LAPACK's packed Cholesky pair (``spftrf`` and ``spftri``) on the
    same matrix: up to about 2,000 columns one LAPACK call on the whole matrix is fastest and the
    memory does not matter, so the matrix is one tile. Above that the sweep is within 5 % of the
    packed pair when a tile is about n/24 wide: narrower tiles make the products memory-bound,
    wider ones spend more on the panel.

    Examples
    --------
    >>> choose_tile(900), choose_tile(5834), choose_tile(12_000), choose_tile(38_048)
    (900, 256, 512, 1024)
    """
    if n <= 2048:
        return n
    if n <= 8192:
        return 256
    return 512 if n <= 24_576 else 1024
