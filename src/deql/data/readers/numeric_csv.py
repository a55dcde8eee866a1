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

from deql.data.readers.ids import shortest_integers

__all__ = ["ITEM", "SKIP", "TIME", "USER", "WEIGHT", "parse_numbers"]

SKIP, USER, ITEM, WEIGHT, TIME = range(5)

_NEWLINE, _RETURN, _QUOTE, _MINUS, _POINT, _ZERO, _NINE = 10, 13, 34, 45, 46, 48, 57
_ID_DIGITS = 18  # what always fits 64 bits
_NUMBER_DIGITS = 15  # mantissa and power of ten are then exact, so their quotient is rounded once

_TENS = 10.0 ** np.arange(_NUMBER_DIGITS + 1)


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
    if found < 0:
        return None
    return shortest_integers(users[:found]), shortest_integers(items[:found]), weights[:found], times[:found]


@njit(cache=True, nogil=True)
def _parse_decimal(text, begin):  # type: ignore[no-untyped-def]
    # A number such as 3, −0.5 or 12.25 that begins at a place, and its length; 0 if there is none, or too long a one.
    one = np.uint64(1)
    p = begin
    negative = text[p] == _MINUS
    if negative:
        p += one
    digits, fraction, mantissa = 0, 0, 0
    point = False
    while _ZERO <= text[p] <= _NINE or (text[p] == _POINT and not point):
        if text[p] == _POINT:
            point = True
        else:
            mantissa = mantissa * 10 + (text[p] - _ZERO)
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
        if text[p] == _NEWLINE or (text[p] == _RETURN and text[p + one] == _NEWLINE):
            p += one if text[p] == _NEWLINE else one + one
            continue
        for field in range(last_field + 1):
            role = roles[field]
            if role == SKIP:
                while text[p] != delimiter and text[p] != _NEWLINE:
                    if text[p] == _QUOTE:
                        return -1
                    p += one
                if field == last_field and text[p] == _NEWLINE and text[p - one] == _RETURN:
                    p -= one
            elif role in (USER, ITEM):
                begin = p
                number = 0
                while _ZERO <= text[p] <= _NINE:
                    number = number * 10 + (text[p] - _ZERO)
                    p += one
                length = p - begin
                if length == 0 or length > _ID_DIGITS or (length > one and text[begin] == _ZERO):
                    return -1
                if role == USER:
                    users[row] = number
                else:
                    items[row] = number
            else:
                value, length_of_number = _parse_decimal(text, p)
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
        if text[p] == _RETURN:
            p += one
        if text[p] != _NEWLINE:
            return -1
        p += one
        row += 1
    return row
