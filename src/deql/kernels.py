"""Numba kernels on the packed P: one score to the last bit, and the top k of many users.

Scores are X·W with W = P·diag(gain) + diag(shift), so the score of item i is
gain_i·Σ_j x_j·P_ji plus x_i·shift_i if the user has i.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from deql.precision.packed import block_offset
from deql.precision.plan import STRIP

__all__ = ["contributions", "rank_users"]

SPARE = 8
"""Runners-up kept beside the k best: the scan's float64 sums may be off in the last bit, so the last
places are decided among these by the exact scores."""

_offset: Any = njit(block_offset)


@njit(cache=True, nogil=True)
def _entry(data, n, tile, i, j):  # type: ignore[no-untyped-def]
    # P is symmetric; its lower triangle is what is stored.
    row, column = max(i, j), min(i, j)
    block = column // tile
    start = block * tile
    return data[_offset(block, n, tile) + (row - start) * min(tile, n - start) + column - start]


@njit(cache=True, nogil=True)
def contributions(data, n, tile, gain, shift, items, values, target, out):  # type: ignore[no-untyped-def]
    """Fill ``out`` with x_j·W_{j,target} for each item j of a history and return their sum.

    The parts are rounded to a common power of two so small that it is lost in float64's last bit of
    the largest possible partial sum. All partial sums are then exact, so the parts add up to the
    score exactly, in whatever order they are added.
    """
    total = 0.0
    for t in range(len(items)):
        weight = np.float64(_entry(data, n, tile, items[t], target)) * gain[target]
        if items[t] == target:
            weight += shift[target]
        out[t] = weight * values[t]
        total += abs(out[t])
    if total == 0.0:
        return 0.0
    grid = 2.0 ** max(np.ceil(np.log2(total)) - 51, -1074.0)  # no smaller power of two exists
    score = 0.0
    for t in range(len(items)):
        out[t] = np.round(out[t] / grid) * grid
        score += out[t]
    return score


@njit(cache=True, nogil=True)
def _pack_strip(data, n, tile, rows, low, width, out):  # type: ignore[no-untyped-def]
    # out[r, c] = P[rows[r], low + c]; the strip lies inside one block column.
    block = low // tile
    start = block * tile
    block_width = min(tile, n - start)
    base = _offset(block, n, tile) + low - start
    count = len(rows)
    above = 0
    while above < count and rows[above] < start:
        above += 1
    for r in range(above, count):
        place = base + (rows[r] - start) * block_width
        for c in range(width):
            out[r, c] = data[place + c]
    # Rows above the block are columns of earlier blocks. Sixteen at a time, so that a cache line of
    # the store is used whole where neighbouring items are wanted.
    places = np.empty(16, np.int64)
    for first in range(0, above, 16):
        group = min(16, above - first)
        for g in range(group):
            j = rows[first + g]
            other = j // tile
            places[g] = _offset(other, n, tile) + (low - other * tile) * tile + j - other * tile
        for c in range(width):
            for g in range(group):
                out[first + g, c] = data[places[g] + c * tile]


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
def _replace_worst(scores, items, score, item):  # type: ignore[no-untyped-def]
    # Heap with the worst entry at the root: the lowest score, and of equal scores the highest item.
    k = len(scores)
    place = 0
    while True:
        child = 2 * place + 1
        if child >= k:
            break
        right = child + 1
        if right < k and (
            scores[right] < scores[child] or (scores[right] == scores[child] and items[right] > items[child])
        ):
            child = right
        if scores[child] > score or (scores[child] == score and items[child] < item):
            break
        scores[place], items[place] = scores[child], items[child]
        place = child
    scores[place], items[place] = score, item


@njit(cache=True, nogil=True)
def rank_users(  # type: ignore[no-untyped-def]
    first, last, data, n, tile, gain, shift, indptr, indices, values, allowed, exclude_seen, out_items, out_scores,
    strips_done, stop,
):  # fmt: skip
    """Write the best items of users ``first`` … ``last − 1`` into their rows of the outputs.

    Items go by in strips of columns. A strip's part of P, for the items that occur in these
    histories, is copied once and stays in cache while every user's scores for it are summed in the
    order of the history and offered to the user's heap: no users × items array exists.
    ``strips_done[first]`` counts them for whoever watches, and a true ``stop[0]`` ends the work.
    """
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
    strip = np.zeros((used, STRIP), data.dtype)
    scores = np.empty(STRIP)
    factors = np.empty(STRIP)
    count = last - first
    k = out_items.shape[1]
    heap_scores = np.full((count, k + SPARE), -np.inf)
    # Unfilled places hold item n, beyond every real one, so that they are the worst of the −inf.
    heap_items = np.full((count, k + SPARE), n, np.int32)
    cursor = indptr[first:last].copy()
    for low in range(0, n, STRIP):
        if stop[0]:
            return
        strips_done[first] += 1
        width = min(STRIP, n - low)
        wanted = False
        for c in range(STRIP):
            factors[c] = gain[low + c] if c < width else 0
            wanted |= c < width and allowed[low + c]
        if not wanted:
            continue
        _pack_strip(data, n, tile, rows[:used], low, width, strip)
        for u in range(count):
            end = indptr[first + u + 1]
            scores[:] = 0
            for p in range(indptr[first + u], end):
                _add_scaled(scores, strip[local[indices[p]]], np.float64(values[p]))
            _multiply(scores, factors)
            p = cursor[u]
            while p < end and indices[p] < low:  # in strips that were passed over
                p += 1
            while p < end and indices[p] < low + width:
                c = indices[p] - low
                scores[c] = -np.inf if exclude_seen else scores[c] + values[p] * shift[low + c]
                p += 1
            cursor[u] = p
            bar = heap_scores[u, 0]
            if _largest(scores) > bar:
                for c in range(width):
                    if scores[c] > bar and allowed[low + c]:
                        _replace_worst(heap_scores[u], heap_items[u], scores[c], low + c)
                        bar = heap_scores[u, 0]
    exact = np.empty(k)
    for u in range(count):
        begin, end = indptr[first + u], indptr[first + u + 1]
        parts = np.empty(end - begin)
        exact[:] = -np.inf
        items = np.full(k, n, np.int32)
        for t in range(k + SPARE):
            item = heap_items[u, t]
            if item < n:
                score = contributions(data, n, tile, gain, shift, indices[begin:end], values[begin:end], item, parts)
                if score > exact[0] or (score == exact[0] and item < items[0]):
                    _replace_worst(exact, items, score, item)
        # Take the worst off the heap again and again: the row fills from its end.
        for t in range(k - 1, -1, -1):
            if items[0] < n:
                out_items[first + u, t] = items[0]
                out_scores[first + u, t] = exact[0]
            _replace_worst(exact, items, np.inf, -1)
