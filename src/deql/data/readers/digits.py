"""Tables that hold plain numbers, read at memory speed.

Most large tables are lines such as ``17,4021,3.5,1112486027``. This kernel reads just these; at the
first line with anything else (quotes, text, signs, zeros at the front of an id, a missing field) it
stops, and a real CSV parser takes the block.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = ["ITEM", "SKIP", "TIME", "USER", "WEIGHT", "count_lines", "parse_decimal", "parse_numbers"]

SKIP, USER, ITEM, WEIGHT, TIME = range(5)

NEWLINE, RETURN, SPACE, QUOTE, MINUS, POINT, ZERO, NINE = 10, 13, 32, 34, 45, 46, 48, 57
ID_DIGITS = 18  # what always fits 64 bits
_NUMBER_DIGITS = 15  # mantissa and power of ten are then exact, so their quotient is rounded once

_TENS = 10.0 ** np.arange(_NUMBER_DIGITS + 1)


@njit(cache=True, nogil=True)
def count_lines(text):  # type: ignore[no-untyped-def]
    """Number of line ends.

    Examples
    --------
    >>> int(count_lines(np.frombuffer(b"a\\nb\\n", np.uint8)))
    2
    """
    count = 0
    for p in range(len(text)):
        count += text[p] == NEWLINE
    return count


def parse_numbers(
    text: NDArray[np.uint8], delimiter: bytes, roles: NDArray[np.int8], lines: int
) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.float64], NDArray[np.float64]] | None:
    """User, item, weight and time of each line; None if some line is not plain numbers.

    Parameters
    ----------
    text : ndarray of uint8
        Whole lines, the last one with its line end.
    delimiter : bytes
        Between fields: one byte, or one byte twice.
    roles : ndarray of int8
        What each field of a line is.
    lines : int
        At least the number of lines.

    Examples
    --------
    >>> text = np.frombuffer(b"7,x,30,2.5\\n8,y,4,1\\n", np.uint8)
    >>> users, items, weights, _ = parse_numbers(text, b",", np.array([USER, SKIP, ITEM, WEIGHT], np.int8), 2)
    >>> users.tolist(), items.tolist(), weights.tolist()
    ([7, 8], [30, 4], [2.5, 1.0])
    """
    users, items = np.empty(lines, np.int64), np.empty(lines, np.int64)
    weights = np.empty(lines if WEIGHT in roles else 0)
    times = np.empty(lines if TIME in roles else 0)
    found = _parse(text, delimiter[0], len(delimiter), roles, users, items, weights, times)
    return None if found < 0 else (_short(users[:found]), _short(items[:found]), weights[:found], times[:found])


def _short(ids: NDArray[np.int64]) -> NDArray[Any]:
    """In 32 bits if they all fit; they are not negative."""
    return ids.astype(np.int32) if ids.size and ids.max() < 2**31 else ids


@njit(cache=True, nogil=True)
def parse_decimal(text, begin):  # type: ignore[no-untyped-def]
    """A number such as 3, −0.5 or 12.25 that begins at a place, and its length; 0 if there is none, or too long a one.

    Examples
    --------
    >>> parse_decimal(np.frombuffer(b"-0.5,", np.uint8), np.uint64(0))
    (-0.5, 4)
    """
    one = np.uint64(1)
    p = begin
    negative = text[p] == MINUS
    if negative:
        p += one
    digits, fraction, mantissa = 0, 0, 0
    point = False
    while ZERO <= text[p] <= NINE or (text[p] == POINT and not point):
        if text[p] == POINT:
            point = True
        else:
            mantissa = mantissa * 10 + (text[p] - ZERO)
            digits += 1
            fraction += point
        p += one
    if digits == 0 or digits > _NUMBER_DIGITS:
        return 0.0, 0
    value = mantissa / _TENS[fraction]
    return (-value if negative else value), np.int64(p - begin)


@njit(cache=True, nogil=True)
def _parse(text, delimiter, delimiter_length, roles, users, items, weights, times):  # type: ignore[no-untyped-def]
    # The text ends in a line end, at which every loop stops. Places are unsigned, for which numba does
    # not look whether they count from the end.
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
            if role == SKIP:
                while text[p] != delimiter and text[p] != NEWLINE:
                    if text[p] == QUOTE:
                        return -1
                    p += one
                if field == last_field and text[p] == NEWLINE and text[p - one] == RETURN:
                    p -= one
            elif role in (USER, ITEM):
                begin = p
                number = 0
                while ZERO <= text[p] <= NINE:
                    number = number * 10 + (text[p] - ZERO)
                    p += one
                length = p - begin
                if length == 0 or length > ID_DIGITS or (length > one and text[begin] == ZERO):
                    return -1
                if role == USER:
                    users[row] = number
                else:
                    items[row] = number
            else:
                value, length_of_number = parse_decimal(text, p)
                if length_of_number == 0:
                    return -1
                p += np.uint64(length_of_number)
                if role == WEIGHT:
                    weights[row] = value
                else:
                    times[row] = value
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
