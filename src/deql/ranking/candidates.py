"""Numba kernels that decide among a user's candidates: one list for all models that share P, the best of it under each,
and sums that no order of addition changes, which make an explanation add up to its score.

A candidate is a column i and its sum Σ_j x_j·P_ji, and with a prior its extra Σ_j x_j·(left·rightᵀ)_ji, which no model
changes. Models that are alike, such as
those of a sweep over b, want nearly the same columns, so their common list is hardly longer than one model's.
It is in the order of the columns, so of equal scores the one at the earlier place is better.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

__all__ = ["add_exactly", "cut_back", "keep_best", "score_candidates", "select_best", "sort_best"]


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


@njit(cache=True, nogil=True)
def _better(score, item, other_score, other_item):  # type: ignore[no-untyped-def]
    # The order of every list: the higher score first; ties, equal scores, go to the lower item.
    return score > other_score or (score == other_score and item < other_item)


@njit(cache=True, nogil=True)
def keep_best(scores, items, fill, keep):  # type: ignore[no-untyped-def]
    """Quickselect: the best ``keep`` of ``fill`` ≥ ``keep`` entries come first; returns the last one's score."""
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
def sort_best(scores, items, fill):  # type: ignore[no-untyped-def]
    """Shell sort, the best first: lists are short, and it needs no memory."""
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
def score_candidates(  # type: ignore[no-untyped-def]
    sums, extras, items, fill, by_item, scales, errors, length, shifts, history, values, exclude_seen, table
):
    """Fill the table, candidates × models, with what their scores are at most.

    ``by_item`` holds gains, ``scales`` and ``errors`` what a prior's extras count and can be off by, times ``length``:
    items × models. Without a prior there are no extras, and scores are only rounded.
    """
    models = by_item.shape[1]
    for t in range(fill):
        item = items[t]
        for m in range(models):
            table[t, m] = sums[t] * by_item[item, m]
            if len(extras) > 0:
                table[t, m] += extras[t] * scales[item, m] + length * errors[item, m]
        if not exclude_seen:
            p = np.searchsorted(history, item)
            if p < len(history) and history[p] == item:
                for m in range(models):
                    table[t, m] += values[p] * shifts[m, item]


@njit(cache=True, nogil=True)
def select_best(column, keep, scores, places):  # type: ignore[no-untyped-def]
    """Put the places of the best ``keep`` entries of a column of the table first, and their scores.

    ``places`` holds every place once. Good is the order that a model alike has left: the worst of its
    choice tells most of the others apart. Returns the score of the last one kept, −∞ if all are.
    """
    fill = len(column)
    for t in range(fill):
        scores[t] = column[places[t]]
    if fill < keep:
        return -np.inf
    worst = 0
    for t in range(1, keep):
        if _better(scores[worst], places[worst], scores[t], places[t]):
            worst = t
    score, place, rivals = scores[worst], places[worst], keep
    for t in range(keep, fill):
        if _better(scores[t], places[t], score, place):
            scores[t], scores[rivals] = scores[rivals], scores[t]
            places[t], places[rivals] = places[rivals], places[t]
            rivals += 1
    return keep_best(scores, places, rivals, keep) if rivals > keep else score


@njit(cache=True, nogil=True)
def cut_back(sums, extras, items, fill, table, keep, bars):  # type: ignore[no-untyped-def]
    """Drop the candidates that are among the best ``keep`` of no model; returns how many stay.

    The worst score that a model keeps becomes its bar: a column that follows must beat it.
    """
    scores, places, wanted = np.empty(fill), np.arange(fill), np.zeros(fill, np.bool_)
    for m in range(len(bars)):
        bars[m] = select_best(table[:fill, m], keep, scores, places)
        for t in range(keep):
            wanted[places[t]] = True
    kept = 0
    for t in range(fill):
        if wanted[t]:
            sums[kept], items[kept] = sums[t], items[t]
            if len(extras) > 0:
                extras[kept] = extras[t]
            kept += 1
    return kept
