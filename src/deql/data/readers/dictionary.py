"""Texts as numbers: a hash table over their bytes, filled part after part."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numba import njit
from numpy.typing import NDArray

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Dictionary", "TextPart", "text_part"]


@dataclass(frozen=True, eq=False)
class TextPart:
    """Some texts: where each begins in a buffer of UTF-8, how many bytes it has, and their hash."""

    buffer: NDArray[np.uint8]
    begins: NDArray[np.int64]
    lengths: NDArray[np.int32]
    hashes: NDArray[np.uint64]

    @classmethod
    def of(cls, buffer: NDArray[np.uint8], begins: NDArray[np.int64], lengths: NDArray[np.int32]) -> TextPart:
        """Hash the texts, which is what can be done before a dictionary is at hand."""
        hashes = np.empty(len(begins), np.uint64)
        _hash(buffer, begins, lengths, hashes)
        return cls(buffer, begins, lengths, hashes)

    def __len__(self) -> int:
        return len(self.begins)

    def __getitem__(self, row: int) -> str:
        begin = int(self.begins[row])
        return self.buffer[begin : begin + int(self.lengths[row])].tobytes().decode("utf-8")


class Dictionary:
    """Distinct texts, numbered in the order first seen.

    Examples
    --------
    >>> import polars as pl
    >>> words = Dictionary()
    >>> words.encode(text_part(pl.Series(["tea", "jam", "tea"]))).tolist()
    [0, 1, 0]
    >>> words.encode(text_part(pl.Series(["egg", "jam"]))).tolist()
    [2, 1]
    >>> words.texts()
    ['tea', 'jam', 'egg']
    """

    def __init__(self) -> None:
        self._slots = np.full(2**12, -1, np.int32)
        self._hashes = np.empty(2**11, np.uint64)
        self._ends = np.zeros(2**11 + 1, np.int64)
        self._bytes = np.empty(2**16, np.uint8)
        self._count = 0

    def encode(self, part: TextPart) -> NDArray[np.int32]:
        """The number of each text; new ones get the next."""
        codes = np.empty(len(part), np.int32)
        row = 0
        while row < len(part):
            row, self._count = _encode(
                row, self._count, part.buffer, part.begins, part.lengths, part.hashes,
                self._slots, self._hashes, self._ends, self._bytes, codes,
            )  # fmt: skip
            if row < len(part):
                self._grow(int(part.lengths[row]))
        return codes

    def texts(self) -> list[str]:
        """The texts by number."""
        raw, ends = self.raw().tobytes(), self._ends[: self._count + 1].tolist()
        return [raw[begin:end].decode("utf-8") for begin, end in pairwise(ends)]

    def raw(self) -> NDArray[np.uint8]:
        """Their bytes, one after the other."""
        return self._bytes[: self._ends[self._count]]

    def _grow(self, length: int) -> None:
        """Make room for at least one more text of this length."""
        if self._count == len(self._hashes):
            self._hashes = np.concatenate([self._hashes, np.empty_like(self._hashes)])
            self._ends = np.concatenate([self._ends, np.empty(len(self._hashes) + 1 - len(self._ends), np.int64)])
            self._slots = np.full(2 * len(self._slots), -1, np.int32)
            _place(self._hashes[: self._count], self._slots)
        needed = int(self._ends[self._count]) + length
        if needed > len(self._bytes):
            self._bytes = np.concatenate([self._bytes, np.empty(max(needed, len(self._bytes)), np.uint8)])


def text_part(series: pl.Series) -> TextPart:
    """A series of text, without gaps, as bytes in one buffer."""
    lengths = series.str.len_bytes().to_numpy().astype(np.int32)
    begins = np.cumsum(lengths, dtype=np.int64) - lengths
    return TextPart.of(np.frombuffer("".join(series.to_list()).encode(), np.uint8), begins, lengths)


@njit(cache=True, nogil=True)
def _hash(buffer, begins, lengths, hashes):  # type: ignore[no-untyped-def]
    for row in range(len(begins)):
        begin = np.uint64(begins[row])
        mixed = np.uint64(0xCBF29CE484222325)  # FNV-1a
        for p in range(begin, begin + np.uint64(lengths[row])):
            mixed = (mixed ^ np.uint64(buffer[p])) * np.uint64(0x100000001B3)
        hashes[row] = mixed ^ (mixed >> np.uint64(32))  # its low bits depend on low bits only


@njit(cache=True, nogil=True)
def _encode(row, count, buffer, begins, lengths, part_hashes, slots, hashes, ends, arena, codes):  # type: ignore[no-untyped-def]
    # Returns where it stopped: at the end, or where the table, at most half full, has no room left.
    mask = np.uint64(len(slots) - 1)
    while row < len(begins):
        begin, length, code_hash = begins[row], lengths[row], part_hashes[row]
        slot = code_hash & mask
        code = slots[slot]
        while code >= 0:
            if hashes[code] == code_hash and ends[code + 1] - ends[code] == length:
                start = ends[code]
                same = True
                for p in range(length):
                    if arena[start + p] != buffer[begin + p]:
                        same = False
                        break
                if same:
                    break
            slot = (slot + np.uint64(1)) & mask
            code = slots[slot]
        if code < 0:
            if count == len(hashes) or ends[count] + length > len(arena):
                return row, count
            code = count
            slots[slot] = code
            hashes[code] = code_hash
            start = ends[code]
            for p in range(length):
                arena[start + p] = buffer[begin + p]
            ends[code + 1] = start + length
            count += 1
        codes[row] = code
        row += 1
    return row, count


@njit(cache=True, nogil=True)
def _place(hashes, slots):  # type: ignore[no-untyped-def]
    mask = np.uint64(len(slots) - 1)
    for code in range(len(hashes)):
        slot = hashes[code] & mask
        while slots[slot] >= 0:
            slot = (slot + np.uint64(1)) & mask
        slots[slot] = code
