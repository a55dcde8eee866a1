"""Data sets: the bundled one, small enough to travel with the library, and the paper's, prepared from their files."""

from __future__ import annotations

from importlib.resources import files

from deql._system.lazy import pl
from deql.data import Interactions
from deql.datasets.public import prepare

__all__ = ["debian", "prepare"]


def debian() -> Interactions:
    """Which packages a Debian package names (bookworm main, amd64, point release 12.15).

    A "user" is a binary package; its "items" are the packages it names in Depends, Pre-Depends,
    Recommends and Suggests (first alternative, version stripped), every user and item with at least
    five interactions. To recommend here is to say which other packages belong with these.

    Returns
    -------
    Interactions
        17,432 users × 5,834 items, 173,855 interactions.

    Examples
    --------
    >>> import deql
    >>> data = deql.datasets.debian()
    >>> data.history("gimp")[:3]
    ['ghostscript', 'graphviz', 'gvfs-backends']
    """
    pairs = pl.read_parquet(files("deql.datasets").joinpath("debian-bookworm.parquet").read_bytes())
    return Interactions.from_pairs(pairs["package"].to_numpy(), pairs["names"].to_numpy())
