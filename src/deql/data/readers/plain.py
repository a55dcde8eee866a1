"""Tables without quotation marks, whatever their ids are: where each field lies, at memory speed.

The kernel gives up at the first line with a quotation mark, an empty field or a space at the edge of
one, or with too few or too many fields; a real CSV parser then takes the block.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from deql.data.readers.dictionary import TextPart
from deql.data.readers.digits import (
    ID_DIGITS,
    MINUS,
    NEWLINE,
    NINE,
    QUOTE,
    RETURN,
    SKIP,
    SPACE,
    TIME,
    USER,
    WEIGHT,
    ZERO,
    parse_decimal,
)  # fmt: skip

__all__ = ["Field", "parse_plain"]


@dataclass(frozen=True, eq=False)
class Field:
    """One column of ids.

    Attributes
    ----------
    text : TextPart
        The ids as they stand there.
    numbers : ndarray of int64
        The same as numbers, where they are whole ones written as one writes these.
    whole : int
        How many are.
    word : int
        First row whose id has no digit in it; −1 if there is none.
    header : int
        First row whose id is the column's own name; −1 if there is none.
    """

    text: TextPart
    numbers: NDArray[np.int64]
    whole: int
    word: int
    header: int


def parse_plain(
    text: NDArray[np.uint8], delimiter: bytes, roles: NDArray[np.int8], names: tuple[bytes, bytes], lines: int
) -> tuple[Field, Field, NDArray[np.float64], NDArray[np.float64]] | None:
    """Users, items, weights and times of each line; None if the block needs a real parser.

    Parameters
    ----------
    text, delimiter, roles, lines
        As for :func:`deql.data.readers.digits.parse_numbers`.
    names : pair of bytes
        The columns' own names, which are looked for among the ids; empty if they have none.

    Examples
    --------
    >>> from deql.data.readers.digits import ITEM
    >>> text = np.frombuffer(b"7,tea\\n8,green tea\\n", np.uint8)
    >>> users, items, _, _ = parse_plain(text, b",", np.array([USER, ITEM], np.int8), (b"", b""), 2)
    >>> users.numbers.tolist(), users.whole, items.text[1], items.word
    ([7, 8], 2, 'green tea', 0)
    """
    begins, lengths = np.empty((2, lines), np.int64), np.empty((2, lines), np.int32)
    numbers = np.empty((2, lines), np.int64)
    facts = np.array([[0, -1, -1], [0, -1, -1]])
    weights = np.empty(lines if WEIGHT in roles else 0)
    times = np.empty(lines if TIME in roles else 0)
    first, second = (np.frombuffer(name, np.uint8) for name in names)
    found = _parse(
        text, delimiter[0], len(delimiter), roles, first, second, begins, lengths, numbers, facts, weights, times
    )
    if found < 0:
        return None

    def field(side: int) -> Field:
        part = TextPart.of(text, begins[side, :found], lengths[side, :found])
        return Field(part, numbers[side, :found], *map(int, facts[side]))

    return field(0), field(1), weights[:found], times[:found]


@njit(cache=True, nogil=True)
def _parse(  # type: ignore[no-untyped-def]
    text, delimiter, delimiter_length, roles, user_name, item_name, begins, lengths, numbers, facts, weights, times
):
    one = np.uint64(1)
    p, stop = np.uint64(0), np.uint64(len(text))
    row = 0
    last_field = len(roles) - 1
    while p < stop:
        if text[p] == NEWLINE or (text[p] == RETURN and text[p + one] == NEWLINE):
            p += one if text[p] == NEWLINE else one + one
            continue
        for field in range(last_field + 1):
            role = roles[field]
            if role in (WEIGHT, TIME):
                value, length = parse_decimal(text, p)
                if length == 0:
                    return -1
                p += np.uint64(length)
                if role == WEIGHT:
                    weights[row] = value
                else:
                    times[row] = value
            else:
                begin = p
                digits, number = 0, 0
                while text[p] != delimiter and text[p] != NEWLINE:
                    if text[p] == QUOTE or (text[p] == RETURN and text[p + one] != NEWLINE):
                        return -1
                    if ZERO <= text[p] <= NINE:
                        digits += 1
                        number = number * 10 + (text[p] - ZERO)
                    p += one
                length = np.int64(p - begin)
                if text[p] == NEWLINE and length > 0 and text[p - one] == RETURN:
                    p -= one
                    length -= 1
                if role != SKIP:
                    if length == 0 or text[begin] == SPACE or text[p - one] == SPACE:
                        return -1
                    side = 0 if role == USER else 1
                    begins[side, row], lengths[side, row] = begin, length
                    negative = text[begin] == MINUS
                    lead = text[begin + one] if negative else text[begin]
                    if digits == length - negative and digits == ID_DIGITS + 1:
                        return -1  # may or may not fit 64 bits
                    plain = digits == length - negative and 0 < digits <= ID_DIGITS
                    if plain and (lead != ZERO or (digits == 1 and not negative)):
                        facts[side, 0] += 1
                        numbers[side, row] = -number if negative else number
                    elif digits == 0 and facts[side, 1] < 0:
                        facts[side, 1] = row
                    name = user_name if role == USER else item_name
                    if facts[side, 2] < 0 and length == len(name) and _same(text, begin, name):
                        facts[side, 2] = row
            if field < last_field:
                for _ in range(delimiter_length):
                    if text[p] != delimiter:
                        return -1
                    p += one
        if text[p] == RETURN:
            p += one
        if text[p] != NEWLINE:
            return -1
        p += one
        row += 1
    return row


@njit(cache=True, nogil=True)
def _same(text, begin, name):  # type: ignore[no-untyped-def]
    for c in range(len(name)):  # noqa: SIM110  numba knows no all() of a generator
        if text[begin + np.uint64(c)] != name[c]:
            return False
    return True
