"""Coordinate descent for SLIM: a non-negative elastic net for each item, all on one sparse Gram matrix."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array

from deql._system.progress import ProgressCallback
from deql._system.threads import run_slices

__all__ = ["Descent", "descend"]

_MOST_LOCAL = 2048
"""Items of a working set that has a dense copy of its part of S: 32 MiB for each thread."""

_SLICES = 400


class Descent(NamedTuple):
    """What :func:`descend` found.

    Attributes
    ----------
    weights : csc_array of float64
        W, the rows of each column in order.
    unfinished : int
        Columns that ran out of sweeps.
    sweeps : int
        Sweeps over working sets, of all columns together.
    """

    weights: csc_array
    unfinished: int
    sweeps: int


def descend(
    gram: csr_array,
    l1: float,
    l2: float,
    *,
    tolerance: float,
    max_sweeps: int,
    start: csc_array | None = None,
    report: ProgressCallback | None = None,
) -> Descent:
    """For each j the w ≥ 0 with w_j = 0 that minimises ½wᵀSw − S_jᵀw + ½·l2·‖w‖² + l1·‖w‖₁.

    With g = S_j − S·w − l1, weight i moved alone goes to max(0, (g_i + S_ii·w_i) / (S_ii + l2)), and w is the minimum
    if none would move. Only the items of a working set are moved. Whenever they have come to rest, those others that
    would move furthest join them.

    If S has no negative entry, g_i ≤ S_ij − l1 whatever w is, so only items with S_ij > l1 are looked at.

    Parameters
    ----------
    gram : csr_array of float64
        S, symmetric, no entry twice.
    l1, l2 : float
        Penalties, from 0 up.
    tolerance : float
        A column is done when no weight would move further than this.
    max_sweeps : int
        Most sweeps over working sets for one column.
    start : csc_array, optional
        Weights from 0 up to start from; all 0 if not given.
    report : callable, optional
        Called as ``report(done, total)`` as the work goes on.

    Examples
    --------
    >>> S = csr_array([[2.0, 1.0], [1.0, 3.0]])
    >>> descend(S, 0.5, 1.0, tolerance=1e-9, max_sweeps=10).weights.toarray()
    array([[0.        , 0.16666667],
           [0.125     , 0.        ]])
    """
    n = gram.shape[0]
    screen = gram.nnz == 0 or bool(gram.data.min() >= 0)
    operands = (
        *_typed(gram), gram.diagonal(), *_typed(csc_array((n, n)) if start is None else start),
        screen, float(l1), float(l2), float(tolerance), int(max_sweeps),
    )  # fmt: skip
    # A column may cost a thousand times as much as another. The costly ones, by their entries in S, come first.
    lengths = np.diff(gram.indptr)
    order = np.argsort(-lengths, kind="stable")
    work = np.concatenate([[0], np.cumsum(lengths[order] + 1)])
    bounds = np.unique(np.searchsorted(work, np.linspace(0, work[-1], min(n, _SLICES) + 1))).tolist()
    found: dict[int, tuple[NDArray[np.int32], NDArray[np.float64]]] = {}
    counts, tally, stop = np.zeros(n, np.int64), np.zeros((n, 3), np.int64), np.zeros(1, bool)

    def solve(first: int, last: int) -> None:
        most = work[last] - work[first] if screen else n * (last - first)
        rows, weights = np.empty(most, np.int32), np.empty(most)
        _solve_columns(order[first:last], *operands, rows, weights, counts[first:last], tally[first], stop)
        kept = int(counts[first:last].sum())
        found[first] = rows[:kept].copy(), weights[:kept].copy()

    poll = None if report is None else lambda: report(int(tally[:, 0].sum()), n)
    run_slices(solve, bounds, stop=stop, poll=poll)
    rows, weights = (np.concatenate(parts) for parts in zip(*(found[first] for first in bounds[:-1]), strict=True))
    ordered = csc_array((weights, rows, np.concatenate([[0], np.cumsum(counts)])), shape=(n, n))
    W = csc_array(ordered[:, np.argsort(order)])
    W.sort_indices()
    _, unfinished, sweeps = tally.sum(axis=0).tolist()
    return Descent(W, unfinished, sweeps)


def _typed(matrix: csr_array | csc_array) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float64]]:
    """The arrays of a sparse matrix in the one type that the kernels are compiled for."""
    return (
        matrix.indptr.astype(np.int64, copy=False),
        matrix.indices.astype(np.int32, copy=False),
        matrix.data.astype(np.float64, copy=False),
    )


@njit(cache=True, nogil=True)
def _solve_columns(  # type: ignore[no-untyped-def]
    columns, indptr, indices, values, diagonal, start_ptr, start_rows, start_values,
    screen, l1, l2, tolerance, max_sweeps, out_rows, out_weights, counts, tally, stop,
):  # fmt: skip
    """Rows and weights of each column; ``tally`` counts columns done, unfinished ones, and sweeps."""
    n = len(diagonal)
    weights, gradient, steps = np.zeros(n), np.empty(n), np.empty(n)
    candidates, members = np.empty(n, np.int32), np.empty(n, np.int32)
    slot = np.full(n, -1, np.int32)  # where an item is among the members
    local = np.empty((64, 64))
    end = 0
    for t in range(len(columns)):
        j = columns[t]
        for i in range(n):
            gradient[i] = -l1
        for p in range(indptr[j], indptr[j + 1]):
            gradient[indices[p]] += values[p]
        n_candidates = 0
        for i in range(n):
            if i != j and diagonal[i] > 0 and (gradient[i] > 0 or not screen):
                candidates[n_candidates] = i
                n_candidates += 1
                slot[i] = -2
        used, filled, entries, sweeps = 0, 0, 0, 0
        for p in range(start_ptr[j], start_ptr[j + 1]):
            i = start_rows[p]
            if slot[i] == -2 and start_values[p] > 0:
                weights[i] = start_values[p]
                _move(i, weights[i], indptr, indices, values, gradient)
                members[used], slot[i] = i, used
                used += 1
                entries += indptr[i + 1] - indptr[i]
        while not stop[0]:
            largest = 0.0
            for c in range(n_candidates):
                i = candidates[c]
                steps[c] = abs(_step(gradient[i], diagonal[i], weights[i], l2))
                largest = max(largest, steps[c])
            if largest <= tolerance:
                break
            if sweeps >= max_sweeps:
                tally[1] += 1
                break
            for c in range(n_candidates):
                i = candidates[c]
                if slot[i] < 0 and steps[c] >= (0.3 if sweeps == 0 else 0.03) * largest:
                    members[used], slot[i] = i, used
                    used += 1
                    entries += indptr[i + 1] - indptr[i]
            # Early working sets lack items, so they need not come to rest completely.
            goal = max(0.5 * tolerance, 0.03 * largest)
            # A dense row is added faster than a sparse one of a quarter of its length, and has only the members.
            if used <= _MOST_LOCAL and used * used <= 4 * entries:
                local = _fill(local, members, filled, used, slot, indptr, indices, values)
                filled = used
                sweeps += _sweep_locally(
                    local, members[:used], indptr, indices, values, gradient, weights, l2, goal, max_sweeps - sweeps
                )
            else:
                sweeps += _sweep(
                    members[:used], indptr, indices, values, diagonal, gradient, weights, l2, goal, max_sweeps - sweeps
                )
        for c in range(n_candidates):
            i = candidates[c]
            slot[i] = -1
            if weights[i] > 0:
                out_rows[end], out_weights[end] = i, weights[i]
                end += 1
                counts[t] += 1
                weights[i] = 0.0
        tally[0] += 1
        tally[2] += sweeps


@njit(cache=True, nogil=True)
def _step(gradient, own, weight, l2):  # type: ignore[no-untyped-def]
    """How far a weight moves when it is moved alone."""
    return max(0.0, (gradient + own * weight) / (own + l2)) - weight


@njit(cache=True, nogil=True)
def _move(item, step, indptr, indices, values, gradient):  # type: ignore[no-untyped-def]
    """What a step of one weight does to the gradient of all items."""
    for p in range(indptr[item], indptr[item + 1]):
        gradient[indices[p]] -= step * values[p]


@njit(cache=True, nogil=True)
def _fill(local, members, filled, used, slot, indptr, indices, values):  # type: ignore[no-untyped-def]
    """Extend the members' own dense part of S from the first ``filled`` of them to all."""
    if used > len(local):
        room = np.empty((2 * used, 2 * used))
        for a in range(filled):
            for b in range(filled):
                room[a, b] = local[a, b]
        local = room
    for a in range(filled, used):
        item = members[a]
        for b in range(used):
            local[a, b] = 0.0
        for p in range(indptr[item], indptr[item + 1]):
            if slot[indices[p]] >= 0:
                local[a, slot[indices[p]]] = values[p]
    for a in range(filled):
        for b in range(filled, used):
            local[a, b] = local[b, a]
    return local


