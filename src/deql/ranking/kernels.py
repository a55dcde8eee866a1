"""Numba kernels on the packed P: one score to the last bit, and the top k of many users.

Scores are X·W with W = P·diag(gain) + diag(shift), so the score of item i is
gain_i·Σ_j x_j·P_ji plus x_i·shift_i if the user has i. An entry of P in row r ≥ column c is
``data[base[c] + r·width[c]]`` (see PackedSymmetric.addresses). A prior adds left·rightᵀ·diag(scale) to W
(see :mod:`deql.ranking.prior_term`).
"""

from __future__ import annotations

import numpy as np
from numba import njit

from deql.linalg.tiling import STRIP
from deql.ranking.candidates import add_exactly, cut_back, keep_best, score_candidates, select_best, sort_best
from deql.ranking.prefetch import LINE, prefetch
from deql.ranking.prior_term import prior_entry

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
def contributions(  # type: ignore[no-untyped-def]
    data, base, width, gain, shift, left, right, scale, items, values, target, out
):
    """Fill ``out`` with x_j·W_{j,target} for each item j of a history and return their sum.

    The parts are rounded so that they add up exactly (see :func:`~deql.ranking.candidates.add_exactly`).
    ``left``, ``right`` and ``scale`` are those of :func:`~deql.ranking.prior_term.prior_arrays`.
    """
    for t in range(len(items)):
        row, column = max(items[t], target), min(items[t], target)
        weight = np.float64(data[base[column] + row * width[column]]) * gain[target]
        if left.shape[1] > 0:
            weight += scale[target] * prior_entry(left, right, items[t], target)
        if items[t] == target:
            weight += shift[target]
        out[t] = weight * values[t]
    return add_exactly(out)


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


@njit(cache=True, nogil=True)
def _any_above(sums, factors, bar):  # type: ignore[no-untyped-def]
    # Counting takes a sixth of the time that the largest product takes, and no product is above if it is NaN.
    above = 0
    for c in range(STRIP):
        above += sums[c] * factors[c] > bar
    return above > 0


