"""Numba kernels on some entries of P, held by rows: one score to the last bit, and the top k of many users.

Scores are X·W with W = C·diag(gain) + diag(shift), + E·diag(scale) with a prior, where C and E have entries in the same
places (see :class:`~deql.linalg.sparse_precision.SparsePrecision`). A user's rows of C are added up in an array of
length n, and only the columns that they have are looked at: every other one scores exactly 0. So the work for a user
is that of the rows, and does not grow with n.

Ties go to the lower column, but those at 0, where a history says nothing of most items, to the more popular one.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from deql.ranking.candidates import add_exactly, keep_best, sort_best
from deql.ranking.finish import ROUNDING

__all__ = ["mark_cold_users", "rank_sparse_users", "score_sparse_pairs", "sparse_contributions"]

_TOUCHED, _SEEN = 1, 2
"""Marks of columns that rows of a user have, and that the user has."""


@njit(cache=True, nogil=True)
def _weight(data, images, gain, scale, place, column):  # type: ignore[no-untyped-def]
    # The entry of W at a place that C has, without what shift adds to the diagonal.
    weight = np.float64(data[place]) * gain[column]
    if len(images) > 0:
        weight += scale[column] * np.float64(images[place])
    return weight


@njit(cache=True, nogil=True)
def mark_cold_users(  # type: ignore[no-untyped-def]
    first, last, starts, columns, data, images, gain, scale, indptr, indices, cold
):
    """Mark users ``first`` … ``last − 1`` of whom no item has a weight, other than 0, for an item that they lack."""
    for u in range(first, last):
        history = indices[indptr[u] : indptr[u + 1]]
        cold[u] = True
        for t in range(len(history)):
            for p in range(starts[history[t]], starts[history[t] + 1]):
                if _weight(data, images, gain, scale, p, columns[p]) != 0.0:
                    place = np.searchsorted(history, columns[p])
                    if place == len(history) or history[place] != columns[p]:
                        cold[u] = False
                        break
            if not cold[u]:
                break


@njit(cache=True, nogil=True)
def sparse_contributions(  # type: ignore[no-untyped-def]
    starts, columns, data, images, gain, shift, scale, items, values, target, out
):
    """Fill ``out`` with x_j·W_{j,target} for each item j of a history and return their sum.

    The parts are rounded so that they add up exactly (see :func:`~deql.ranking.candidates.add_exactly`). Without a
    prior ``images`` is empty.
    """
    for t in range(len(items)):
        begin, end = starts[items[t]], starts[items[t] + 1]
        p = begin + np.searchsorted(columns[begin:end], target)
        weight = 0.0
        if p < end and columns[p] == target:
            weight = _weight(data, images, gain, scale, p, target)
        if items[t] == target:
            weight += shift[target]
        out[t] = weight * values[t]
    return add_exactly(out)


@njit(cache=True, nogil=True)
def score_sparse_pairs(  # type: ignore[no-untyped-def]
    first, last, starts, columns, data, images, gain, shift, scale, indptr, indices, values,
    pair_indptr, pair_indices, out,
):  # fmt: skip
    """Write the exact score of each stored column of the pairs' rows ``first`` … ``last − 1`` into ``out``."""
    for u in range(first, last):
        items, history = indices[indptr[u] : indptr[u + 1]], values[indptr[u] : indptr[u + 1]]
        parts = np.empty(len(items))
        for p in range(pair_indptr[u], pair_indptr[u + 1]):
            out[p] = sparse_contributions(
                starts, columns, data, images, gain, shift, scale, items, history, pair_indices[p], parts
            )


@njit(cache=True, nogil=True)
def _add_row(columns, entries, x, sums):  # type: ignore[no-untyped-def]
    # sums += x·row; returns what no entry of the row passes in size.
    largest = 0.0
    for p in range(len(columns)):
        entry = np.float64(entries[p])
        sums[columns[p]] += x * entry
        largest = max(largest, abs(entry))
    return largest


