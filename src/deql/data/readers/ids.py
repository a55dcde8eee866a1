"""A column of ids, block after block, as small numbers and the ids they stand for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from deql._system.threads import run_slices, thread_count
from deql.data.readers.dictionary import Dictionary, TextPart, text_part

if TYPE_CHECKING:
    import polars as pl

__all__ = ["IdColumn", "as_whole_numbers"]

_DENSE = 2
"""Integers are looked up in a table if their range is at most this many times their number."""


class IdColumn:
    """Collects ids: whole numbers as long as all of them are, text from the first one that is not.

    Examples
    --------
    >>> import polars as pl
    >>> column = IdColumn()
    >>> column.add(np.array([30, 7])); column.add(pl.Series(["7", "x"]))
    >>> ids, codes = column.finish()
    >>> ids.tolist(), codes.tolist()
    (['30', '7', 'x'], [0, 1, 1, 2])
    """

    def __init__(self) -> None:
        self._chunks: list[NDArray[Any]] = []
        self._texts: Dictionary | None = None  # none as long as all ids are whole numbers

    def add(self, ids: NDArray[Any] | TextPart | pl.Series) -> None:
        """Append whole numbers or text."""
        if self._texts is None and not isinstance(ids, np.ndarray):
            self._texts = Dictionary()
            self._chunks = [self._encode_numbers(chunk) for chunk in self._chunks]
        if self._texts is None:
            self._chunks.append(_short(np.asarray(ids)))
        elif isinstance(ids, np.ndarray):
            self._chunks.append(self._encode_numbers(ids))
        else:
            self._chunks.append(self._texts.encode(ids if isinstance(ids, TextPart) else text_part(ids)))

    def _encode_numbers(self, numbers: NDArray[Any]) -> NDArray[np.int32]:
        import polars as pl

        assert self._texts is not None
        distinct, places = np.unique(numbers, return_inverse=True)
        return self._texts.encode(text_part(pl.Series(distinct).cast(pl.String)))[places]

    def finish(self) -> tuple[NDArray[Any], NDArray[np.int32]]:
        """Sorted distinct ids, and the place of each collected one among them; empties the column."""
        chunks, self._chunks = self._chunks, []
        if self._texts is not None:
            return _finish_text(self._texts.texts(), chunks)
        return _finish_numbers(chunks)


def as_whole_numbers(text: pl.Series) -> NDArray[np.int64] | None:
    """Text as integers, if all of it is written as one would write these.

    007 is not 7, and an ISBN keeps its zeros.

    Examples
    --------
    >>> import polars as pl
    >>> as_whole_numbers(pl.Series(["10", "-3"])).tolist(), as_whole_numbers(pl.Series(["10", "03"]))
    ([10, -3], None)
    """
    import polars as pl

    numbers = text.cast(pl.Int64, strict=False)
    if numbers.null_count() or not (numbers.cast(pl.String) == text).all():
        return None
    return numbers.to_numpy()


def _finish_text(texts: list[str], chunks: list[NDArray[Any]]) -> tuple[NDArray[Any], NDArray[np.int32]]:
    ids = np.empty(len(texts), object)
    ids[:] = texts
    order = np.argsort(ids, kind="stable")
    return ids[order], _translate(chunks, 0, _ranks(order))


def _finish_numbers(chunks: list[NDArray[Any]]) -> tuple[NDArray[Any], NDArray[np.int32]]:
    filled = [chunk for chunk in chunks if chunk.size]
    low = min((int(chunk.min()) for chunk in filled), default=0)
    high = max((int(chunk.max()) for chunk in filled), default=-1)
    if high - low < max(2**20, _DENSE * sum(chunk.size for chunk in filled)):
        present = np.zeros(high - low + 1, np.bool_)
        for chunk in filled:
            _mark(chunk, low, present)
        rank = np.cumsum(present, dtype=np.int32)
        rank -= 1
        return np.flatnonzero(present) + low, _translate(chunks, low, rank)
    # Far apart: by their eight bytes, as if they were text.
    seen = Dictionary()
    for place, chunk in enumerate(chunks):
        chunks[place] = seen.encode(_as_bytes(chunk.astype(np.int64)))
    ids = seen.raw().view(np.int64)
    order = np.argsort(ids)
    return ids[order], _translate(chunks, 0, _ranks(order))


def _as_bytes(numbers: NDArray[np.int64]) -> TextPart:
    begins = np.arange(0, 8 * len(numbers), 8)
    return TextPart.of(numbers.view(np.uint8), begins, np.full(len(numbers), 8, np.int32))


def _ranks(order: NDArray[np.intp]) -> NDArray[np.int32]:
    """The place of each in the order."""
    rank = np.empty(len(order), np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    return rank


def _short(numbers: NDArray[Any]) -> NDArray[Any]:
    if numbers.dtype == np.int32 or (numbers.size and (numbers.min() < -(2**31) or numbers.max() >= 2**31)):
        return numbers
    return numbers.astype(np.int32)


def _translate(chunks: list[NDArray[Any]], low: int, rank: NDArray[np.int32]) -> NDArray[np.int32]:
    """``rank[chunk − low]`` for all chunks, each of which is freed as soon as it is done with."""
    ends = np.cumsum([0, *map(len, chunks)])
    codes = np.empty(ends[-1], np.int32)

    def translate(first: int, last: int) -> None:
        for place in range(first, last):
            _look_up(chunks[place], low, rank, codes[ends[place] : ends[place + 1]])
            chunks[place] = codes[:0]

    run_slices(translate, np.linspace(0, len(chunks), 4 * thread_count() + 1).astype(int).tolist())
    return codes


@njit(cache=True, nogil=True)
def _mark(numbers, low, present):  # type: ignore[no-untyped-def]
    for number in numbers:
        present[number - low] = True


@njit(cache=True, nogil=True)
def _look_up(numbers, low, rank, codes):  # type: ignore[no-untyped-def]
    for p in range(len(numbers)):
        codes[p] = rank[numbers[p] - low]
