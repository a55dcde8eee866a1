"""Interactions of very many users and items, seeded, written as Parquet a million users at a time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

__all__ = ["write_events"]

_AT_ONCE = 1_000_000
_COMMUNITIES = 1000
"""Tastes: a user draws seven items of ten from one of them, and three from all."""


def write_events(folder: Path, users: int, items: int, interactions: int, seed: int = 0) -> int:
    """Write interactions, in no order, and say how many; popularity is Zipf's, activity log-normal.

    Parameters
    ----------
    folder : Path
        Gets a file for each million users.
    users, items : int
    interactions : int
        About so many: a pair that is drawn twice counts once.
    seed : int
    """
    folder.mkdir(parents=True, exist_ok=True)
    popularity = 1.0 / (np.arange(items) + 10.0)
    steps = np.cumsum(popularity) / popularity.sum()
    own = np.cumsum(1.0 / (np.arange(items // _COMMUNITIES) + 3.0))
    own /= own[-1]
    mean, written = interactions / users, 0
    for number, first in enumerate(range(0, users, _AT_ONCE)):
        rng = np.random.default_rng([seed, number])
        count = min(_AT_ONCE, users - first)
        activity = np.maximum(1, rng.poisson(rng.lognormal(np.log(1.08 * mean) - 0.32, 0.8, count)))
        who = np.repeat(np.arange(first, first + count), activity)
        taste = np.repeat(rng.integers(0, _COMMUNITIES, count), activity)
        what = np.minimum(np.searchsorted(own, rng.random(len(who))), len(own) - 1) * _COMMUNITIES + taste
        anything = rng.random(len(who)) < 0.3
        what[anything] = np.minimum(np.searchsorted(steps, rng.random(int(anything.sum()))), items - 1)
        keys = rng.permutation(np.unique(who * items + what))
        written += _write(folder / f"events-{number:03}.parquet", keys, items)
    return written


def _write(file: Path, keys: NDArray[np.int64], items: int) -> int:
    pl.DataFrame({"user": keys // items, "item": keys % items}).write_parquet(file)
    return len(keys)
