"""Numba kernels on the packed P: one score to the last bit, and the top k of many users.

Scores are X·W with W = P·diag(gain) + diag(shift), so the score of item i is
gain_i·Σ_j x_j·P_ji plus x_i·shift_i if the user has i. An entry of P in row r ≥ column c is
``data[base[c] + r·width[c]]`` (see PackedSymmetric.addresses).
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from deql.precision.plan import STRIP
from deql.prefetch import LINE, prefetch

__all__ = ["SPARE", "contributions", "finish_users", "pack_strips", "scan_users", "score_pairs"]

SPARE = 4
"""Runners-up kept beside the k best: the scan's sums are rounded, so the places are decided among these
by the exact scores."""

AHEAD = 16
"""How many rows before its turn a row is fetched into cache."""

ROUNDING = 2.0**-48
"""Two scores of a history of m items can trade places by rounding only if they are closer than m times
this, relative to what the sizes of their parts add up to. A scan's score is off by at most (m + 4)·2⁻⁵³
of that and one of rounded parts by m·2⁻⁵¹ + 3·2⁻⁵³: twice their sum is below m·2⁻⁴⁸ for every m."""


@njit(cache=True, nogil=True)
def contributions(data, base, width, gain, shift, items, values, target, out):  # type: ignore[no-untyped-def]
    """Fill ``out`` with x_j·W_{j,target} for each item j of a history and return their sum.

    The parts are rounded to a common power of two so small that it is lost in float64's last bit of
    the largest possible partial sum. All partial sums are then exact, so the parts add up to the
    score exactly, in whatever order they are added.
    """
    total = 0.0
    for t in range(len(items)):
        row, column = max(items[t], target), min(items[t], target)
        weight = np.float64(data[base[column] + row * width[column]]) * gain[target]
        if items[t] == target:
            weight += shift[target]
        out[t] = weight * values[t]
        total += abs(out[t])
    if total == 0.0:
        return 0.0
    # total ≤ 2^exponent, so parts are multiples of 2^(exponent − 51). Adding and taking away a number
    # whose last bit is that large rounds to it.
    _, exponent = math.frexp(total)
    large = math.ldexp(1.5, max(exponent - 51, -1074) + 52)
    score = 0.0
    for t in range(len(items)):
        out[t] = (out[t] + large) - large
        score += out[t]
    return score


@njit(cache=True, nogil=True)
def _fetch(array, place, count):  # type: ignore[no-untyped-def]
    # Have ``count`` numbers from ``place`` on brought into cache, if the array goes that far.
    if place + count <= len(array):
        for c in range(0, count, LINE // array.itemsize):
            prefetch(array, place + c)  # type: ignore[call-arg]


@njit(cache=True, nogil=True)
def pack_strips(first, last, data, base, width, tile, rows, low, count, strips):  # type: ignore[no-untyped-def]
    """Copy rows ``first`` … ``last − 1`` of the next strips: strips[s, r·STRIP + c] = P[rows[r], low + s·STRIP + c].

    The ``count`` columns lie in one block column, in which a row of P is contiguous. Rows above the
    block are columns of earlier ones, by symmetry: as many of them at a time as lie side by side
    there, so that memory is read in runs.
    """
    below = min(max(np.searchsorted(rows, low - low % tile), first), last)
    begin = first
    while begin < below:
        j = rows[begin]
        end = begin + 1
        while end < below and rows[end] < j - j % STRIP + STRIP:
            end += 1
        for c in range(count):
            place = base[j] + (low + c) * width[j] - j
            into = strips[c // STRIP, c % STRIP :]
            for r in range(begin, end):
                into[r * STRIP] = data[place + rows[r]]
        begin = end
    for r in range(below, last):
        place = base[low] + rows[r] * width[low]
        _fetch(data, place + AHEAD * width[low], count)
        for s in range(0, count, STRIP):
            row = data[place + s : place + min(s + STRIP, count)]
            into = strips[s // STRIP, r * STRIP : (r + 1) * STRIP]
            for c in range(len(row)):
                into[c] = row[c]


@njit(cache=True, nogil=True, fastmath={"contract", "reassoc"})
def _sum_history(strip, places, values, begin, end, sums):  # type: ignore[no-untyped-def]
    # sums[c] = Σ_p values[p]·strip[places[p]·STRIP + c]; four rows at a time, so that sums goes through memory a fourth
    # as often. Rows that are needed soon, be it for the next user, are on their way meanwhile.
    for c in range(STRIP):
        sums[c] = 0.0
    whole = end - (end - begin) % 4
    for p in range(begin, whole, 4):
        for q in range(p + AHEAD, min(p + AHEAD + 4, len(places))):
            _fetch(strip, places[q] * STRIP, STRIP)
        a, b = strip[places[p] * STRIP :], strip[places[p + 1] * STRIP :]
        d, e = strip[places[p + 2] * STRIP :], strip[places[p + 3] * STRIP :]
        x, y = np.float64(values[p]), np.float64(values[p + 1])
        z, w = np.float64(values[p + 2]), np.float64(values[p + 3])
        for c in range(STRIP):
            sums[c] += x * a[c] + y * b[c] + z * d[c] + w * e[c]
    for p in range(whole, end):
        if p + AHEAD < len(places):
            _fetch(strip, places[p + AHEAD] * STRIP, STRIP)
        a, x = strip[places[p] * STRIP :], np.float64(values[p])
        for c in range(STRIP):
            sums[c] += x * a[c]


@njit(cache=True, nogil=True, fastmath={"nnan", "nsz", "reassoc"})
def _largest_product(sums, factors):  # type: ignore[no-untyped-def]
    best = sums[0] * factors[0]
    for c in range(1, STRIP):
        best = max(best, sums[c] * factors[c])
    return best


@njit(cache=True, nogil=True)
def _multiply(sums, factors, scores):  # type: ignore[no-untyped-def]
    for c in range(STRIP):
        scores[c] = sums[c] * factors[c]


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def _sum_of_squares(scores):  # type: ignore[no-untyped-def]
    total = 0.0
    for c in range(STRIP):
        total += scores[c] * scores[c] if scores[c] > -np.inf else 0.0
    return total


@njit(cache=True, nogil=True)
def _better(score, item, other_score, other_item):  # type: ignore[no-untyped-def]
    # The order of every list: the higher score first, and of equal scores the lower item.
    return score > other_score or (score == other_score and item < other_item)


@njit(cache=True, nogil=True)
def _keep_best(scores, items, fill, keep):  # type: ignore[no-untyped-def]
    # Quickselect: the best ``keep`` of ``fill`` > ``keep`` entries come first; returns the last one's score.
    low, high, last = 0, fill - 1, keep - 1
    while low < high:
        score, item = scores[(low + high) // 2], items[(low + high) // 2]
        i, j = low, high
        while i <= j:
            while _better(scores[i], items[i], score, item):
                i += 1
            while _better(score, item, scores[j], items[j]):
                j -= 1
            if i <= j:
                scores[i], scores[j] = scores[j], scores[i]
                items[i], items[j] = items[j], items[i]
                i += 1
                j -= 1
        if last <= j:
            high = j
        elif last >= i:
            low = i
        else:
            break
    return scores[last]


@njit(cache=True, nogil=True)
def _sort_best(scores, items, fill):  # type: ignore[no-untyped-def]
    # Shell sort: lists are short, and it needs no memory.
    gap = fill // 2
    while gap > 0:
        for i in range(gap, fill):
            score, item = scores[i], items[i]
            j = i
            while j >= gap and _better(score, item, scores[j - gap], items[j - gap]):
                scores[j], items[j] = scores[j - gap], items[j - gap]
                j -= gap
            scores[j], items[j] = score, item
        gap //= 2


@njit(cache=True, nogil=True)
def scan_users(  # type: ignore[no-untyped-def]
    first, last, low, count, strips, gains, shifts, indptr, indices, values, places, allowed, exclude_seen, keep,
    cursor, upcoming, bars, found_scores, found_items, found, squares,
):  # fmt: skip
    """Score the ``count`` items from ``low`` on for users ``first`` … ``last − 1`` and collect candidates.

    A strip of P stays in cache while every user's sums for it are made. The sums are those of all
    models, which differ by a factor for each column.

    Parameters
    ----------
    strips : ndarray
        See :func:`pack_strips`.
    places : ndarray
        For each entry of ``indices`` its row of a strip.
    keep : int
        How many candidates must not be lost. They are collected in ``found_scores`` and
        ``found_items`` until the room is used up, then cut back to the best ``keep``, the worst of
        which is the bar for those that follow.
    cursor, upcoming : ndarray
        For each user the first entry of ``indices`` that is not below ``low`` yet, and the item there.
    squares : ndarray, models × users, or empty
        Gains the sum of squared scores over the items a user does not have.
    """
    models, n = gains.shape
    room = found_items.shape[2]
    sums, scores, factors = np.empty(STRIP), np.empty(STRIP), np.empty((models, STRIP))
    for start in range(low, low + count, STRIP):
        columns = min(STRIP, low + count - start)
        if not allowed[start : start + columns].any():
            continue
        strip = strips[(start - low) // STRIP]
        factors[:, columns:] = 0
        factors[:, :columns] = gains[:, start : start + columns]
        for u in range(first, last):
            begin, end = indptr[u], indptr[u + 1]
            if begin == end:
                continue
            _sum_history(strip, places, values, begin, end, sums)
            had = p = cursor[u]
            if upcoming[u] < start + columns:
                while p < end and indices[p] < start:  # in strips that were passed over
                    p += 1
                had = p
                while p < end and indices[p] < start + columns:
                    p += 1
                cursor[u], upcoming[u] = p, indices[p] if p < end else n
            whole = squares.size > 0 or (p > had and not exclude_seen)
            for m in range(models):
                bar = bars[m, u]
                if not (whole or _largest_product(sums, factors[m]) > bar):
                    continue
                _multiply(sums, factors[m], scores)
                for q in range(had, p):
                    c = indices[q] - start
                    scores[c] = -np.inf if exclude_seen else scores[c] + values[q] * shifts[m, indices[q]]
                if squares.size > 0:
                    squares[m, u] += _sum_of_squares(scores)
                mine, theirs, fill = found_scores[m, u], found_items[m, u], found[m, u]
                for c in range(columns):
                    if scores[c] > bar and allowed[start + c]:
                        mine[fill], theirs[fill] = scores[c], start + c
                        fill += 1
                        if fill == room:
                            bar = _keep_best(mine, theirs, fill, keep)
                            fill = keep
                found[m, u], bars[m, u] = fill, bar


@njit(cache=True, nogil=True)
def finish_users(  # type: ignore[no-untyped-def]
    first, last, data, base, width, gains, shifts, indptr, indices, values, allowed, exclude_seen, keep, sizes,
    exact, found_scores, found_items, found, out_items, out_scores,
):  # fmt: skip
    """Write the best items of users ``first`` … ``last − 1``, by their exact scores, into the outputs.

    ``sizes`` bounds what the parts of any of a user's scores add up to in size, for each model. Unless
    the scores must be ``exact`` too, those of the scan will do where they are far enough apart.
    """
    models, _, room = found_items.shape
    n, k = gains.shape[1], out_items.shape[2]
    for u in range(first, last):
        begin, end = indptr[u], indptr[u + 1]
        if begin == end:
            continue
        items, history = indices[begin:end], values[begin:end]
        parts = np.empty(end - begin)
        for m in range(models):
            gain, shift = gains[m], shifts[m]
            mine, theirs, fill = found_scores[m, u], found_items[m, u], found[m, u]
            gap = np.inf
            if fill >= keep:
                bar = _keep_best(mine, theirs, fill, keep)
                fill = keep
            _sort_best(mine, theirs, fill)
            if fill == keep:
                gap = mine[k - 1] - bar
            tie = ROUNDING * len(items) * sizes[m, u]
            decided = not exact
            for t in range(1, fill):
                decided &= mine[t - 1] - mine[t] > tie
            if gap > tie and not decided:
                for t in range(fill):
                    mine[t] = contributions(data, base, width, gain, shift, items, history, theirs[t], parts)
            elif not decided:
                # Too close for the scan's sums to say who is in: score every item exactly.
                fill = 0
                p = 0
                for item in range(n):
                    while p < len(items) and items[p] < item:
                        p += 1
                    seen = p < len(items) and items[p] == item
                    if allowed[item] and not (seen and exclude_seen):
                        mine[fill] = contributions(data, base, width, gain, shift, items, history, item, parts)
                        theirs[fill] = item
                        fill += 1
                        if fill == room:
                            _keep_best(mine, theirs, fill, keep)
                            fill = keep
            _sort_best(mine, theirs, fill)
            for t in range(min(k, fill)):
                out_items[m, u, t] = theirs[t]
                out_scores[m, u, t] = mine[t]


@njit(cache=True, nogil=True)
def score_pairs(  # type: ignore[no-untyped-def]
    first, last, data, base, width, gain, shift, indptr, indices, values, pair_indptr, pair_indices, out
):
    """Write the exact score of each stored column of the pairs' rows ``first`` … ``last − 1`` into ``out``."""
    for u in range(first, last):
        items, history = indices[indptr[u] : indptr[u + 1]], values[indptr[u] : indptr[u + 1]]
        parts = np.empty(len(items))
        for p in range(pair_indptr[u], pair_indptr[u + 1]):
            out[p] = contributions(data, base, width, gain, shift, items, history, pair_indices[p], parts)
