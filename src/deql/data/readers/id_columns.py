"""A column of ids of which only the distinct ones, and what kind they are, is kept: for tables larger than memory."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from deql._system.lazy import pl
from deql.data.id_arrays import id_array
from deql.data.readers.ids import MISSING, RowError, are_whole_numbers
from deql.errors import Setting

__all__ = ["DistinctIds", "IdKind", "Ids", "as_series", "as_text", "series_ids"]

Ids: TypeAlias = "NDArray[Any] | pl.Series"
"""Whole numbers, or text."""

_SLACK = 2**20


class IdKind:
    """Whether a column's ids are text or whole numbers, as :class:`~deql.data.readers.ids.IdEncoder` would decide.

    Parameters
    ----------
    text_ids : bool
        They are text, whatever they look like.

    Examples
    --------
    >>> import polars as pl
    >>> kind = IdKind(False)
    >>> kind.see(np.array([30, 7]), None); kind.text
    False
    >>> kind.see(pl.Series(["7", "x"]), None); kind.text
    True
    """

    def __init__(self, text_ids: bool) -> None:
        self.text = text_ids
        self._text_ids = text_ids
        self._rows = self._whole = 0
        self._word: tuple[int, str, str, RowError] | None = None

    def see(self, ids: Ids, row_error: RowError | None) -> None:
        """Look at some more; with ``row_error`` they stood in a text file, where a word may be a slip."""
        self._rows += len(ids)
        if isinstance(ids, np.ndarray):
            self._whole += len(ids)
            return
        self.text = True
        if row_error is None or self._text_ids:
            return
        self._whole += int(are_whole_numbers(ids).sum())
        if self._word is None:
            words = ~ids.str.contains("[0-9]")
            if words.any():
                row = int(words.arg_max() or 0)
                self._word = row, ids[row], ids.name, row_error

    def check(self) -> None:
        """Raise DataError if a word stands among ids of a text file that are mostly whole numbers."""
        if self._word is None or 2 * self._whole <= self._rows:
            return
        row, word, name, row_error = self._word
        raise row_error(
            row,
            f"{word!r} in column {name}, where most ids are whole numbers: correct or remove the row, or say ",
            Setting("ids", "text"),
            " if it is right",
            *((", or leave such rows out with ", Setting("on_missing", "skip")) if word in MISSING else ()),
        )


class DistinctIds:
    """The distinct ids of a column, in memory that grows with their number and not with the rows.

    Examples
    --------
    >>> distinct = DistinctIds()
    >>> distinct.add(np.array([9, 7, 9])); distinct.add(np.array([8, 7]))
    >>> distinct.finish(text=False).to_list(), distinct.finish(text=True).to_list()
    ([7, 8, 9], ['7', '8', '9'])
    """

    def __init__(self) -> None:
        self._parts: list[pl.Series] = []
        self._known = self._added = 0

    def add(self, ids: Ids) -> None:
        """Take some more."""
        self._parts.append(as_series(ids).unique())
        self._added += len(self._parts[-1])
        if self._added > self._known + _SLACK:  # so that each id is compared about twice in all
            self._join()

    def finish(self, text: bool) -> pl.Series:
        """All of them, sorted."""
        self._join()
        [whole] = self._parts or [pl.Series([], dtype=pl.Int64)]
        return (as_text(whole) if text else whole).sort()

    def _join(self) -> None:
        mixed = len({part.dtype for part in self._parts}) > 1
        if self._parts:
            self._parts = [pl.concat([as_text(part) if mixed else part for part in self._parts]).unique()]
            self._known, self._added = len(self._parts[0]), 0


def as_series(ids: Ids) -> pl.Series:
    """Whole numbers as a series of 64 bits, text as it is."""
    return pl.Series(ids, dtype=pl.Int64) if isinstance(ids, np.ndarray) else ids


def as_text(ids: Ids) -> pl.Series:
    """Ids as text.

    Examples
    --------
    >>> as_text(np.array([7, 8])).to_list()
    ['7', '8']
    """
    return as_series(ids).cast(pl.String)


def series_ids(ids: pl.Series) -> NDArray[Any]:
    """A series of ids as an array of integers or objects.

    Examples
    --------
    >>> import polars as pl
    >>> series_ids(pl.Series(["tea"])).dtype, series_ids(pl.Series([7])).dtype
    (dtype('O'), dtype('int64'))
    """
    return id_array(ids.to_list() if ids.dtype == pl.String else ids.to_numpy())
