"""Hyper-parameters out of their range, said in one sentence."""

from __future__ import annotations

from typing import Any

import numpy as np

from deql.errors import ParameterError

__all__ = ["check_range", "check_whole", "chosen_rank"]


def check_range(name: str, value: Any, low: float, high: float, below: bool = False) -> None:
    """Raise ParameterError unless ``value`` is a number from low to high (below high if so asked)."""
    good = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if good and low <= value <= high and (value < high or not below) and (np.isfinite(value) or name == "b"):
        return
    bounds = {
        (0.0, np.inf): "a number from 0 up",
        (0.0, 1.0): f"a number from 0 {'to below' if below else 'to'} 1",
    }.get((low, high), "a number")
    raise ParameterError(f"{name} must be {bounds}, got {value!r}", parameter=name)


def check_whole(name: str, value: Any, least: int = 1) -> int:
    """The value as a plain int; raises ParameterError unless it is a whole number from ``least`` up."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ParameterError(f"{name} must be a whole number from {least} up, got {value!r}", parameter=name)
    return int(value)


def chosen_rank(rank: int | None, n: int) -> int:
    """The rank of weights of n items: as asked for, or 256 where there are so many; ParameterError if n is less.

    Examples
    --------
    >>> chosen_rank(None, 1000), chosen_rank(None, 7), chosen_rank(3, 7)
    (256, 7, 3)
    """
    if rank is None:
        return min(256, n)
    if rank > n:
        raise ParameterError(f"rank must be at most the number of items, {n:,}, got {rank:,}", parameter="rank")
    return int(rank)
