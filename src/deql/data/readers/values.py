"""Columns of a table as users, items, weights and times; what cannot be one is reported with its place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from deql.data.readers.dictionary import TextPart
from deql.data.readers.ids import as_whole_numbers
from deql.errors import DataError, name_some

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Ids", "Mixture", "Rows", "Where", "refuse_header", "rows_of"]

Ids: TypeAlias = "NDArray[Any] | TextPart | pl.Series"

Where = Callable[[int, str], DataError]
"""Makes an error of a row's number and what is wrong with it."""


@dataclass(frozen=True)
class Mixture:
    """Text for ids in a text file: how many are whole numbers, and the first row with a word without any digit, or −1.

    A word among ids of which most are whole numbers is a slip, such as NULL. Ids that mix both kinds by
    design (ISBN, ASIN, article numbers) have digits in all of them.
    """

    whole: int
    row: int
    word: str
    name: str


@dataclass(frozen=True, eq=False)
class Rows:
    """Some rows of a table.

    Attributes
    ----------
    users, items : ndarray of integers, TextPart or series of text
    weights, times : ndarray of float64 or None
    where : callable
        Says in which line a row stands.
    mixtures : pair of Mixture or None
        Of users and items that are text.
    """

    users: Ids
    items: Ids
    weights: NDArray[np.float64] | None
    times: NDArray[np.float64] | None
    where: Where
    mixtures: tuple[Mixture | None, Mixture | None] = (None, None)

    def __len__(self) -> int:
        return len(self.users)


def rows_of(
    user: pl.Series,
    item: pl.Series,
    weight: pl.Series | None,
    time: pl.Series | None,
    where: Where,
    untyped: bool = False,
    text_ids: bool = False,
) -> Rows:
    """Check and convert the columns of some rows.

    Parameters
    ----------
    user, item, weight, time : Series
        Of any type.
    where : callable
        Makes an error of a row and what is wrong.
    untyped : bool, default False
        The columns are what stood in a text file: an empty field is a missing one, a column's own name
        among its values is a header in the wrong place, and words among whole numbers are told.
    text_ids : bool, default False
        Keep ids as text even if all of them are whole numbers; a word among them is then fine.

    Examples
    --------
    >>> import polars as pl
    >>> where = lambda row, problem: DataError(f"row {row + 1}: {problem}")
    >>> rows = rows_of(pl.Series(["7", "8"]), pl.Series(["tea", "jam"]), pl.Series(["1", "2.5"]), None, where)
    >>> rows.users.tolist(), rows.items.to_list(), rows.weights.tolist()
    ([7, 8], ['tea', 'jam'], [1.0, 2.5])
    >>> rows_of(pl.Series(["7"]), pl.Series(["tea"]), pl.Series("weight", ["much"]), None, where)
    Traceback (most recent call last):
    ...
    deql.errors.DataError: row 1: 'much' in column weight is not a number: correct it, or name another weight=…
    """
    present = [column for column in (user, item, weight, time) if column is not None]
    for column in present[:2] if untyped else ():
        repeated = (column == column.name).fill_null(False)
        if repeated.any() and not column.name.isdigit():  # a number is the name of a column that has none
            raise refuse_header(_first(repeated), column.name, where)
    for column in present:
        missing = column.is_null() | (column == "") if untyped else column.is_null()
        if column.dtype.is_float():
            missing = missing | column.is_nan()
        if missing.any():
            raise where(
                _first(missing),
                f"column {column.name} is empty here: fill in or remove the row ({_times(missing)})",
            )
    users, items = _ids(user, where, text_ids), _ids(item, where, text_ids)
    return Rows(
        users, items,
        None if weight is None else _numbers(weight, where), None if time is None else _moments(time, where), where,
        (_mixture(users), _mixture(items)) if untyped and not text_ids else (None, None),
    )  # fmt: skip


def _ids(column: pl.Series, where: Where, text_ids: bool) -> NDArray[np.int64] | pl.Series:
    import polars as pl

    kind = column.dtype
    if kind.is_nested() or kind in (pl.Binary, pl.Object):
        raise where(0, f"column {column.name} holds {kind} values: ids must be whole numbers or text")
    text = column.cast(pl.String)
    if text_ids:
        return text
    if kind.is_integer() and kind not in (pl.UInt64, pl.Int128, pl.UInt128):
        return column.cast(pl.Int64).to_numpy()
    if kind.is_float():  # whole numbers that a gap once turned into floats
        text = text.str.strip_suffix(".0")
    whole = as_whole_numbers(text)
    return text if whole is None else whole


def _mixture(ids: NDArray[np.int64] | pl.Series) -> Mixture | None:
    import polars as pl

    if not isinstance(ids, pl.Series):
        return None
    words = ~ids.str.contains("[0-9]")
    row = _first(words) if words.any() else -1
    whole = len(ids) - ids.cast(pl.Int64, strict=False).null_count()
    return Mixture(whole, row, ids[row], ids.name)


def refuse_header(row: int, name: str, where: Where) -> DataError:
    """A column's own name among its values."""
    return where(row, f"the header stands here again ({name}): remove the line, or join the files without it")


def _numbers(column: pl.Series, where: Where, what: str = "weight") -> NDArray[np.float64]:
    import polars as pl

    if column.dtype.is_nested() or column.dtype in (pl.Binary, pl.Object) or column.dtype.is_temporal():
        raise where(
            0,
            f"column {column.name} holds {column.dtype} values where numbers belong: name another as {what}=…",
        )
    numbers = column.cast(pl.Float64, strict=False)
    bad = numbers.is_null() | ~numbers.is_finite().fill_null(False)
    if bad.any():
        row = _first(bad)
        found = column[row]
        reason = "is not a number" if numbers[row] is None else "is not finite"
        raise where(row, f"{name_some([found])} in column {column.name} {reason}: correct it, or name another {what}=…")
    return numbers.to_numpy()


def _moments(column: pl.Series, where: Where) -> NDArray[np.float64]:
    """Times as numbers: as they are, or seconds since 1970 for dates."""
    import polars as pl

    if column.dtype == pl.String and len(column) and column.head(1).cast(pl.Float64, strict=False).null_count():
        # Only dates that are written in the one unmistakable way: 03/04/2005 is two days.
        other = ~column.str.contains(r"^\d{4}-\d{2}-\d{2}")
        if other.any():
            row = _first(other)
            found = name_some([column[row]])
            raise where(row, f"{found} in column {column.name} is no number and no date like 2005-03-04: rewrite it")
        column = _dates(column)
    if column.dtype in (pl.Time, pl.Duration):
        raise where(0, f"column {column.name} holds {column.dtype} values, which are no dates: name another time=…")
    if column.dtype.is_temporal():
        if column.null_count():
            raise where(_first(column.is_null()), f"column {column.name} is not a date or time here: correct it")
        column = column.cast(pl.Datetime("us")).cast(pl.Int64).cast(pl.Float64) / 1e6
    return _numbers(column, where, "time")


def _dates(column: pl.Series) -> pl.Series:
    import polars as pl

    try:
        return column.str.to_datetime(strict=False, time_zone="UTC", time_unit="us").alias(column.name)
    except pl.exceptions.PolarsError:
        return column.str.to_date(strict=False).alias(column.name)


def _first(marks: pl.Series) -> int:
    return int(marks.arg_max() or 0)


def _times(marks: pl.Series) -> str:
    count = int(marks.sum())
    return "once" if count == 1 else f"{count:,} times in this part of the table"
