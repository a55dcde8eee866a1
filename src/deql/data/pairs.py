"""Pairs of user and item in a frame, in its order and with its repeats."""

from __future__ import annotations

import sys
from typing import Any

from deql.data.readers.columns import choose_columns
from deql.data.readers.frames import as_polars, frame_names
from deql.errors import DataError

__all__ = ["read_pairs"]


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
    both = table.select(names[roles.user], names[roles.item]).collect()
    for name, role in zip(both.columns, ("user", "item"), strict=True):
        if both[name].null_count():
            row = both[name].is_null().arg_max()
            raise DataError(f"the frame, row {(row or 0) + 1:,}: the {role} is missing")
    return both.to_series(0).to_list(), both.to_series(1).to_list()
