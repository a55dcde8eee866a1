"""Sums that no order of addition changes: what makes an explanation add up to its score."""

from __future__ import annotations

import math

from numba import njit

__all__ = ["add_exactly"]


@njit(cache=True, nogil=True)
def add_exactly(parts):  # type: ignore[no-untyped-def]
    """Round the parts, in place, so that they add up exactly in whatever order, and return their sum.

    They are rounded to a common power of two so small that it is lost in float64's last bit of the
    largest possible partial sum.

    Examples
    --------
    >>> import numpy as np
    >>> parts = np.array([0.1, 0.2, 0.3])
    >>> bool(add_exactly(parts) == parts[::-1].sum() == parts.sum())
    True
    """
    total = 0.0
    for t in range(len(parts)):
        total += abs(parts[t])
    if total == 0.0:
        return 0.0
    # total ≤ 2^exponent, so parts are multiples of 2^(exponent − 51). Adding and taking away a number
    # whose last bit is that large rounds to it.
    _, exponent = math.frexp(total)
    large = math.ldexp(1.5, max(exponent - 51, -1074) + 52)
    score = 0.0
    for t in range(len(parts)):
        parts[t] = (parts[t] + large) - large
        score += parts[t]
    return score
