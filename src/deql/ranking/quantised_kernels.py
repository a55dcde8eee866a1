"""Numba kernels that rank histories by quantised rows: an interval for every score, exact scores of a few items."""

from __future__ import annotations

import numpy as np
from numba import njit

from deql.linalg.tiling import STRIP
from deql.ranking.candidates import keep_best, sort_best
from deql.ranking.kernels import contributions
from deql.ranking.quantised_right import add_extras, history_vector

__all__ = ["rank_users"]

_CHUNK = 32 * STRIP
"""Columns summed at once: their sums stay in the nearest cache, and of each row a run of memory is read."""

_AT_ONCE = 4
"""Rows added at once, so that sums go through memory a fourth as often."""


@njit(cache=True, nogil=True, fastmath={"contract", "reassoc"})
def _add(x, y, z, w, a, b, d, e, sums):  # type: ignore[no-untyped-def]
    for c in range(STRIP):
        sums[c] += x * a[c] + y * b[c] + z * d[c] + w * e[c]


@njit(cache=True, nogil=True)
def _sum_rows(codes, steps, rows, weights, sums, errors):  # type: ignore[no-untyped-def]
    # sums[c] = Σ_p weights[p]·row[c], and for each strip Σ_p |weights[p]|·step. The number of rows is a multiple
    # of _AT_ONCE.
    sums[:] = 0.0
    errors[:] = 0.0
    count, padded = len(rows), len(sums)
    for low in range(0, padded, _CHUNK):
        high = min(low + _CHUNK, padded)
        for p in range(0, count, _AT_ONCE):
            i, j, k, m = rows[p], rows[p + 1], rows[p + 2], rows[p + 3]
            for start in range(low, high, STRIP):
                strip, end = start // STRIP, start + STRIP
                x, y = weights[p] * steps[i, strip], weights[p + 1] * steps[j, strip]
                z, w = weights[p + 2] * steps[k, strip], weights[p + 3] * steps[m, strip]
                errors[strip] += abs(x) + abs(y) + abs(z) + abs(w)
                _add(
                    x, y, z, w, codes[i, start:end], codes[j, start:end], codes[k, start:end], codes[m, start:end],
                    sums[start:end],
                )  # fmt: skip