@njit(cache=True, nogil=True)
def _touch(columns, marks, touched, count):  # type: ignore[no-untyped-def]
    # List the columns that were not listed before.
    for p in range(len(columns)):
        column = columns[p]
        touched[count] = column
        count += marks[column] == 0
        marks[column] |= _TOUCHED
    return count


@njit(cache=True, nogil=True)
def _score(column, sums, extras, gain, shift, scale, history, weights, mark):  # type: ignore[no-untyped-def]
    score = sums[column] * gain[column]
    if len(extras) > 0:
        score += extras[column] * scale[column]
    if mark & _SEEN:
        score += weights[np.searchsorted(history, column)] * shift[column]
    return score


@njit(cache=True, nogil=True)
def _zeros(by_popularity, marks, most, items, scores, fill):  # type: ignore[no-untyped-def]
    # The most popular of the columns that no row of the user has, all of which score 0.
    added = 0
    for p in range(len(by_popularity)):
        if added == most:
            break
        if marks[by_popularity[p]] == 0:
            items[fill + added], scores[fill + added] = by_popularity[p], 0.0
            added += 1
    return fill + added


@njit(cache=True, nogil=True)
def rank_sparse_users(  # type: ignore[no-untyped-def]
    first, last, starts, columns, data, images, gains, shifts, scales, indptr, indices, values, allowed,
    by_popularity, counts, exclude_seen, spare, exact, sums, extras, marks, touched, squares, out_items, out_scores,
):  # fmt: skip
    """Write the best items of users ``first`` … ``last − 1``, by their exact scores, into the outputs.

    Parameters
    ----------
    starts, columns, data, images : ndarray
        C and E; the latter empty without a prior.
    gains, shifts, scales : ndarray, models × n
        Of models that share C.
    allowed, by_popularity : ndarray
        Which columns may be returned, as marks and as a list, the most popular first.
    counts : ndarray
        How many users each column has, which decides ties at 0.
    spare : int
        Runners-up kept beside the k best, to be told apart by exact scores.
    exact : bool
        Whether scores must be exact to the last bit; the items are the same if not.
    sums, extras, marks, touched : ndarray
        Zeros of length n, of which ``extras`` is empty without a prior, and room for n + 1 columns. They are left as
        they were.
    squares : ndarray, models × users, or empty
        Becomes the sum of squared scores over the items a user does not have.
    """
    models, k = out_items.shape[0], out_items.shape[2]
    keep = k + spare
    room = 2 * keep + 16
    scores, items = np.empty(room + k), np.empty(room + k, np.int32)
    copied, unused = np.empty(room + k), np.zeros(room + k, np.int32)
    for u in range(first, last):
        begin, end = indptr[u], indptr[u + 1]
        if begin == end:
            continue
        history, weights = indices[begin:end], values[begin:end]
        parts = np.empty(end - begin)
        size, more, count = 0.0, 0.0, 0
        for t in range(len(history)):
            low, high = starts[history[t]], starts[history[t] + 1]
            x = np.float64(weights[t])
            size += abs(x) * _add_row(columns[low:high], data[low:high], x, sums)
            if len(extras) > 0:
                more += abs(x) * _add_row(columns[low:high], images[low:high], x, extras)
            count = _touch(columns[low:high], marks, touched, count)
        for t in range(len(history)):
            touched[count] = history[t]
            count += marks[history[t]] == 0
            marks[history[t]] |= _SEEN
        for m in range(models):
            gain, shift, scale = gains[m], shifts[m], scales[m]
            fill, bar, total, lost = 0, -np.inf, 0.0, False
            of_gain, of_shift, of_scale = 0.0, 0.0, 0.0
            for t in range(count):
                column = touched[t]
                mark = marks[column]
                of_gain = max(of_gain, abs(gain[column]))
                if len(extras) > 0:
                    of_scale = max(of_scale, abs(scale[column]))
                if mark & _SEEN:
                    if exclude_seen:
                        continue
                    of_shift = max(of_shift, abs(shift[column] * weights[np.searchsorted(history, column)]))
                score = _score(column, sums, extras, gain, shift, scale, history, weights, mark)
                if not mark & _SEEN:
                    total += score * score
                if score > bar and allowed[column]:
                    scores[fill], items[fill] = score, column
                    fill += 1
                    if fill == room:
                        bar = keep_best(scores, items, fill, keep)
                        fill, lost = keep, True
            if squares.size > 0:
                squares[m, u] = total
            # By how far rounding may put two columns in the wrong order: see ROUNDING.
            tie = ROUNDING * (len(history) + 1) * (size * of_gain + more * of_scale + of_shift)
            if fill > keep:
                bar = keep_best(scores, items, fill, keep)
                fill, lost = keep, True
            floor = _floor(scores, copied, unused, fill, k)
            if not floor > tie:  # else every other column is below
                fill = _zeros(by_popularity, marks, k, items, scores, fill)
                floor = _floor(scores, copied, unused, fill, k)
            if not tie < np.inf or (lost and not floor - bar > tie):
                # More than the runners-up may be among the best.
                every, their = np.empty(count + k, np.int32), np.empty(count + k)
                fill = 0
                for t in range(count):
                    column = touched[t]
                    if not allowed[column] or (exclude_seen and marks[column] & _SEEN):
                        continue
                    score = _score(column, sums, extras, gain, shift, scale, history, weights, marks[column])
                    if not score < floor - tie or not tie < np.inf:
                        every[fill], their[fill] = column, score
                        fill += 1
                fill = _zeros(by_popularity, marks, k, every, their, fill)
                _finish(
                    starts, columns, data, images, gain, shift, scale, history, weights, parts, True, tie, counts,
                    every, their, fill, out_items[m, u], out_scores[m, u],
                )  # fmt: skip
                continue
            kept = 0
            for t in range(fill):
                if not scores[t] < floor - tie:
                    scores[kept], items[kept] = scores[t], items[t]
                    kept += 1
            _finish(
                starts, columns, data, images, gain, shift, scale, history, weights, parts, exact, tie, counts,
                items, scores, kept, out_items[m, u], out_scores[m, u],
            )  # fmt: skip
        for t in range(count):
            sums[touched[t]] = 0.0
            marks[touched[t]] = 0
            if len(extras) > 0:
                extras[touched[t]] = 0.0


