"""Hyper-parameters out of their range, said in one sentence."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np

from deql.errors import ParameterError, shorten

__all__ = ["check_range", "check_switch", "check_whole", "chosen_rank"]

_TOO_LARGE = 2**128
"""Whole numbers from here on are no counts, and no seeds."""


def check_range(name: str, value: Any, low: float, high: float, below: bool = False) -> None:
    """Raise ParameterError unless ``value`` is a number from low to high (below high if so asked)."""
    good = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    with suppress(OverflowError):  # a whole number that no float can hold
        number = float(value) if good else np.nan
        if low <= number <= high and (number < high or not below) and (np.isfinite(number) or name == "b"):
            return
    bounds = {
        (0.0, np.inf): "a number from 0 up",
        (0.0, 1.0): f"a number from 0 {'to below' if below else 'to'} 1",
    }.get((low, high), "a number")
    raise ParameterError(f"{name} must be {bounds}, got {_shown(value)}", parameter=name)


def check_whole(name: str, value: Any, least: int = 1) -> int:
    """The value as a plain int; raises ParameterError unless it is a whole number from ``least`` up."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or not least <= value < _TOO_LARGE:
        raise ParameterError(f"{name} must be a whole number from {least} up, got {_shown(value)}", parameter=name)
    return int(value)


def check_switch(name: str, value: Any) -> None:
    """Raise ParameterError unless ``value`` is true or false."""
    if not isinstance(value, bool | np.bool_ | int) or value not in (0, 1):
        raise ParameterError(f"{name} must be True or False, got {_shown(value)}", parameter=name)


def _shown(value: Any) -> str:
    """The value as it is written; numbers of thousands of digits, which Python does not write, by their length."""
    if isinstance(value, int) and abs(value) >= _TOO_LARGE:
        return f"a number of {int(value.bit_length() * 0.30103) + 1:,} digits"
    return shorten(repr(value), 200)


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
