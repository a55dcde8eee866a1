"""A table of features as people bring it: rows by item, columns by name; or a matrix in the order of the items."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from deql._system.lazy import pl
from deql.data.interactions import is_frame
from deql.data.readers.columns import Choice, find_known
from deql.data.readers.side_tables import id_texts, read_side_table
from deql.errors import DataError, Setting, name_some, printable

__all__ = ["MATRIX", "FeatureTable", "open_features", "typed_ids"]

MATRIX = ""
"""Name of the one column of a table that is a matrix."""

_WHOLE = re.compile("0|-?[1-9][0-9]{0,18}")


@dataclass(frozen=True, eq=False)
class FeatureTable:
    """Features before anything was learned of them.

    Attributes
    ----------
    name : str
        What messages call it.
    keys : tuple of str or None
        Ids as text, one for each row; None for a matrix, whose rows are in the order of the items.
    columns : dict
        By name: polars' series; or a matrix alone, under the name ``MATRIX``.
    titles : polars.Series or None
        What people call the items.
    """

    name: str
    keys: tuple[str, ...] | None
    columns: dict[str, Any]
    titles: Any = None

    @property
    def n_rows(self) -> int:
        """How many items it has."""
        return len(self.keys) if self.keys is not None else int(self.columns[MATRIX].shape[0])

    @cached_property
    def places(self) -> dict[str, int]:
        """The row of each id."""
        return {key: row for row, key in enumerate(self.keys or ())}

    def rows_of(self, items: NDArray[Any]) -> NDArray[np.int64]:
        """The row of each item, −1 where it has none."""
        if self.keys is None:
            return np.where(np.arange(len(items)) < self.n_rows, np.arange(len(items)), -1)
        return np.array([self.places.get(str(item), -1) for item in items.tolist()], np.int64)

    def titles_of(self, items: NDArray[Any]) -> NDArray[Any]:
        """What people call the items, the id where the table does not say."""
        shown = np.empty(len(items), object)
        titles = [] if self.titles is None else self.titles.to_list()
        for place, (item, row) in enumerate(zip(items.tolist(), self.rows_of(items).tolist(), strict=True)):
            shown[place] = (titles[row] if titles and row >= 0 else None) or str(item)
        return shown

    def take(self, rows: NDArray[np.int64]) -> dict[str, Any]:
        """The columns in these rows, with nothing where a row is −1."""
        if MATRIX in self.columns:
            matrix = self.columns[MATRIX]
            there = csr_array(
                (np.ones((rows >= 0).sum()), (np.flatnonzero(rows >= 0), rows[rows >= 0])),
                shape=(len(rows), matrix.shape[0]),
            )
            return {MATRIX: csr_array(there @ matrix)}
        wanted = pl.Series([None if row < 0 else row for row in rows.tolist()], dtype=pl.Int64)
        return {name: series.gather(wanted) for name, series in self.columns.items()}


def open_features(source: Any, item: Choice = None) -> FeatureTable:
    """Read a table of features.

    Parameters
    ----------
    source : path, frame, mapping, sparse matrix or array
        A mapping has, for each item id, a mapping of features by name, or a row of numbers.
    item : str or int, optional
        The column of item ids, by name or number from 1; found by common names, or ``id``, if not given.

    Examples
    --------
    >>> table = open_features(pl.DataFrame({"item": [7, 9], "genres": ["Comedy|Drama", "Drama"]}))
    >>> table.keys, list(table.columns)
    (('7', '9'), ['genres'])
    """
    if isinstance(source, Mapping):
        return _of_mapping(source)
    if not isinstance(source, str | os.PathLike) and not is_frame(source):
        return FeatureTable("the matrix of features", None, {MATRIX: check_matrix(source)})
    name = str(source) if isinstance(source, str | os.PathLike) else "the table of features"
    frame = read_side_table(source, "features")
    place = _id_place(frame.columns, name, item)
    return _of_frame(frame, frame.columns[place], name)


def check_matrix(source: Any) -> csr_array:
    """A matrix of features as sparse numbers; DataError unless it is one and all of them are finite."""
    try:
        given: Any = source if issparse(source) else np.asarray(source)
        if given.ndim != 2 or given.dtype.kind == "c":
            raise ValueError
        matrix: csr_array = csr_array(given).astype(np.float64)
    except (TypeError, ValueError):
        raise DataError(
            "features must be a file's path, a frame, a matrix with a row for each item or a mapping from item to "
            f"features, got {type(source).__name__}"
        ) from None
    if not matrix.shape[0] or not matrix.shape[1]:
        raise DataError(f"the matrix of features is empty: {matrix.shape[0]:,} items × {matrix.shape[1]:,} features")
    if not (finite := np.isfinite(matrix.data)).all():
        place = int(finite.argmin())
        row = int(np.searchsorted(matrix.indptr, place, side="right")) - 1
        raise DataError(
            f"the matrix of features holds {matrix.data[place]} in row {row + 1:,}, column "
            f"{int(matrix.indices[place]) + 1:,}: put 0 or a mean there"
        )
    return matrix


def typed_ids(keys: list[str], like: NDArray[Any], name: str) -> NDArray[Any]:
    """Ids as text in the type that the model's ids have.

    Examples
    --------
    >>> typed_ids(["7"], np.array([1, 2]), "items.csv").tolist(), typed_ids(["7"], np.array(["a"], object), "").tolist()
    ([7], ['7'])
    """
    if like.dtype.kind not in "iu":
        typed = np.empty(len(keys), object)
        typed[:] = keys
        return typed
    # As whole numbers are written: 07 would be item 7 once more.
    wrong = next((key for key in keys if not _WHOLE.fullmatch(key) or not -(2**63) <= int(key) < 2**63), None)
    if wrong is not None:
        raise DataError(
            f"{name} has an item {wrong!r}, and the ids of the interactions are whole numbers: leave it out, or read "
            "the interactions with ids as text"
        )
    return np.array([int(key) for key in keys], np.int64)


def _of_mapping(given: Mapping[Any, Any]) -> FeatureTable:
    name = "the mapping of features"
    if not given:
        raise DataError(f"{name} is empty: it needs an item")
    keys = tuple(str(key) for key in given)
    if all(isinstance(row, Mapping) for row in given.values()):
        names = {column: None for row in given.values() for column in row}
        columns = {str(column): [row.get(column) for row in given.values()] for column in names}
        if not columns:
            raise DataError(f"{name} has items and nothing else: it needs features by name")
        try:
            frame = pl.DataFrame({column: pl.Series(values) for column, values in columns.items()})
        except (TypeError, ValueError, pl.exceptions.PolarsError):
            raise DataError(f"{name} has a feature with values of several kinds: make them all alike") from None
        frame = frame.with_columns(pl.Series(_KEY, keys))
        return _of_frame(frame, _KEY, name)
    try:
        rows = [
            np.asarray(getattr(row, "todense", lambda row=row: row)(), np.float64).ravel() for row in given.values()
        ]
        matrix = np.stack(rows)
    except (TypeError, ValueError):
        raise DataError(
            f"{name} must have, for each item, features by name or rows of numbers that are as long as each other"
        ) from None
    return FeatureTable(name, keys, {MATRIX: check_matrix(matrix)})


_KEY = "\0item"


def _id_place(names: list[str], source: str, item: Choice) -> int:
    if isinstance(item, int) and not isinstance(item, bool):
        if not 1 <= item <= len(names):
            raise DataError(f"{source} has {len(names)} columns, so ", Setting("item", item), " is none of them")
        return item - 1
    if item is not None:
        if item not in names:
            raise DataError(
                f"{source} has no column {item!r}: say ", Setting("item"), f" with one of {name_some(names, 12)}"
            )
        return names.index(str(item))
    place = find_known(names, "item")
    if place is None:
        place = next((place for place, name in enumerate(names) if name.lower() == "id"), None)
    if place is None and not names:
        raise DataError(f"{source} is empty: it needs a column of items, and others of their features")
    if place is None:
        raise DataError(
            f"{source} has no column that looks like the item's: say ",
            Setting("item"),
            f" with one of {name_some(names, 12)}",
        )
    return place


def _of_frame(frame: pl.DataFrame, key: str, name: str) -> FeatureTable:
    if not len(frame):
        raise DataError(f"{name} has no rows: it needs one for each item")
    kind = frame[key].dtype
    if kind.is_nested() or kind in (pl.Binary, pl.Object):
        raise DataError(f"{name}: column {printable(key)} holds {kind} values, not ids")
    keys = id_texts(frame[key])
    if keys.null_count():
        row = int(keys.is_null().arg_max() or 0)
        raise DataError(f"{name}, row {row + 1:,} has no item: fill in its id, or leave the row out")
    if keys.n_unique() < len(keys):
        twice = keys.filter(keys.is_duplicated())[0]
        first, second = keys.eq(twice).arg_true().to_list()[:2]
        raise DataError(
            f"{name} has item {twice!r} in rows {first + 1:,} and {second + 1:,}: leave one row for each item"
        )
    # A column without a name is the index that pandas writes.
    columns = {column: frame[column] for column in frame.columns if column not in (key, MATRIX)}
    if not columns:
        raise DataError(f"{name} has ids and nothing else: it needs a column of features")
    return FeatureTable(name, tuple(keys.to_list()), columns, _titles(columns))


def _titles(columns: dict[str, pl.Series]) -> pl.Series | None:
    """The column of titles; descriptions are features."""
    names = [name for name, series in columns.items() if series.dtype == pl.String and name.lower() != "description"]
    place = find_known(names, "title")
    return None if place is None else columns[names[place]]
