"""A column of ids, block after block, as small numbers and the ids they stand for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from deql._system.lazy import pl
from deql._system.threads import run_slices, thread_count
from deql.errors import DataError, Setting

__all__ = ["MISSING", "IdEncoder", "RowError", "are_whole_numbers", "as_whole_numbers", "shortest_integers"]

RowError = Callable[..., DataError]
"""Makes an error of a row's number and the parts of a sentence that says what is wrong with it."""

MISSING = ("", "NA", "N/A", "null", "NULL", "None", "NaN", "nan", "\\N")
"""What programs write where an id is missing; whoever leaves such rows out means these too."""

_DENSE = 2
"""Integers are looked up in a table if their range is at most this many times their number."""


class IdEncoder:
    """Collects ids: whole numbers as long as all of them are, text from the first one that is not.

    Parameters
    ----------
    text_ids : bool, default False
        All ids become text in the end.

    Examples
    --------
    >>> import polars as pl
    >>> column = IdEncoder()
    >>> column.add(np.array([30, 7])); column.add(pl.Series(["7", "x"]))
    >>> ids, codes = column.finish()
    >>> ids.tolist(), codes.tolist()
    (['30', '7', 'x'], [0, 1, 1, 2])
    """

    def __init__(self, text_ids: bool = False) -> None:
        self._text_ids = text_ids
        self._numbers: list[NDArray[Any]] = []  # as long as all ids are whole numbers
        self._texts: list[pl.Series] = []  # categorical: 4 bytes for each
        self._known = np.zeros(0, np.bool_)  # categories that were looked at
        self._word: tuple[int, str, str, RowError] | None = None

    def add(self, ids: NDArray[Any] | pl.Series, row_error: RowError | None = None) -> None:
        """Append whole numbers or text.

        With ``row_error`` the ids stood in a text file. There a word without any digit among ids of which most
        are whole numbers is a slip, such as NULL. Ids that mix both kinds by design (ISBN, ASIN) all have digits.
        """
        if isinstance(ids, np.ndarray) and not self._texts:
            self._numbers.append(shortest_integers(ids))
            return
        self._texts += [_as_categories(numbers) for numbers in self._numbers]
        self._numbers.clear()
        self._texts.append(_as_categories(ids))
        if not isinstance(ids, np.ndarray) and row_error is not None and self._word is None and not self._text_ids:
            self._find_word(ids, row_error)

    def _find_word(self, ids: pl.Series, row_error: RowError) -> None:
        """Look at the categories that are new with the last part, which are few."""
        codes = self._texts[-1].to_physical().to_numpy()
        if codes.size and codes.max() >= len(self._known):
            self._known = np.concatenate([self._known, np.zeros(codes.max() + 1, np.bool_)])
        rows = np.flatnonzero(~self._known[codes])
        self._known[codes[rows]] = True
        words = ~ids.gather(rows).str.contains("[0-9]")
        if words.any():
            row = int(rows[words.arg_max() or 0])
            self._word = row, ids[row], ids.name, row_error

    def finish(self) -> tuple[NDArray[Any], NDArray[np.int32]]:
        """Sorted distinct ids, and the place of each collected one among them; empties the column.

        Raises
        ------
        DataError
            If a word stands among ids of a text file that are mostly whole numbers.
        """
        if not self._texts and not self._text_ids:
            return _rank_numbers(self._numbers)
        if not self._texts:
            numbers, codes = _rank_numbers(self._numbers)
            return _sort_texts(pl.Series(numbers).cast(pl.String), codes)
        # The series are what keeps polars' table of categories alive, so the texts are taken first.
        distinct = pl.concat(self._texts).unique()
        texts = distinct.gather(distinct.to_physical().arg_sort()).cast(pl.String)
        physical = [part.to_physical().to_numpy().view(np.int32) for part in self._texts]
        self._texts.clear()
        _, codes = _rank_numbers(physical)
        if self._word is not None:
            row, word, name, row_error = self._word
            whole = np.bincount(codes, minlength=len(texts))[are_whole_numbers(texts).to_numpy()].sum()
            if 2 * whole > len(codes):
                raise row_error(
                    row,
                    f"{word!r} in column {name}, where most ids are whole numbers: correct or remove the row, or say ",
                    Setting("ids", "text"),
                    " if it is right",
                    *((", or leave such rows out with ", Setting("on_missing", "skip")) if word in MISSING else ()),
                )
        return _sort_texts(texts, codes)


