"""Numba kernels of the imputer: what the observed entries of a row say about others, given P.

Rows that miss the same columns lie together and share one small inverse: pattern g has the rows
``begins[g]`` … ``begins[g + 1] − 1`` and misses ``columns[bounds[g] : bounds[g + 1]]``. The rows at hand start
at row ``begins[origin]``; their ``product`` is X·P, where what is missing counts as 0.
"""

from __future__ import annotations

import numpy as np
from numba import njit

__all__ = ["fill_rows", "leave_out", "sweep_block"]


@njit(cache=True, nogil=True)
def sweep_block(block, k, work, least):  # type: ignore[no-untyped-def]
    """The lower triangle of a symmetric k × k matrix becomes that of its negative inverse, in place.

    False, with the matrix spoilt, if a pivot is not above ``least``: it is not positive definite then.
    """
    for p in range(k):
        if not block[p, p] > least:
            return False
        inverse = 1.0 / block[p, p]
        for j in range(p):
            work[j] = block[p, j]
        for j in range(p + 1, k):
            work[j] = block[j, p]
        work[p] = 0.0
        for i in range(k):
            factor = work[i] * inverse
            for j in range(i + 1):
                block[i, j] -= factor * work[j]
        for j in range(p):
            block[p, j] = work[j] * inverse
        for j in range(p + 1, k):
            block[j, p] = work[j] * inverse
        block[p, p] = -inverse
    return True


@njit(cache=True, nogil=True)
def _negative_inverse(P, missing, block, work):  # type: ignore[no-untyped-def]
    # −(P_MM)⁻¹ into ``block``, both triangles.
    k = len(missing)
    for a in range(k):
        for c in range(a + 1):
            block[a, c] = P[missing[a], missing[c]]
    sweep_block(block, k, work, 0.0)
    for a in range(k):
        for c in range(a):
            block[c, a] = block[a, c]


@njit(cache=True, nogil=True)
def _most_missing(first, last, bounds):  # type: ignore[no-untyped-def]
    most = 0
    for g in range(first, last):
        most = max(most, bounds[g + 1] - bounds[g])
    return most


@njit(cache=True, nogil=True)
def fill_rows(first, last, origin, begins, columns, bounds, P, product, values, room, spread, stop):  # type: ignore[no-untyped-def]
    """Set the missing entries of patterns ``first`` … ``last − 1`` to x̂_M = −P_MM⁻¹·P_MO·x_O.

    What these rows leave uncertain, the sum of their P_MM⁻¹, is added to ``spread[room[first]]``, if
    there is any ``spread``.
    """
    most = _most_missing(first, last, bounds)
    block, work = np.empty((most, most)), np.empty(most)
    for g in range(first, last):
        missing = columns[bounds[g] : bounds[g + 1]]
        k = len(missing)
        if k == 0:
            continue
        if stop[0]:
            return
        _negative_inverse(P, missing, block, work)
        for row in range(begins[g] - begins[origin], begins[g + 1] - begins[origin]):
            for a in range(k):
                work[a] = product[row, missing[a]]
            for a in range(k):
                total = 0.0
                for c in range(k):
                    total += block[a, c] * work[c]
                values[row, missing[a]] = total
        if len(spread):
            own = spread[room[first]]
            rows = begins[g + 1] - begins[g]
            for a in range(k):
                for c in range(k):
                    own[missing[a], missing[c]] -= rows * block[a, c]


@njit(cache=True, nogil=True)
def leave_out(first, last, origin, begins, columns, bounds, P, product, values, errors, stop):  # type: ignore[no-untyped-def]
    """Set the observed entries of ``errors`` to x_i − x̂_i, where x̂_i is predicted from the others observed in the row.

    With Q = A_OO⁻¹ that is EASE's residual (Q·x_O)_i/Q_ii. Q is not built: its diagonal is that of
    P_OO − P_OM·P_MM⁻¹·P_MO, and Q·x_O is the observed part of P·x̂, of the row as ``fill_rows`` has filled it.
    """
    n = len(P)
    most = _most_missing(first, last, bounds)
    block, work = np.empty((most, most)), np.empty(most)
    diagonal, part, observed = np.empty(n), np.empty(n), np.empty(n, np.bool_)
    for g in range(first, last):
        if stop[0]:
            return
        missing = columns[bounds[g] : bounds[g + 1]]
        k = len(missing)
        _negative_inverse(P, missing, block, work)
        observed[:] = True
        for i in range(n):
            diagonal[i] = P[i, i]
        for a in range(k):
            observed[missing[a]] = False
            part[:] = 0.0
            for c in range(a + 1):
                factor, source = block[a, c] if c == a else 2.0 * block[a, c], P[missing[c]]
                for i in range(n):
                    part[i] += factor * source[i]
            source = P[missing[a]]
            for i in range(n):
                diagonal[i] += part[i] * source[i]
        for row in range(begins[g] - begins[origin], begins[g + 1] - begins[origin]):
            part[:] = product[row]
            for a in range(k):
                factor, source = values[row, missing[a]], P[missing[a]]
                for i in range(n):
                    part[i] += factor * source[i]
            for i in range(n):
                if observed[i]:
                    errors[row, i] = part[i] / diagonal[i]