@njit(cache=True, nogil=True)
def _floor(scores, copied, unused, fill, k):  # type: ignore[no-untyped-def]
    # The k-th best score, −∞ where there are fewer.
    if fill < k:
        return -np.inf
    for t in range(fill):
        copied[t] = scores[t]
    return keep_best(copied, unused, fill, k)


@njit(cache=True, nogil=True)
def _sort_zeros(scores, items, fill, counts):  # type: ignore[no-untyped-def]
    # The items that score 0, which are beside each other by now, in order of popularity.
    begin = 0
    while begin < fill and scores[begin] != 0.0:
        begin += 1
    end = begin
    while end < fill and scores[end] == 0.0:
        end += 1
    users = np.empty(end - begin)
    for t in range(end - begin):
        users[t] = counts[items[begin + t]]
    sort_best(users, items[begin:end], end - begin)


@njit(cache=True, nogil=True)
def _finish(  # type: ignore[no-untyped-def]
    starts, columns, data, images, gain, shift, scale, history, weights, parts, exact, tie, counts, items, scores,
    fill, out_items, out_scores,
):  # fmt: skip
    # Sort by exact scores, unless those that are there are far enough apart and will do.
    decided = not exact
    if decided:
        sort_best(scores, items, fill)
        for t in range(1, fill):
            decided &= scores[t - 1] - scores[t] > tie
    if not decided:
        for t in range(fill):
            scores[t] = sparse_contributions(
                starts, columns, data, images, gain, shift, scale, history, weights, items[t], parts
            )
        sort_best(scores, items, fill)
        _sort_zeros(scores, items, fill, counts)
    fill = min(fill, len(out_items))
    for t in range(fill):
        out_items[t], out_scores[t] = items[t], scores[t]