def as_whole_numbers(text: pl.Series) -> NDArray[np.int64] | None:
    """Text as integers, if all of it is written as one would write these.

    007 is not 7, and an ISBN keeps its zeros.

    Examples
    --------
    >>> import polars as pl
    >>> as_whole_numbers(pl.Series(["10", "-3"])).tolist(), as_whole_numbers(pl.Series(["10", "03"]))
    ([10, -3], None)
    """
    for part in (text.head(1), text):  # of text that is none the first mostly says so
        if not are_whole_numbers(part).all():
            return None
    return text.cast(pl.Int64).to_numpy()


def shortest_integers(numbers: NDArray[Any]) -> NDArray[Any]:
    """In 32 bits if they all fit.

    Examples
    --------
    >>> shortest_integers(np.array([7, 8])).dtype, shortest_integers(np.array([2**31])).dtype
    (dtype('int32'), dtype('int64'))
    """
    if numbers.dtype == np.int32 or not numbers.size:
        return numbers.astype(np.int32, copy=False)
    # Most ids are not negative; as unsigned numbers negative ones are large, so that one pass tells.
    small = numbers.dtype == np.int64 and numbers.view(np.uint64).max() < 2**31
    small = small or (numbers.min() >= -(2**31) and numbers.max() < 2**31)
    return numbers.astype(np.int32) if small else numbers


def are_whole_numbers(text: pl.Series) -> pl.Series:
    """Which ids are written as one would write whole numbers.

    Examples
    --------
    >>> import polars as pl
    >>> are_whole_numbers(pl.Series(["10", "03", "x"])).to_list()
    [True, False, False]
    """
    return (text.cast(pl.Int64, strict=False).cast(pl.String) == text).fill_null(False)


def _as_categories(ids: NDArray[Any] | pl.Series) -> pl.Series:
    return pl.Series(ids).cast(pl.String).cast(pl.Categorical)


def _sort_texts(texts: pl.Series, codes: NDArray[np.int32]) -> tuple[NDArray[Any], NDArray[np.int32]]:
    """The texts sorted, and the codes, which were places among the unsorted ones, in their new order."""
    order = texts.arg_sort().to_numpy()
    rank = np.empty(len(order), np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    ids = np.empty(len(order), object)
    ids[:] = texts.gather(order).to_list()
    _look_up(codes, 0, rank, codes)
    return ids, codes


def _rank_numbers(chunks: list[NDArray[Any]]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Sorted distinct numbers, and the place of each one among them; the chunks are freed on the way."""
    filled = [chunk for chunk in chunks if chunk.size]
    low = min((int(chunk.min()) for chunk in filled), default=0)
    high = max((int(chunk.max()) for chunk in filled), default=-1)
    if high - low < max(2**20, _DENSE * sum(chunk.size for chunk in filled)):
        present = np.zeros(high - low + 1, np.bool_)
        for chunk in filled:
            _mark(chunk, low, present)
        rank = np.cumsum(present, dtype=np.int32)
        rank -= 1
        return np.flatnonzero(present) + low, _translate(chunks, lambda chunk, codes: _look_up(chunk, low, rank, codes))
    ids = pl.concat([pl.Series(chunk).cast(pl.Int64) for chunk in filled]).unique().sort().to_numpy()
    del filled

    def search(chunk: NDArray[Any], codes: NDArray[np.int32]) -> None:
        codes[:] = np.searchsorted(ids, chunk)

    return ids, _translate(chunks, search)


def _translate(
    chunks: list[NDArray[Any]], translate: Callable[[NDArray[Any], NDArray[np.int32]], None]
) -> NDArray[np.int32]:
    """The codes of all chunks, each of which is freed as soon as it is done with."""
    ends = np.cumsum([0, *map(len, chunks)])
    codes = np.empty(ends[-1], np.int32)

    def work(first: int, last: int) -> None:
        for place in range(first, last):
            translate(chunks[place], codes[ends[place] : ends[place + 1]])
            chunks[place] = codes[:0]

    run_slices(work, np.linspace(0, len(chunks), 4 * thread_count() + 1).astype(int).tolist())
    return codes


@njit(cache=True, nogil=True)
def _mark(numbers, low, present):  # type: ignore[no-untyped-def]
    for number in numbers:
        present[number - low] = True


@njit(cache=True, nogil=True)
def _look_up(numbers, low, rank, codes):  # type: ignore[no-untyped-def]
    for p in range(len(numbers)):
        codes[p] = rank[numbers[p] - low]
