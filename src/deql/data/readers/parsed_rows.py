"""Columns of a table as users, items, weights and times; what cannot be one is reported with its place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deql._system.lazy import pl
from deql.data.readers.columns import ColumnRoles
from deql.data.readers.ids import MISSING, RowError, as_whole_numbers
from deql.errors import DataError, Setting, name_some

__all__ = ["ParsedRows", "is_missing", "parse_rows"]


@dataclass(frozen=True, eq=False)
class ParsedRows:
    """Some rows of a table.

    Attributes
    ----------
    users, items : ndarray of integers or series of text
    weights, times : ndarray of float64 or None
    row_error : callable
        Makes an error that says in which line a row stands.
    untyped : bool
        Whether this is text from a file, so that words among whole numbers are suspicious.
    skipped : int
        Rows without a user or an item that were left out.
    """

    users: NDArray[Any] | pl.Series
    items: NDArray[Any] | pl.Series
    weights: NDArray[np.float64] | None
    times: NDArray[np.float64] | None
    row_error: RowError
    untyped: bool = False
    skipped: int = 0

    def __len__(self) -> int:
        return len(self.users)


def parse_rows(
    column: Callable[[int], pl.Series], roles: ColumnRoles, row_error: RowError, untyped: bool = False
) -> ParsedRows:
    """Check and convert the columns of some rows.

    Parameters
    ----------
    column : callable
        The column at a place, under its name, of any type.
    roles : ColumnRoles
        Which are wanted.
    row_error : callable
        Makes an error of a row and what is wrong.
    untyped : bool, default False
        The columns are what stood in a text file: an empty field is a missing one, a column's own name
        among its values is a header in the wrong place, and words among whole numbers are looked for.

    Examples
    --------
    >>> import polars as pl
    >>> from deql.errors import DataError
    >>> row_error = lambda row, *problem: DataError(f"row {row + 1}: ", *problem)
    >>> frame = pl.DataFrame({"user": ["7", "8"], "item": ["tea", "jam"], "stars": ["1", "2.5"], "note": ["much", "x"]})
    >>> rows = parse_rows(frame.to_series, ColumnRoles(0, 1, 2, None, False), row_error)
    >>> rows.users.tolist(), rows.items.to_list(), rows.weights.tolist()
    ([7, 8], ['tea', 'jam'], [1.0, 2.5])
    >>> parse_rows(frame.to_series, ColumnRoles(0, 1, 3, None, False), row_error)
    Traceback (most recent call last):
    ...
    deql.errors.DataError: row 1: 'much' in column note is not a number: correct it, or name another weight=…
    """
    columns = {role: column(place) for role, place in roles.places.items()}
    skipped = 0
    if roles.skip_missing:
        missing = is_missing(columns["user"]) | is_missing(columns["item"])
        skipped = int(missing.sum())
        if skipped:
            columns = {role: values.filter(~missing) for role, values in columns.items()}
            row_error = partial(_error_among, row_error, np.flatnonzero(~missing.to_numpy()))
    for values in (columns["user"], columns["item"]) if untyped else ():
        repeated = (values == values.name).fill_null(False)
        if repeated.any() and not values.name.isdigit():  # a number is the name of a column that has none
            problem = f"the header stands here again ({values.name}): remove the line, or join the files without it"
            raise row_error(_first(repeated), problem)
    for values in columns.values():
        missing = values.is_null() | (values == "") if untyped else values.is_null()
        if values.dtype.is_float():
            missing = missing | values.is_nan()
        if missing.any():
            problem = f"column {values.name} is empty here: fill in or remove the row ({_times(missing)})"
            ids = values is columns["user"] or values is columns["item"]
            skip = (", or leave such rows out with ", Setting("on_missing", "skip")) if ids else ()
            raise row_error(_first(missing), problem, *skip)
    return ParsedRows(
        _ids(columns["user"], row_error),
        _ids(columns["item"], row_error),
        _numbers(columns["weight"], row_error) if "weight" in columns else None,
        _timestamps(columns["time"], row_error) if "time" in columns else None,
        row_error,
        untyped,
        skipped,
    )


def is_missing(ids: pl.Series) -> pl.Series:
    """Which ids are none: nulls, NaN, and text that is empty or stands for nothing, such as NA.

    Examples
    --------
    >>> import polars as pl
    >>> is_missing(pl.Series(["7", "", "NULL", None])).to_list()
    [False, True, True, True]
    """
    missing = ids.is_null()
    if ids.dtype.is_float():
        return missing | ids.is_nan().fill_null(False)
    if ids.dtype in (pl.String, pl.Categorical, pl.Enum):
        return missing | ids.cast(pl.String).str.strip_chars().is_in(MISSING).fill_null(False)
    return missing


def _error_among(row_error: RowError, kept: NDArray[np.intp], row: int, *problem: str | Setting) -> DataError:
    """An error about one of the rows that were kept."""
    return row_error(int(kept[row]), *problem)


def _ids(column: pl.Series, row_error: RowError) -> NDArray[np.int64] | pl.Series:
    kind = column.dtype
    if kind.is_nested() or kind in (pl.Binary, pl.Object):
        raise row_error(0, f"column {column.name} holds {kind} values: ids must be whole numbers or text")
    if kind.is_integer() and kind not in (pl.UInt64, pl.Int128, pl.UInt128):
        return column.cast(pl.Int64).to_numpy()
    text = column.cast(pl.String)
    if kind.is_float():  # whole numbers that a gap once turned into floats
        text = text.str.strip_suffix(".0")
    whole = as_whole_numbers(text)
    return text if whole is None else whole


def _numbers(column: pl.Series, row_error: RowError, what: str = "weight") -> NDArray[np.float64]:
    if column.dtype.is_nested() or column.dtype in (pl.Binary, pl.Object) or column.dtype.is_temporal():
        problem = f"column {column.name} holds {column.dtype} values where numbers belong: name another as "
        raise row_error(0, problem, Setting(what))
    numbers = column.cast(pl.Float64, strict=False)
    bad = numbers.is_null() | ~numbers.is_finite().fill_null(False)
    if bad.any():
        row = _first(bad)
        found = column[row]
        reason = "is not a number" if numbers[row] is None else "is not finite"
        problem = f"{name_some([found])} in column {column.name} {reason}: correct it, or name another "
        raise row_error(row, problem, Setting(what))
    return numbers.to_numpy()


def _timestamps(column: pl.Series, row_error: RowError) -> NDArray[np.float64]:
    """Times as numbers: as they are, or seconds since 1970 for dates."""
    if column.dtype == pl.String and len(column) and column.head(1).cast(pl.Float64, strict=False).null_count():
        # Only dates that are written in the one unmistakable way: 03/04/2005 is two days.
        other = ~column.str.contains(r"^\d{4}-\d{2}-\d{2}")
        if other.any():
            row = _first(other)
            found = name_some([column[row]])
            problem = f"{found} in column {column.name} is no number and no date like 2005-03-04: rewrite it"
            raise row_error(row, problem)
        column = _dates(column)
    if column.dtype in (pl.Time, pl.Duration):
        problem = f"column {column.name} holds {column.dtype} values, which are no dates: name another "
        raise row_error(0, problem, Setting("time"))
    if column.dtype.is_temporal():
        if column.null_count():
            raise row_error(_first(column.is_null()), f"column {column.name} is not a date or time here: correct it")
        column = column.cast(pl.Datetime("us")).cast(pl.Int64).cast(pl.Float64) / 1e6
    return _numbers(column, row_error, "time")


def _dates(column: pl.Series) -> pl.Series:
    try:
        return column.str.to_datetime(strict=False, time_zone="UTC", time_unit="us").alias(column.name)
    except pl.exceptions.PolarsError:
        return column.str.to_date(strict=False).alias(column.name)


def _first(marks: pl.Series) -> int:
    return int(marks.arg_max() or 0)


def _times(marks: pl.Series) -> str:
    count = int(marks.sum())
    return "once" if count == 1 else f"{count:,} times in this part of the table"