@njit(cache=True, nogil=True)
def _sweep_locally(  # type: ignore[no-untyped-def]
    local, members, indptr, indices, values, gradient, weights, l2, goal, max_sweeps
):
    """Move the members on their own part of S until a sweep has no step above ``goal``, then tell all items."""
    pull, moved = np.empty(len(members)), np.empty(len(members))
    for a in range(len(members)):
        pull[a], moved[a] = gradient[members[a]], weights[members[a]]
    sweeps, largest = 0, np.inf
    while sweeps < max_sweeps and largest > goal:
        sweeps += 1
        largest = 0.0
        for a in range(len(members)):
            step = _step(pull[a], local[a, a], moved[a], l2)
            if step != 0:
                _move_locally(local, a, step, pull, moved)
                largest = max(largest, abs(step))
        if sweeps % max(5, len(members) // 8) == 0 and largest > goal:
            _minimise_active_set(local, pull, moved, l2)
    for a in range(len(members)):
        item = members[a]
        if moved[a] != weights[item]:
            _move(item, moved[a] - weights[item], indptr, indices, values, gradient)
            weights[item] = moved[a]
    return sweeps


@njit(cache=True, nogil=True)
def _move_locally(local, a, step, pull, moved):  # type: ignore[no-untyped-def]
    moved[a] += step
    for b in range(len(pull)):
        pull[b] -= step * local[a, b]


@njit(cache=True, nogil=True)
def _minimise_active_set(local, pull, moved, l2):  # type: ignore[no-untyped-def]
    """Go straight to the minimum over the positive weights, as far as all of them stay so.

    Sweeps soon find which weights are positive, but where items are alike they take S_ii/l2 sweeps to share out
    the weight between them.
    """
    positive = np.empty(len(pull), np.int32)
    m = 0
    for a in range(len(pull)):
        if moved[a] > 0:
            positive[m] = a
            m += 1
    factor, step = np.empty((m, m)), np.empty(m)
    for a in range(m):
        step[a] = pull[positive[a]] - l2 * moved[positive[a]]
        for b in range(a, m):
            factor[a, b] = local[positive[a], positive[b]]
        factor[a, a] += l2
    # A = UᵀDU with rows of DU in ``factor``; the right side is divided by Uᵀ on the way.
    for a in range(m):
        if factor[a, a] <= 1e-12 * local[positive[a], positive[a]]:
            return  # without a ridge, items may follow from each other
        for b in range(a + 1, m):
            ratio = factor[a, b] / factor[a, a]
            step[b] -= ratio * step[a]
            for c in range(b, m):
                factor[b, c] -= ratio * factor[a, c]
    share = 1.0
    for a in range(m - 1, -1, -1):
        for b in range(a + 1, m):
            step[a] -= factor[a, b] * step[b]
        step[a] /= factor[a, a]
        if moved[positive[a]] + step[a] < 0:
            share = min(share, -moved[positive[a]] / step[a])
    for a in range(m):
        _move_locally(local, positive[a], max(share * step[a], -moved[positive[a]]), pull, moved)


@njit(cache=True, nogil=True)
def _sweep(  # type: ignore[no-untyped-def]
    members, indptr, indices, values, diagonal, gradient, weights, l2, goal, max_sweeps
):
    """The same on the rows of S, for working sets whose part of it is large and mostly empty."""
    sweeps, largest = 0, np.inf
    while sweeps < max_sweeps and largest > goal:
        sweeps += 1
        largest = 0.0
        for item in members:
            step = _step(gradient[item], diagonal[item], weights[item], l2)
            if step != 0:
                weights[item] += step
                _move(item, step, indptr, indices, values, gradient)
                largest = max(largest, abs(step))
    return sweeps
