"""Numba kernels on the packed P: one score to the last bit, and the top k of many users.

Scores are X·W with W = P·diag(gain) + diag(shift), so the score of item i is
gain_i·Σ_j x_j·P_ji plus x_i·shift_i if the user has i. An entry of P in row r ≥ column c is
``data[base[c] + r·width[c]]`` (see PackedSymmetric.addresses). A prior adds left·rightᵀ·diag(scale) to W
(see :mod:`deql.ranking.prior_term`).
"""

from __future__ import annotations

import numpy as np
from numba import njit

from deql.linalg.prefetch import LINE, prefetch
from deql.linalg.tiling import STRIP
from deql.ranking.candidates import add_exactly, cut_back, score_candidates
from deql.ranking.prior_term import prior_entry

__all__ = ["SPARE", "contributions", "pack_left", "pack_strips", "scan_users", "score_pairs"]

SPARE = 4
"""Runners-up kept beside the k best: the scan's sums are rounded, so the places are decided among these
by the exact scores."""

AHEAD = 16
"""How many rows before its turn a row is fetched into cache."""


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


@njit(cache=True, nogil=True)
def pack_left(first, last, left, rows, low, count, strips):  # type: ignore[no-untyped-def]
    """Copy rows ``first`` … ``last − 1`` of strips of a dense prior, as :func:`pack_strips` does those of P."""
    for r in range(first, last):
        for c in range(count):
            strips[c // STRIP, r * STRIP + c % STRIP] = left[rows[r], low + c]


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
def _any_above(sums, factors, extras, scales, errors, length, bar):  # type: ignore[no-untyped-def]
    # Counting takes a sixth of the time that the largest product takes, and no product is above if it is NaN.
    above = 0
    if len(extras) == 0:
        for c in range(STRIP):
            above += sums[c] * factors[c] > bar
    else:
        for c in range(STRIP):
            above += sums[c] * factors[c] + extras[c] * scales[c] + length * errors[c] > bar
    return above > 0


@njit(cache=True, nogil=True)
def _mark_above(sums, factors, extras, scales, errors, length, bar, marks):  # type: ignore[no-untyped-def]
    if len(extras) == 0:
        for c in range(STRIP):
            marks[c] |= sums[c] * factors[c] > bar
    else:
        for c in range(STRIP):
            marks[c] |= sums[c] * factors[c] + extras[c] * scales[c] + length * errors[c] > bar


@njit(cache=True, nogil=True)
def _scores(sums, factors, extras, scales, scores):  # type: ignore[no-untyped-def]
    if len(extras) == 0:
        for c in range(STRIP):
            scores[c] = sums[c] * factors[c]
    else:
        for c in range(STRIP):
            scores[c] = sums[c] * factors[c] + extras[c] * scales[c]


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def _sum_of_squares(scores):  # type: ignore[no-untyped-def]
    total = 0.0
    for c in range(STRIP):
        total += scores[c] * scores[c] if scores[c] > -np.inf else 0.0
    return total


@njit(cache=True, nogil=True)
def scan_users(  # type: ignore[no-untyped-def]
    first, last, low, count, strips, left_strips, gains, shifts, scales, errors, indptr, indices, values, places,
    extras, extras_low, lengths, allowed, exclude_seen, keep, by_item, scales_by_item, errors_by_item,
    cursor, upcoming, bars, found_sums, found_extras, found_items, found, limits, squares,
):  # fmt: skip
    """Score the ``count`` items from ``low`` on for users ``first`` … ``last − 1`` and collect candidates.

    A strip of P stays in cache while every user's sums for it are made. The sums are those of all
    models, which differ by a factor for each column; so are the extras of a prior.

    Parameters
    ----------
    strips, left_strips : ndarray
        See :func:`pack_strips` and :func:`pack_left`; the latter empty unless there is a dense prior.
    scales, errors : ndarray, models × items, or models × 0 without a prior
        See :class:`~deql.ranking.prior_scan.PriorScan`.
    places : ndarray
        For each entry of ``indices`` its row of a strip.
    extras : ndarray of float32
        Of a prior of low rank, users × columns from ``extras_low`` on. They are off by up to ``lengths`` times
        ``errors``, so that a user's candidates are those of whom the largest scores are possible.
    keep : int
        How many candidates of each model must not be lost. Those of all models are collected in
        ``found_sums`` and ``found_items`` up to the user's limit, then cut back (see
        :func:`~deql.ranking.candidates.cut_back`).
    by_item, scales_by_item, errors_by_item : ndarray, items × models
        Gains, scales and errors once more, so that all of an item's lie side by side.
    cursor, upcoming : ndarray
        For each user the first entry of ``indices`` that is not below ``low`` yet, and the item there.
    bars : ndarray, users × models
        What a score must be above.
    squares : ndarray, models × users, or empty
        Gains the sum of squared scores over the items a user does not have.
    """
    models, n = gains.shape
    room, dense, with_prior = found_items.shape[1], left_strips.size > 0, scales.shape[1] > 0
    sums, scores, factors = np.empty(STRIP), np.empty(STRIP), np.empty((models, STRIP))
    extra, weights, reach = np.zeros(STRIP if with_prior else 0), np.zeros((models, STRIP)), np.zeros((models, STRIP))
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
            if with_prior:
                weights[:, c], reach[:, c] = scales[:, start + c], errors[:, start + c]
        for u in range(first, last):
            begin, end = indptr[u], indptr[u + 1]
            if begin == end:
                continue
            _sum_history(strip, places, values, begin, end, sums)
            length = lengths[u]
            if dense:
                _sum_history(left_strips[(start - low) // STRIP], places, values, begin, end, extra)
            elif with_prior:
                row = extras[u, start - extras_low : start - extras_low + columns]
                for c in range(columns):
                    extra[c] = row[c]
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
                    _scores(sums, factors[m], extra, weights[m], scores)
                    squares[m, u] += _sum_of_squares(scores)
            bar = bars[u]
            m = 0
            while m < models and not _any_above(sums, factors[m], extra, weights[m], reach[m], length, bar[m]):
                m += 1
            with_shift = range(had, had if exclude_seen else p)
            if m == models and len(with_shift) == 0:
                continue
            marks[:] = False
            for other in range(m, models):
                _mark_above(sums, factors[other], extra, weights[other], reach[other], length, bar[other], marks)
            for q in with_shift:
                c = indices[q] - start
                marks[c] = False
                for m in range(models):
                    score = sums[c] * factors[m, c] + values[q] * shifts[m, indices[q]]
                    if with_prior:
                        score += extra[c] * weights[m, c] + length * reach[m, c]
                    marks[c] |= score > bar[m]
            mine, more, theirs, fill = found_sums[u], found_extras[u], found_items[u], found[u]
            for c in range(columns):
                if marks[c]:
                    mine[fill], theirs[fill] = sums[c], start + c
                    if with_prior:
                        more[fill] = extra[c]
                    fill += 1
                    if fill == limits[u]:
                        score_candidates(
                            mine, more, theirs, fill, by_item, scales_by_item, errors_by_item, length, shifts,
                            indices[begin:end], values[begin:end], exclude_seen, table,
                        )  # fmt: skip
                        fill = cut_back(mine, more, theirs, fill, table, keep, bar)
                        limits[u] = min(2 * fill + 16, room)
            found[u] = fill


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