@njit(cache=True, nogil=True)
def _row_weights(history, values, roots):  # type: ignore[no-untyped-def]
    # What each row counts, filled up with rows that count nothing. All together count 1 (see _error_bound).
    filled = -(-len(history) // _AT_ONCE) * _AT_ONCE
    rows, weights = np.full(filled, history[0], np.int64), np.zeros(filled, np.float32)
    total = 0.0
    for p in range(len(history)):
        total += abs(values[p] * roots[history[p]])
    for p in range(len(history)):
        rows[p] = history[p]
        weights[p] = values[p] * roots[history[p]] / total if total > 0.0 else 0.0
    return rows, weights, total


@njit(cache=True, nogil=True)
def _error_bound(m):  # type: ignore[no-untyped-def]
    """What share of E a sum of m rows is off by at most: the error bound that all rests on.

    Let r_i = √P_ii (1 if that is 0), v_ji = P_ji/(r_j·r_i), T = Σ_j |x_j|·r_j, w_j = x_j·r_j/T and f_i = gain_i·r_i.
    The score of an item i outside the history is f_i·T·Σ_j w_j·v_ji, and T is the same for all items: the sum times f_i
    decides. (If T is 0, so are all sums and E: every item reaches the bar and is scored exactly.)
    E = Σ_j |w_j|·step_j, where step_j is that of row j's strip with i in it. With u = 2⁻²⁴, in shares of E:

    1. Codes: 1/2 as they are whole, and 4·127·u < 2⁻¹⁵ for v, step, 127/peak and v·127/peak in float32.
    2. The sum: w, w·step, its product with the code and at most m + 3 additions in whatever order are m + 6
       roundings in float32 of what is 127·E in size: 127·((1 + u)ᵐ⁺⁶ − 1) < 1.04·(m + 6)·2⁻¹⁷.
    3. What underflows in float32: less than 2⁻¹¹⁰ for each row, as codes·steps are below 127·2³². As Σ_j |w_j| is 1 and
       a step at least 2⁻⁶⁷, E is at least 2⁻⁶⁷, too: less than m·2⁻⁴².
    4. The exact score, which is rounded itself: 3·2⁻⁵³ for each part, and m·2⁻⁵¹ as parts are made to add up, of
       128·E at most; products and sums with f_i in float64 less still: together less than (m + 1)·2⁻⁴².
    5. What underflows there: a part is off by 2⁻¹⁰⁷⁵·(1 + |x_j|) < 2⁻⁹⁰⁴, if |x_j| is ordinary, while |f_i|·T·E is
       2⁻⁴·¹⁷⁰⁻⁶⁷ = 2⁻⁷⁴⁷ at least, if r, gains and weights are ordinary; nor can anything overflow then.

    A prior adds scale_i·(y·right_i)/T to the sum times f_i, with a bound of its own (see
    :func:`~deql.ranking.quantised_right.add_extras`).

    E as computed may be too small by (m + 8)·u of it. For m ≤ 2²⁰, and rows of more items take a terabyte,
    (1/2 + (m + 16)·2⁻¹⁶)·(1 − (m + 8)·u) > 1/2 + 0.9·(m + 16)·2⁻¹⁶: more than all of these together.
    """
    return np.float32(0.5 + (m + 16) * 2.0**-16)


@njit(cache=True, nogil=True)
def _bound(sums, factors, error, extras, scales, reaches, sign, out):  # type: ignore[no-untyped-def]
    # What scores of a strip are at most, or at least if the sign is −1.
    if len(extras) == 0:
        for c in range(STRIP):
            out[c] = sums[c] * factors[c] + sign * error * abs(factors[c])
    else:
        for c in range(STRIP):
            off = error * abs(factors[c]) + reaches[c] * abs(scales[c])
            out[c] = sums[c] * factors[c] + extras[c] * scales[c] + sign * off


@njit(cache=True, nogil=True)
def _count_reaching(bounds, bar):  # type: ignore[no-untyped-def]
    count = 0
    for c in range(STRIP):
        count += bounds[c] >= bar
    return count


@njit(cache=True, nogil=True)
def _lower_bound(sums, errors, factors, extras, scales, reaches, k):  # type: ignore[no-untyped-def]
    # The k-th largest of what scores are at least: −∞ if there are fewer.
    room = 2 * k + 16
    least, places, lows = np.empty(room), np.zeros(room, np.int32), np.empty(STRIP)
    fill, bar = 0, -np.inf
    for strip in range(len(errors)):
        part = slice(strip * STRIP, (strip + 1) * STRIP)
        _bound(sums[part], factors[part], errors[strip], extras[part], scales[part], reaches[part], -1.0, lows)
        if _count_reaching(lows, bar) > 0:
            for c in range(STRIP):
                if lows[c] > bar:
                    least[fill] = lows[c]
                    fill += 1
                    if fill == room:
                        bar = keep_best(least, places, fill, k)
                        fill = k
    return keep_best(least, places, fill, k) if fill >= k else -np.inf


@njit(cache=True, nogil=True)
def _shortlist(sums, errors, factors, extras, scales, reaches, bar, others):  # type: ignore[no-untyped-def]
    # Items whose scores may reach the bar, behind the others.
    reaching, highs = np.empty(len(errors), np.int64), np.empty(STRIP)
    for strip in range(len(errors)):
        part = slice(strip * STRIP, (strip + 1) * STRIP)
        _bound(sums[part], factors[part], errors[strip], extras[part], scales[part], reaches[part], 1.0, highs)
        reaching[strip] = _count_reaching(highs, bar)
    items = np.empty(len(others) + reaching.sum(), np.int32)
    items[: len(others)] = others
    fill = len(others)
    for strip in range(len(errors)):
        if reaching[strip] > 0:
            part = slice(strip * STRIP, (strip + 1) * STRIP)
            _bound(sums[part], factors[part], errors[strip], extras[part], scales[part], reaches[part], 1.0, highs)
            for c in range(STRIP):
                if highs[c] >= bar:
                    items[fill] = strip * STRIP + c
                    fill += 1
    return items


@njit(cache=True, nogil=True)
def rank_users(  # type: ignore[no-untyped-def]
    first, last, codes, steps, roots, factors, right_steps, right_reaches, right_codes, padded_scales,
    data, base, width, gains, shifts, left, right, scales, indptr, indices, values,
    allowed, exclude_seen, out_items, out_scores,
):  # fmt: skip
    """Write the best items of users ``first`` … ``last − 1``, and their exact scores, into the outputs.

    See :class:`~deql.ranking.quantised.QuantisedRows` for the rows. ``factors`` are gains times roots, and NaN for
    items that may not come; they and ``padded_scales``, those of a prior, are filled up to whole strips.
    """
    models, k = gains.shape[0], out_items.shape[2]
    sums, errors = np.empty(codes.shape[1], np.float32), np.empty(steps.shape[1], np.float32)
    extras, reaches = np.zeros(padded_scales.shape[1]), np.zeros(padded_scales.shape[1])
    y = np.empty(left.shape[1], np.float32)
    for u in range(first, last):
        history, given = indices[indptr[u] : indptr[u + 1]], values[indptr[u] : indptr[u + 1]]
        if len(history) == 0:
            continue
        rows, weights, total = _row_weights(history, given, roots)
        _sum_rows(codes, steps, rows, weights, sums, errors)
        errors *= _error_bound(len(history))
        if len(extras) > 0:
            length, sizes = history_vector(left, history, given, y)
            add_extras(
                right_steps, right_reaches, right_codes, y, length, sizes, len(history), total if total > 0.0 else 1.0,
                extras, reaches,
            )  # fmt: skip
        sums[history] = np.nan
        seen = history[allowed[history] & (not exclude_seen)]
        parts = np.empty(len(history))
        for m in range(models):
            bar = _lower_bound(sums, errors, factors[m], extras, padded_scales[m], reaches, k)
            items = _shortlist(sums, errors, factors[m], extras, padded_scales[m], reaches, bar, seen)
            scores = np.empty(len(items))
            for t in range(len(items)):
                scores[t] = contributions(
                    data, base, width, gains[m], shifts[m], left, right, scales[m], history, given, items[t], parts
                )
            sort_best(scores, items, len(items))
            best = min(k, len(items))
            out_items[m, u, :best], out_scores[m, u, :best] = items[:best], scores[:best]