@njit(cache=True, nogil=True)
def _mark_above(sums, factors, bar, marks):  # type: ignore[no-untyped-def]
    for c in range(STRIP):
        marks[c] |= sums[c] * factors[c] > bar


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
def scan_users(  # type: ignore[no-untyped-def]
    first, last, low, count, strips, gains, shifts, indptr, indices, values, places, allowed, exclude_seen, keep,
    by_item, cursor, upcoming, bars, found_sums, found_items, found, limits, squares,
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
        How many candidates of each model must not be lost. Those of all models are collected in
        ``found_sums`` and ``found_items`` up to the user's limit, then cut back (see
        :func:`~deql.ranking.candidates.cut_back`).
    by_item : ndarray, items × models
        The gains once more, so that all of an item's lie side by side.
    cursor, upcoming : ndarray
        For each user the first entry of ``indices`` that is not below ``low`` yet, and the item there.
    bars : ndarray, users × models
        What a score must be above.
    squares : ndarray, models × users, or empty
        Gains the sum of squared scores over the items a user does not have.
    """
    models, n = gains.shape
    room = found_items.shape[1]
    sums, scores, factors = np.empty(STRIP), np.empty(STRIP), np.empty((models, STRIP))
    marks = np.empty(STRIP, np.bool_)
    table = np.empty((room, models))
    for start in range(low, low + count, STRIP):
        columns = min(STRIP, low + count - start)
        if not allowed[start : start + columns].any():
            continue
        strip = strips[(start - low) // STRIP]
        factors[:] = np.nan  # above no bar
        for c in range(columns):
            if allowed[start + c]:
                factors[:, c] = gains[:, start + c]
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
            if exclude_seen:
                for q in range(had, p):
                    sums[indices[q] - start] = np.nan
            if squares.size > 0:
                for m in range(models):
                    _multiply(sums, factors[m], scores)
                    squares[m, u] += _sum_of_squares(scores)
            bar = bars[u]
            m = 0
            while m < models and not _any_above(sums, factors[m], bar[m]):
                m += 1
            with_shift = range(had, had if exclude_seen else p)
            if m == models and len(with_shift) == 0:
                continue
            marks[:] = False
            for other in range(m, models):
                _mark_above(sums, factors[other], bar[other], marks)
            for q in with_shift:
                c = indices[q] - start
                marks[c] = False
                for m in range(models):
                    marks[c] |= sums[c] * factors[m, c] + values[q] * shifts[m, indices[q]] > bar[m]
            mine, theirs, fill = found_sums[u], found_items[u], found[u]
            for c in range(columns):
                if marks[c]:
                    mine[fill], theirs[fill] = sums[c], start + c
                    fill += 1
                    if fill == limits[u]:
                        score_candidates(
                            mine, theirs, fill, by_item, shifts, indices[begin:end], values[begin:end], exclude_seen,
                            table,
                        )  # fmt: skip
                        fill = cut_back(mine, theirs, fill, table, keep, bar)
                        limits[u] = min(2 * fill + 16, room)
            found[u] = fill


@njit(cache=True, nogil=True)
def finish_users(  # type: ignore[no-untyped-def]
    first, last, data, base, width, gains, shifts, left, right, scales, indptr, indices, values, allowed,
    exclude_seen, keep, by_item, sizes, exact, found_sums, found_items, found, out_items, out_scores,
):  # fmt: skip
    """Write the best items of users ``first`` … ``last − 1``, by their exact scores, into the outputs.

    ``sizes`` bounds what the parts of any of a user's scores add up to in size, for each model. Unless
    the scores must be ``exact`` too, those of the scan will do where they are far enough apart.
    """
    models, n = gains.shape
    k = out_items.shape[2]
    room = 2 * keep + 16
    most = 1
    for u in range(first, last):
        most = max(most, found[u])
    scores, places, table = np.empty(max(room, most)), np.empty(most, np.int32), np.empty((most, models))
    items = np.empty(room, np.int32)
    for u in range(first, last):
        begin, end = indptr[u], indptr[u + 1]
        if begin == end:
            continue
        history, weights = indices[begin:end], values[begin:end]
        parts = np.empty(end - begin)
        score_candidates(
            found_sums[u], found_items[u], found[u], by_item, shifts, history, weights, exclude_seen, table
        )
        places[: found[u]] = np.arange(found[u])
        for m in range(models):
            gain, shift = gains[m], shifts[m]
            bar = select_best(table[: found[u], m], keep, scores, places)
            fill = min(found[u], keep)
            sort_best(scores, places, fill)
            for t in range(fill):
                items[t] = found_items[u, places[t]]
            gap = scores[k - 1] - bar if fill == keep else np.inf
            tie = ROUNDING * len(history) * sizes[m, u]
            decided = not exact
            if left.shape[1] > 0:
                decided, gap = False, 0.0
            for t in range(1, fill):
                decided &= scores[t - 1] - scores[t] > tie
            if not decided:
                if gap > tie:
                    for t in range(fill):
                        scores[t] = contributions(
                            data, base, width, gain, shift, left, right, scales[m], history, weights, items[t], parts
                        )
                else:
                    # Too close for the scan's sums to say who is in: score every item exactly.
                    fill = 0
                    p = 0
                    for item in range(n):
                        while p < len(history) and history[p] < item:
                            p += 1
                        seen = p < len(history) and history[p] == item
                        if allowed[item] and not (seen and exclude_seen):
                            scores[fill] = contributions(
                                data, base, width, gain, shift, left, right, scales[m], history, weights, item, parts
                            )
                            items[fill] = item
                            fill += 1
                            if fill == room:
                                keep_best(scores, items, fill, keep)
                                fill = keep
                sort_best(scores, items, fill)
            for t in range(min(k, fill)):
                out_items[m, u, t] = items[t]
                out_scores[m, u, t] = scores[t]


@njit(cache=True, nogil=True)
def score_pairs(  # type: ignore[no-untyped-def]
    first, last, data, base, width, gain, shift, left, right, scale, indptr, indices, values,
    pair_indptr, pair_indices, out,
):  # fmt: skip
    """Write the exact score of each stored column of the pairs' rows ``first`` … ``last − 1`` into ``out``."""
    for u in range(first, last):
        items, history = indices[indptr[u] : indptr[u + 1]], values[indptr[u] : indptr[u + 1]]
        parts = np.empty(len(items))
        for p in range(pair_indptr[u], pair_indptr[u + 1]):
            out[p] = contributions(
                data, base, width, gain, shift, left, right, scale, items, history, pair_indices[p], parts
            )
