"""The right factor of a prior once more in 8 bits, for quantised rows: a product with every row of it for one history."""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import numpy as np
from numba import njit
from numpy.typing import NDArray

from deql._system.threads import even_bounds, read_only, run_slices

__all__ = ["ORDINARY_FACTORS", "QuantisedRight", "add_extras", "history_vector"]

_LARGEST = 127
"""The largest code."""

ORDINARY_FACTORS = 2.0**60
"""Scales, rows of factors and what they are off by are zero in size, or from the inverse of this to this: else lists
are made without rows."""


class QuantisedRight(NamedTuple):
    """Rows of ``right``, each a step times whole numbers from −127 to 127.

    Attributes
    ----------
    steps : ndarray of float32
        One for each row.
    reaches : ndarray of float32
        By how much the product of a vector of length 1 with a row of codes, times the step, is off at most: see
        :func:`add_extras`.
    codes : ndarray of int8, n × rank
    """

    steps: NDArray[np.float32]
    reaches: NDArray[np.float32]
    codes: NDArray[np.int8]

    @staticmethod
    def size(n: int, rank: int) -> int:
        """Bytes that n rows take.

        Examples
        --------
        >>> QuantisedRight.size(1_000, 512)
        520000
        """
        return n * (8 + rank) if rank else 0

    @classmethod
    def views(cls, buffer: Any, offset: int, n: int, rank: int) -> Self:
        """The arrays in a buffer, from a multiple of 4 on."""
        count = n if rank else 0
        steps, reaches = (np.frombuffer(buffer, np.float32, count, offset + 4 * n * part) for part in range(2))
        codes = np.frombuffer(buffer, np.int8, count * rank, offset + 8 * count).reshape(count, rank)
        return cls(steps, reaches, codes)

    def fill(self, right: NDArray[np.float32]) -> None:
        """Make them, in place."""
        run_slices(_fill, even_bounds(len(right), 16), read_only(np.ascontiguousarray(right)), *self)

    def read_only(self) -> Self:
        """The same for kernels, which are compiled for one kind of array."""
        return type(self)(*map(read_only, self))


@njit(cache=True, nogil=True)
def _fill(first, last, right, steps, reaches, codes):  # type: ignore[no-untyped-def]
    for i in range(first, last):
        largest = np.float32(0.0)
        for c in range(right.shape[1]):
            largest = max(largest, abs(right[i, c]))
        steps[i] = largest / np.float32(_LARGEST)
        step, lost, length = np.float64(steps[i]), 0.0, 0.0
        for c in range(right.shape[1]):
            number = np.float64(right[i, c])
            code = np.rint(number / step) if step > 0.0 else 0.0
            code = min(max(code, -127.0), 127.0)
            codes[i, c] = np.int8(code)
            lost += (number - code * step) ** 2
            length += number**2
        lost, length = np.sqrt(lost), np.sqrt(length)
        # To float32 and up.
        reaches[i] = (1.0 + 2.0**-20) * (lost + 1.1 * (right.shape[1] + 8) * 2.0**-24 * (length + lost))


@njit(cache=True, nogil=True)
def history_vector(left, history, values, y):  # type: ignore[no-untyped-def]
    """y = Σ_j x_j·left_j brought to length 1, in float32.

    Returns the length that it had and Σ_j |x_j|·‖left_j‖.
    """
    total, sizes = np.zeros(left.shape[1]), 0.0
    for t in range(len(history)):
        square = 0.0
        for c in range(len(total)):
            number = np.float64(left[history[t], c])
            total[c] += values[t] * number
            square += number * number
        sizes += abs(np.float64(values[t])) * np.sqrt(square)
    length = np.sqrt((total * total).sum())
    for c in range(len(y)):
        y[c] = total[c] / length if length > 0.0 else 0.0
    return length, sizes


@njit(cache=True, nogil=True, fastmath={"contract", "reassoc"})
def _sum_codes(y, codes):  # type: ignore[no-untyped-def]
    total = np.float32(0.0)
    for c in range(len(y)):
        total += y[c] * np.float32(codes[c])
    return total


@njit(cache=True, nogil=True)
def add_extras(steps, reaches, codes, y, length, sizes, m, weight, extras, errors):  # type: ignore[no-untyped-def]
    """Fill ``extras`` with the products of y and every row of right, over ``weight``, and ``errors`` with their bounds.

    Let y be the vector of a history of m items, ŷ = y/‖y‖ in float32, c and s a row's codes and step, r the row, ρ the
    length of r − s·c, k the rank and u = 2⁻²⁴. The extra ‖y‖·s·Σ ŷ·c differs from y·r, in shares of ‖y‖, by

    1. ρ, the codes' own error, as ŷ has length 1;
    2. (k + 3)·u·(‖r‖ + ρ) for ŷ, and for k products and sums in float32 in whatever order, as ‖s·c‖ ≤ ‖r‖ + ρ;
       what underflows is below k·127·2⁻¹²⁶ of a step, and a step is at most ‖r‖/127: far below u·‖r‖.

    Both are below ``reaches``, ρ + 1.1·(k + 8)·u·(‖r‖ + ρ) and rounded up, by (k + 5)·u·‖r‖ at least.
    In float64, with sizes = Σ_j |x_j|·‖left_j‖, y is off by (m + 2)·2⁻⁵³·sizes, and the exact score, rounded itself, by
    (4·m + k + 8)·2⁻⁵³·sizes·‖r‖ in the prior's parts: k for products of rows, 4·m as parts are made to add up. Together
    they are less than (5·m + 2·k + 16)·2⁻⁵³·sizes·‖r‖ ≤ (m + 5)·2⁻²⁸·sizes·1.1·(k + 8)·u·‖r‖, so that
    (‖y‖ + (m + 5)·2⁻²⁸·sizes)·``reaches`` is above all.
    Nothing under- or overflows in float64 where scales and rows of factors are within ``ORDINARY_FACTORS``.
    """
    for i in range(len(steps)):
        extras[i] = _sum_codes(y, codes[i]) * np.float64(steps[i]) * (length / weight)
        errors[i] = (length + (m + 5) * 2.0**-28 * sizes) / weight * np.float64(reaches[i])
