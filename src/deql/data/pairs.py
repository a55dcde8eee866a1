"""What a model asks of a frame beside its interactions: pairs in their order, and whether there are weights."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from deql._system.lazy import pl
from deql.data.readers.columns import choose_columns, find_known
from deql.data.readers.frames import as_polars, frame_names
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
    both = table.select(names[roles.user], names[roles.item]).collect()
    for name, role in zip(both.columns, ("user", "item"), strict=True):
        if both[name].null_count():
            row = both[name].is_null().arg_max()
            raise DataError(f"the frame, row {(row or 0) + 1:,}: the {role} is missing")
    return _coded(both.to_series(0)), _coded(both.to_series(1))


def weight_column(frame: Any) -> str | None:
    """The column of a frame that looks like weights, by its name.

    Examples
    --------
    >>> import polars as pl
    >>> weight_column(pl.DataFrame({"user": [1], "item": [2], "rating": [5]}))
    'rating'
    """
    names = frame_names(as_polars(frame), "the frame")
    place = find_known(names, "weight")
    return None if place is None else names[place]


def _coded(column: pl.Series) -> CodedIds:
    distinct = column.unique(maintain_order=True)
    numbered = pl.DataFrame({"id": distinct, "code": np.arange(len(distinct))})
    rows = column.to_frame("id").join(numbered, on="id", how="left", maintain_order="left")
    return CodedIds(distinct.to_list(), rows["code"].to_numpy())
