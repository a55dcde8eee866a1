"""What a frame says beside interactions: pairs of user and item in its order, and which column has weights."""

from __future__ import annotations

import sys
from typing import Any

from deql._system.lazy import pl
from deql.data.readers.columns import ColumnRoles, choose_columns, find_known
from deql.data.readers.frames import as_polars, frame_names, unreadable
from deql.data.readers.parsed_rows import parse_rows
from deql.errors import DataError

__all__ = ["read_pairs", "weight_column"]


def read_pairs(frame: Any) -> tuple[list[Any], list[Any]]:
    """Users and items of a frame's rows; columns are found, and told, as :func:`deql.read_interactions` does.

    Examples
    --------
    >>> import polars as pl
    >>> read_pairs(pl.DataFrame({"user": ["ann", "bob"], "item": [7, 9]}))
    (['ann', 'bob'], [7, 9])
    """
    table = as_polars(frame)
    names = frame_names(table, "the frame")
    roles = choose_columns(names, "the frame", None, None, None, None)
    print(f"deql: the frame: {roles.describe(names)}", file=sys.stderr)
    try:
        both = table.select(names[roles.user], names[roles.item]).collect()
    except unreadable() as error:
        raise DataError(f"the frame cannot be read ({str(error).strip().splitlines()[0]})") from None
    for column, role in zip(both.get_columns(), ("user", "item"), strict=True):
        missing = column.is_null() | (column.is_nan() if column.dtype.is_float() else False)
        if missing.any():
            raise DataError(f"the frame, row {(missing.arg_max() or 0) + 1:,}: the {role} is missing")
    rows = parse_rows(both.to_series, ColumnRoles(0, 1, None, None, False), _row_error)
    return _listed(rows.users), _listed(rows.items)


def weight_column(frame: Any) -> str | None:
    """The name of a frame's column that looks like weights.

    Examples
    --------
    >>> import polars as pl
    >>> weight_column(pl.DataFrame({"user": ["ann"], "item": [7], "rating": [4.5]}))
    'rating'
    """
    if hasattr(frame, "collect_schema"):  # of polars, whose lazy frames would warn
        names = frame.collect_schema().names()
    else:
        names = [str(name) for name in getattr(frame, "column_names", frame.columns)]
    place = find_known(names, "weight")
    return None if place is None else names[place]


def _listed(ids: Any) -> list[Any]:
    return list(ids.to_list() if isinstance(ids, pl.Series) else ids.tolist())


def _row_error(row: int, *problem: Any) -> DataError:
    return DataError(f"the frame, row {row + 1:,}: ", *problem)
