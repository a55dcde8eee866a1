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

__all__ = ["contributions", "rank_users"]

SPARE = 4
"""Runners-up kept beside the k best: the scan's sums are rounded, so the places are decided among these
by the exact scores."""

TIE = 1e-13
"""Where the k best and the last runner-up are closer than this, relative to the parts of their scores,
the runners-up may not be all there are, and every item is scored exactly."""


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
def _pack_strip(data, base, width, tile, rows, low, count, out):  # type: ignore[no-untyped-def]
    # out[r, c] = P[rows[r], low + c]; the strip lies inside one block column, whose rows are contiguous.
    start = low - low % tile
    for r in range(len(rows)):
        j = rows[r]
        into = out[r]
        if j >= start:
            place = base[low] + j * width[low]
            row = data[place : place + count]
            for c in range(count):
                into[c] = row[c]
        else:  # above the block: a column of an earlier one, by symmetry
            step = width[j]
            place = base[j] + low * step
            column = data[place : place + (count - 1) * step + 1]
            for c in range(count):
                into[c] = column[c * step]


@njit(cache=True, nogil=True)
def _add_scaled(total, row, x):  # type: ignore[no-untyped-def]
    for c in range(STRIP):
        total[c] += x * row[c]


@njit(cache=True, nogil=True)
def _multiply(scores, factors):  # type: ignore[no-untyped-def]
    for c in range(STRIP):
        scores[c] *= factors[c]


@njit(cache=True, nogil=True, fastmath={"nnan", "nsz", "reassoc"})
def _largest(scores):  # type: ignore[no-untyped-def]
    best = scores[0]
    for c in range(1, STRIP):
        best = max(best, scores[c])
    return best


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
def rank_users(  # type: ignore[no-untyped-def]
    first, last, data, base, width, tile, gain, shift, indptr, indices, values, allowed, exclude_seen,
    out_items, out_scores, strips_done, stop,
):  # fmt: skip
    """Write the best items of users ``first`` … ``last − 1`` into their rows of the outputs.

    Items go by in strips of columns. A strip's part of P, for the items that occur in these
    histories, is copied once and stays in cache while every user's scores for it are summed in the
    order of the history and the best are kept: no users × items array exists.
    ``strips_done[first]`` counts them for whoever watches, and a true ``stop[0]`` ends the work.
    """
    n = len(gain)
    local = np.full(n, -1, np.int32)
    for p in range(indptr[first], indptr[last]):
        local[indices[p]] = 0
    rows = np.empty(min(n, indptr[last] - indptr[first]), np.int32)
    used = 0
    for j in range(n):
        if local[j] == 0:
            rows[used] = j
            local[j] = used
            used += 1
    origin = indptr[first]
    places = np.empty(indptr[last] - origin, np.int32)
    for p in range(origin, indptr[last]):
        places[p - origin] = local[indices[p]]
    strip = np.zeros((used, STRIP), data.dtype)
    scores = np.empty(STRIP)
    factors = np.empty(STRIP)
    count = last - first
    k = out_items.shape[1]
    # Candidates of each user: collected until the room is used up, then cut back to the best ``keep``,
    # the worst of which is the bar for those that follow.
    keep = k + SPARE
    room = 2 * keep + 16
    found_scores = np.empty((count, room))
    found_items = np.empty((count, room), np.int32)
    found = np.zeros(count, np.int32)
    bars = np.full(count, -np.inf)
    cursor = indptr[first:last].copy()
    for low in range(0, n, STRIP):
        if stop[0]:
            return
        strips_done[first] += 1
        columns = min(STRIP, n - low)
        wanted = False
        for c in range(STRIP):
            factors[c] = gain[low + c] if c < columns else 0
            wanted |= c < columns and allowed[low + c]
        if not wanted:
            continue
        _pack_strip(data, base, width, tile, rows[:used], low, columns, strip)
        for u in range(count):
            end = indptr[first + u + 1]
            scores[:] = 0
            for p in range(indptr[first + u], end):
                _add_scaled(scores, strip[places[p - origin]], np.float64(values[p]))
            _multiply(scores, factors)
            p = cursor[u]
            while p < end and indices[p] < low:  # in strips that were passed over
                p += 1
            while p < end and indices[p] < low + columns:
                c = indices[p] - low
                scores[c] = -np.inf if exclude_seen else scores[c] + values[p] * shift[low + c]
                p += 1
            cursor[u] = p
            bar = bars[u]
            if _largest(scores) > bar:
                mine, theirs, fill = found_scores[u], found_items[u], found[u]
                for c in range(columns):
                    if scores[c] > bar and allowed[low + c]:
                        mine[fill], theirs[fill] = scores[c], low + c
                        fill += 1
                        if fill == room:
                            bar = _keep_best(mine, theirs, fill, keep)
                            fill = keep
                found[u], bars[u] = fill, bar
    for u in range(count):
        begin, end = indptr[first + u], indptr[first + u + 1]
        mine, theirs, fill = found_scores[u], found_items[u], found[u]
        items, history = indices[begin:end], values[begin:end]
        parts = np.empty(end - begin)
        gap = np.inf
        if fill >= keep:
            bar = _keep_best(mine, theirs, fill, keep)
            fill = keep
            _sort_best(mine, theirs, fill)
            gap = mine[k - 1] - bar
        size = 0.0
        for t in range(fill):
            mine[t] = contributions(data, base, width, gain, shift, items, history, theirs[t], parts)
            spread = 0.0
            for part in parts:
                spread += abs(part)
            size = max(size, spread)
        if gap <= TIE * size:
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
            out_items[first + u, t] = theirs[t]
            out_scores[first + u, t] = mine[t]
