"""When things happened: whether that is known, and moments as people write them."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, date, datetime, time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deql.data.interactions import Interactions
from deql.errors import DataError, ParameterError, Setting

__all__ = ["check_times", "moment"]


def check_times(data: Interactions, purpose: str) -> NDArray[np.float64]:
    """When each interaction happened; DataError if that is not known, which ``purpose`` needs."""
    if data.times is None:
        raise DataError(
            f"{purpose} needs to know when things happened: say ", Setting("time"), " with that column when reading"
        )
    if not np.isfinite(data.times).all():
        raise DataError(f"{purpose} needs a time for every interaction: some are missing or not finite")
    return data.times


def moment(value: float | str | datetime | date, name: str) -> float:
    """A moment as a number: as it is, or in seconds since 1970 for dates; ParameterError, of ``name``, if it is none.

    Examples
    --------
    >>> moment("1970-01-02", "after"), moment(5, "after"), moment("7.5", "after")
    (86400.0, 5.0, 7.5)
    """
    given: Any = value
    if isinstance(given, date) and not isinstance(given, datetime):
        given = datetime.combine(given, time())
    if isinstance(given, str):
        for parse in (float, datetime.fromisoformat):
            with suppress(ValueError):
                return moment(parse(given), name)
    if isinstance(given, datetime):
        return (given if given.tzinfo else given.replace(tzinfo=UTC)).timestamp()
    if isinstance(given, int | float | np.number) and not isinstance(given, bool):
        with suppress(OverflowError):
            if np.isfinite(float(given)):
                return float(given)
    raise ParameterError(
        f"{name} must be a time as the data have it, or a date like 2015-03-04, got {value!r}", parameter=name
    )
