"""What a model asks of a frame beside its interactions: pairs in their order, and whether there are weights."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from deql._system.lazy import pl
from deql.data.readers.columns import ColumnRoles, choose_columns, find_known
from deql.data.readers.frames import as_polars, frame_names, unreadable
from deql.data.readers.parsed_rows import parse_rows
from deql.errors import DataError

__all__ = ["CodedIds", "read_pairs", "weight_column"]


class CodedIds(NamedTuple):
    """Distinct ids in the order in which they come first, and which of them each row has."""

    ids: list[Any]
    codes: NDArray[np.int64]


def read_pairs(frame: Any) -> tuple[CodedIds, CodedIds]:
    """Users and items of a frame's rows; columns are found, and told, as :func:`deql.read_interactions` does.

    Examples
    --------
    >>> import polars as pl
    >>> users, items = read_pairs(pl.DataFrame({"user": ["bob", "ann", "bob"], "item": [9, 9, 7]}))
    >>> users.ids, users.codes.tolist(), items.ids, items.codes.tolist()
    (['bob', 'ann'], [0, 1, 0], [9, 7], [0, 0, 1])
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
    return _coded(rows.users), _coded(rows.items)


def weight_column(frame: Any) -> str | None:
    """The column of a frame that looks like weights, by its name.

    Examples
    --------
    >>> import polars as pl
    >>> weight_column(pl.DataFrame({"user": [1], "item": [2], "rating": [5]}))
    'rating'
    """
    if hasattr(frame, "collect_schema"):  # of polars, whose lazy frames would warn
        names = frame.collect_schema().names()
    else:
        names = [str(name) for name in getattr(frame, "column_names", frame.columns)]
    place = find_known(names, "weight")
    return None if place is None else names[place]


def _coded(ids: Any) -> CodedIds:
    column = pl.Series("id", ids)
    distinct = column.unique(maintain_order=True)
    numbered = pl.DataFrame({"id": distinct, "code": np.arange(len(distinct))})
    rows = column.to_frame().join(numbered, on="id", how="left", maintain_order="left")
    return CodedIds(distinct.to_list(), rows["code"].to_numpy())


def _row_error(row: int, *problem: Any) -> DataError:
    return DataError(f"the frame, row {row + 1:,}: ", *problem)
