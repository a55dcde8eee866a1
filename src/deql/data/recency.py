"""Recency: interactions that count for less as they grow older."""

from __future__ import annotations

import math
import re
from contextlib import suppress
from dataclasses import replace

import numpy as np
from scipy.sparse import csr_array

from deql.data.interactions import Interactions
from deql.data.moments import check_times
from deql.errors import ParameterError, shorten

__all__ = ["faded", "latest_time", "parse_half_life", "written_half_life"]

_SECONDS = {"s": 1, "min": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_OLDEST = 100.0
"""Half-lives after which nothing fades further: 2⁻¹⁰⁰ is nothing beside 1, and its powers are still numbers."""


def parse_half_life(half_life: float | str) -> float:
    """A half-life in the unit of the times; ParameterError unless it is a number or a length of time above 0.

    Parameters
    ----------
    half_life : float or str
        A number, in the unit of the times; or a number and s, min, h, d or w, for times in seconds.

    Examples
    --------
    >>> parse_half_life("30d"), parse_half_life("1.5 h"), parse_half_life(7)
    (2592000.0, 5400.0, 7.0)
    """
    number, unit = half_life, 1
    if isinstance(half_life, str) and (found := re.fullmatch(r"\s*(\S*?)\s*(s|min|h|d|w)?\s*", half_life)):
        number, unit = found[1], _SECONDS.get(found[2], 1)
    if not isinstance(number, bool | np.bool_):
        with suppress(TypeError, ValueError, OverflowError):
            if 0 < (length := float(number) * unit) < math.inf:
                return length
    raise ParameterError(
        "half_life must be a number above 0 in the unit of the times, or text such as 30d (s, min, h, d, w), got "
        f"{shorten(repr(half_life), 60)}",
        parameter="half_life",
    )


def written_half_life(length: float) -> float | str:
    """A half-life as it is typed: in days or hours where it is a whole number of them.

    Examples
    --------
    >>> written_half_life(2592000.0), written_half_life(43200.0), written_half_life(7.0)
    ('30d', '12h', 7.0)
    """
    for unit in ("d", "h"):
        if length % _SECONDS[unit] == 0:
            return f"{length / _SECONDS[unit]:.0f}{unit}"
    return length


def faded(data: Interactions, half_life: float | str, until: float) -> Interactions:
    """The interactions with values × 2^(−(until − time)/half_life), in float64.

    No value becomes 0: after a hundred half-lives nothing fades further. So all users keep as many items as they have.

    Parameters
    ----------
    data : Interactions
        With times.
    half_life : float or str
        See :func:`parse_half_life`.
    until : float
        When an interaction counts in full; later ones count more.

    Examples
    --------
    >>> from dataclasses import replace
    >>> data = Interactions.from_pairs(["ann", "ann", "bob"], ["jam", "tea", "tea"], [1, 1, 4])
    >>> faded(replace(data, times=np.array([0.0, 20.0, 10.0])), half_life=10, until=20.0).matrix.toarray()
    array([[0.25, 1.  ],
           [0.  , 2.  ]])
    """
    ages = (until - check_times(data, "half_life")) / parse_half_life(half_life)
    with np.errstate(over="ignore"):
        values = data.matrix.data * np.exp2(-np.minimum(ages, _OLDEST))
    if not np.isfinite(values).all():
        raise ParameterError(
            f"half_life={half_life} is too short for what happened {-ages.min():.3g} half-lives after the moment at "
            "which interactions count in full: take a longer one",
            parameter="half_life",
        )
    # Weights of one's own may be so small that they vanish all the same.
    values = np.copysign(np.maximum(np.abs(values), np.finfo(np.float64).tiny), values)
    matrix = csr_array((values, data.matrix.indices, data.matrix.indptr), shape=data.matrix.shape)
    return replace(data, matrix=matrix)


def latest_time(data: Interactions) -> float:
    """When the last interaction happened.

    Examples
    --------
    >>> from dataclasses import replace
    >>> latest_time(replace(Interactions.from_pairs([1, 2], [1, 2]), times=np.array([3.0, 5.0])))
    5.0
    """
    return float(check_times(data, "half_life").max())
