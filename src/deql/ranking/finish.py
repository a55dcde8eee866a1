"""Numba kernels that decide a user's list among the candidates of a scan, by exact scores."""

from __future__ import annotations

import numpy as np
from numba import njit

from deql.ranking.candidates import keep_best, score_candidates, select_best, sort_best
from deql.ranking.kernels import contributions

__all__ = ["ROUNDING", "finish_users"]

ROUNDING = 2.0**-48
"""Two scores of a history of m items can trade places by rounding only if they are closer than m times
this, relative to what the sizes of their parts add up to. A scan's score is off by at most (m + 4)·2⁻⁵³
of that and one of rounded parts by m·2⁻⁵¹ + 3·2⁻⁵³: twice their sum is below m·2⁻⁴⁸ for every m.
A prior of rank k adds at most (k + m + 4)·2⁻⁵³ for Σ_j x_j·left_j and its product with a row in float64, k·2⁻⁵³ for
the products of rows that parts are made of, and 3·2⁻⁵³: twice that is below (k/8 + m/16 + 1)·2⁻⁴⁸."""


@njit(cache=True, nogil=True)
def finish_users(  # type: ignore[no-untyped-def]
    first, last, data, base, width, gains, shifts, left, right, scales, errors, indptr, indices, values, lengths,
    allowed, exclude_seen, keep, by_item, scales_by_item, errors_by_item, ties, exact,
    found_sums, found_extras, found_items, found, out_items, out_scores,
):  # fmt: skip
    """Write the best items of users ``first`` … ``last − 1``, by their exact scores, into the outputs.

    A candidate's score lies within ``lengths`` times ``errors`` of what the scan says, but for rounding: by ``ties``,
    models × users, two of them may be closer than float64 can tell. Those of which that bound says that they are not
    among the best are left out, and the others scored exactly. Where more than the candidates may be among the best,
    all items are looked at. Unless the scores must be ``exact``, those of the scan will do where they are far enough
    apart.
    """
    models = gains.shape[0]
    k = out_items.shape[2]
    most = keep
    for u in range(first, last):
        most = max(most, found[u])
    scores, places, table = np.empty(most), np.empty(most, np.int32), np.empty((most, models))
    items, least, unused = np.empty(keep, np.int32), np.empty(keep), np.zeros(keep, np.int32)
    for u in range(first, last):
        begin, end = indptr[u], indptr[u + 1]
        if begin == end:
            continue
        history, weights, length = indices[begin:end], values[begin:end], lengths[u]
        parts = np.empty(end - begin)
        score_candidates(
            found_sums[u], found_extras[u], found_items[u], found[u], by_item, scales_by_item, errors_by_item, length,
            shifts, history, weights, exclude_seen, table,
        )  # fmt: skip
        places[: found[u]] = np.arange(found[u])
        for m in range(models):
            tie = ties[m, u]
            bar = select_best(table[: found[u], m], keep, scores, places)
            fill = min(found[u], keep)
            for t in range(fill):
                items[t] = found_items[u, places[t]]
                least[t] = scores[t] - 2.0 * _error(errors, m, items[t], length)
            floor = keep_best(least, unused, fill, k) if fill >= k else -np.inf
            # Nothing can be said if a bound is not finite.
            if not tie < np.inf or (fill == keep and not floor - bar > tie):
                all_items = _reaching(
                    data, base, width, gains[m], shifts[m], left, right, scales[m], history, weights, allowed,
                    exclude_seen, k, tie,
                )  # fmt: skip
                all_scores = np.empty(len(all_items))
                for t in range(len(all_items)):
                    all_scores[t] = contributions(
                        data, base, width, gains[m], shifts[m], left, right, scales[m], history, weights, all_items[t],
                        parts,
                    )  # fmt: skip
                fill = min(k, len(all_items))
                if fill > 0:
                    keep_best(all_scores, all_items, len(all_items), fill)
                    sort_best(all_scores, all_items, fill)
                out_items[m, u, :fill], out_scores[m, u, :fill] = all_items[:fill], all_scores[:fill]
                continue
            contenders = 0
            for t in range(fill):
                if not scores[t] < floor - tie:
                    items[contenders] = items[t]
                    scores[contenders] = scores[t] - _error(errors, m, items[t], length)
                    contenders += 1
            sort_best(scores, items, contenders)
            decided = not exact
            for t in range(1, contenders):
                error = _error(errors, m, items[t - 1], length) + _error(errors, m, items[t], length)
                decided &= scores[t - 1] - scores[t] > tie + error
            if not decided:
                for t in range(contenders):
                    scores[t] = contributions(
                        data, base, width, gains[m], shifts[m], left, right, scales[m], history, weights, items[t],
                        parts,
                    )  # fmt: skip
                sort_best(scores, items, contenders)
            fill = min(k, contenders)
            out_items[m, u, :fill], out_scores[m, u, :fill] = items[:fill], scores[:fill]


@njit(cache=True, nogil=True)
def _error(errors, m, item, length):  # type: ignore[no-untyped-def]
    return length * errors[m, item] if errors.shape[1] > 0 else 0.0


@njit(cache=True, nogil=True, fastmath={"contract", "reassoc"})
def _product(y, row):  # type: ignore[no-untyped-def]
    total = 0.0
    for c in range(len(y)):
        total += y[c] * row[c]
    return total


@njit(cache=True, nogil=True)
def _reaching(  # type: ignore[no-untyped-def]
    data, base, width, gain, shift, left, right, scale, history, weights, allowed, exclude_seen, k, tie
):
    # Items whose scores in float64 are among the k best, or as near to the k-th as rounding may be off. That is the
    # cheaper step before exact scores: of a prior it needs Σ_j x_j·left_j once, and not a product for each part.
    n = len(gain)
    scores, items, fill, p = np.empty(n), np.empty(n, np.int32), 0, 0
    y = np.zeros(left.shape[1])
    for t in range(len(history) if len(y) > 0 else 0):
        for c in range(len(y)):
            y[c] += weights[t] * np.float64(left[history[t], c])
    for item in range(n):
        while p < len(history) and history[p] < item:
            p += 1
        seen = p < len(history) and history[p] == item
        if not allowed[item] or (seen and exclude_seen):
            continue
        total = 0.0
        for t in range(len(history)):
            row, column = max(history[t], item), min(history[t], item)
            total += np.float64(data[base[column] + row * width[column]]) * weights[t]
        score = total * gain[item]
        if len(y) > 0:
            score += scale[item] * (y[item] if right.shape[1] == 0 else _product(y, right[item]))
        if seen:
            score += weights[p] * shift[item]
        scores[fill], items[fill] = score, item
        fill += 1
    if fill <= k or not tie < np.inf:
        return items[:fill]
    floor = keep_best(scores[:fill].copy(), items[:fill].copy(), fill, k) - tie
    kept = 0
    for t in range(fill):
        if not scores[t] < floor:
            items[kept] = items[t]
            kept += 1
    return items[:kept]
