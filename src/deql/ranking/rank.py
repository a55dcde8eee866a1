"""The k best columns of X·W for each row of X, without ever holding X·W."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from deql._system.progress import ProgressCallback
from deql._system.threads import even_bounds, read_only, run_slices, thread_count
from deql.linalg.packed import PackedSymmetric
from deql.linalg.tiling import STRIP
from deql.ranking import NO_ITEM
from deql.ranking.finish import ROUNDING, finish_users
from deql.ranking.kernels import SPARE, pack_left, pack_strips, scan_users
from deql.ranking.prior_scan import Factors, PriorScan
from deql.ranking.prior_term import PriorTerm

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    from deql.linalg.engines.torch_packed import DevicePacked
    from deql.ranking.quantised import QuantisedRows

__all__ = ["rank"]

Candidates = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int32], NDArray[np.int32]]
"""Sums, extras of a prior and columns, users × room, and how many each user has."""

_MORE_SPARE = 12
"""Runners-up beyond those without a prior: its part of a scan's scores is in float32."""

_USERS_PER_SLICE = 2**16
_CANDIDATE_BYTES = 2**28
"""What the candidates of one slice of users may take, and a prior's vectors of them."""

_STRIP_NUMBERS = 2**22
"""Numbers of P that are copied at once, though at least one strip: what is copied should still be in cache
when it is read."""

_WORK_PER_THREAD = 2**21
"""Multiplications below which another thread does not pay."""


def rank(
    precision: PackedSymmetric,
    gain: NDArray[np.float64],
    shift: NDArray[np.float64],
    matrix: csr_array,
    *,
    k: int,
    exclude_seen: bool = True,
    allowed: NDArray[np.bool_] | None = None,
    squares: NDArray[np.float64] | None = None,
    exact: bool = True,
    on_device: DevicePacked | None = None,
    rows: QuantisedRows | None = None,
    prior: PriorTerm | None = None,
    report: ProgressCallback | None = None,
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """The k best columns of X·W for each row of X, and their scores.

    Ties go to the lower column. Rows with fewer than k candidates end in ``NO_ITEM`` and NaN; so do
    rows without a history, whole. Memory beyond the result does not grow with the number of users.

    Parameters
    ----------
    precision, gain, shift
        W = P·diag(gain) + diag(shift), P positive definite. With gains and shifts of shape (models, n)
        several models that share P are ranked in one pass.
    matrix : csr_array
        Histories X, users × items, columns sorted within rows.
    k : int
        How many.
    exclude_seen : bool, default True
        Leave out what a row already has.
    allowed : ndarray of bool, optional
        Columns that may be returned.
    squares : ndarray of float64, users (or models × users), optional
        Becomes Σ (X·W)²_ui over the columns i that row u does not have. Every column must be allowed
        then, and what is seen excluded.
    exact : bool, default True
        Whether the scores must be exact to the last bit; the items are the same if not.
    on_device : DevicePacked, optional
        P once more: candidates are found there. What they are decided by does not change, so neither do
        items, nor exact scores.
    rows : QuantisedRows, optional
        The rows of P once more: much faster for a few histories on a large model. Items and exact scores
        stay the same. Not used with ``squares`` or ``on_device``, nor for numbers near the limits of floats.
    prior : PriorTerm, optional
        Adds left·rightᵀ·diag(scale) to W; scales of shape (models, n) for several models.
    report : callable, optional
        Called as ``report(done, total)``.

    Returns
    -------
    items, scores : ndarray, users × k (or models × users × k)

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.sparse import csr_array
    >>> P = PackedSymmetric.from_dense(np.array([[1.0, -0.5, -0.2], [-0.5, 1.0, 0.0], [-0.2, 0.0, 1.0]]), tile=3)
    >>> items, scores = rank(P, -np.ones(3), np.ones(3), csr_array([[1.0, 0.0, 0.0]]), k=2)
    >>> items.tolist(), scores.round(6).tolist()
    ([[1, 2]], [[0.5, 0.2]])
    """
    users, n = matrix.shape
    if not matrix.has_canonical_format:  # the kernels would write beside their arrays
        raise ValueError("histories must have their columns sorted within rows, each once")
    gains, shifts = np.atleast_2d(gain), np.atleast_2d(shift)
    if allowed is None:
        allowed = np.ones(n, bool)
    k = min(k, n)
    items = np.full((len(gains), users, k), NO_ITEM, np.int32)
    scores = np.full((len(gains), users, k), np.nan)
    sums = np.zeros((len(gains), 0)) if squares is None else np.atleast_2d(squares)
    factors = Factors.of(prior, len(gains))
    keep = k + SPARE + (_MORE_SPARE if factors.rank else 0)
    # All models' candidates, should no two want the same, and as many again as one wants; never more than all items.
    room = min((len(gains) + 1) * keep + 16, n + 1)
    # A candidate's sum, extra and column, and the user's row of X·left.
    each = (28 if factors.left.size else 20) * room + 4 * factors.rank
    per_slice = max(256, min(_USERS_PER_SLICE, _CANDIDATE_BYTES // each))
    slices = -(-users // per_slice)
    bounds = np.linspace(0, users, slices + 1).astype(int).tolist()
    with ThreadPoolExecutor(thread_count()) as pool:
        run = partial(run_slices, pool=pool)
        for done, (first, last) in enumerate(pairwise(bounds)):
            part = matrix if slices == 1 else matrix[first:last]
            told = None if report is None else partial(_report_slice, report, done, slices)
            best = items[:, first:last], scores[:, first:last]
            usable = rows is not None and squares is None and on_device is None
            if rows is not None and usable and rows.covers(gains, shifts, part, prior):
                rows.rank(run, gains, shifts, part, exclude_seen, allowed, factors, *best)
                if told is not None:
                    told(1, 1)
                continue
            asked = Asked(
                precision, gains, shifts, factors, part, part.data.astype(precision.dtype, copy=False), exclude_seen,
                allowed, keep,
            )  # fmt: skip
            scanned = PriorScan(run, factors, part, asked.values, elsewhere=on_device is not None)
            if on_device is None:
                candidates = _scan(run, asked, scanned, room, sums[:, first:last], told)
            else:
                from deql.ranking.torch_rank import Scan, scan

                squared = None if squares is None else sums[:, first:last]
                histories = part.indptr, part.indices, part.data
                candidates = scan(
                    Scan(on_device, gains, shifts, histories, keep, exclude_seen, allowed, squared, told, factors)
                )
            _finish(run, asked, scanned, exact, candidates, *best)
    return (items[0], scores[0]) if np.ndim(gain) == 1 else (items, scores)


def _report_slice(report: ProgressCallback, before: int, slices: int, done: int, total: int) -> None:
    report(before * total + done, slices * total)


class Asked(NamedTuple):
    """Which columns of which W are looked for, for the users of a slice; see :func:`rank`."""

    precision: PackedSymmetric
    gains: NDArray[np.float64]
    shifts: NDArray[np.float64]
    factors: Factors
    matrix: csr_array
    values: NDArray[np.floating]
    exclude_seen: bool
    allowed: NDArray[np.bool_]
    keep: int

    @property
    def histories(self) -> tuple[NDArray[np.integer], NDArray[np.integer], NDArray[np.floating]]:
        """The matrix as kernels take it, values in the type of P."""
        return self.matrix.indptr, self.matrix.indices, self.values

    def by_item(self, scanned: PriorScan) -> list[NDArray[np.float64]]:
        """Gains, scales and errors, so that all of an item's lie side by side."""
        # Read-only, as kernels are compiled once for one model, whose columns are its rows, and for several.
        of_models = self.gains, self.factors.scales, scanned.errors
        return [read_only(np.ascontiguousarray(one.T)) for one in of_models]


def _scan(
    run: Callable[..., None],
    asked: Asked,
    scanned: PriorScan,
    room: int,
    squares: NDArray[np.float64],
    report: ProgressCallback | None,
) -> Candidates:
    """Strips of P go by: threads copy them together, then divide the users, who all read the same copy."""
    precision, gains, shifts, factors, matrix, _, exclude_seen, allowed, keep = asked
    n, tile = precision.n, precision.tile
    if tile < n and tile % STRIP:
        raise ValueError(f"scoring needs tiles that are multiples of {STRIP}, got {tile}")
    models, users = len(gains), matrix.shape[0]
    stored = precision.stored()
    rows = np.flatnonzero(np.bincount(matrix.indices, minlength=n))
    place = np.zeros(n, np.int32)
    place[rows] = np.arange(len(rows))
    places = place[matrix.indices]
    at_once = max(1, min(tile, n, _STRIP_NUMBERS // max(1, len(rows)), scanned.columns) // STRIP)
    strips = np.zeros((at_once, len(rows) * STRIP), precision.dtype)
    left_strips = np.zeros((at_once, len(rows) * STRIP if factors.dense else 0), np.float32)
    cursor, upcoming = matrix.indptr[:-1].copy(), np.zeros(users, np.int32)
    bars = np.full((users, models), -np.inf)
    found_sums, found_items = np.empty((users, room)), np.empty((users, room), np.int32)
    found_extras = np.empty((users, room if factors.left.shape[1] else 0))
    found, limits = np.zeros(users, np.int32), np.full(users, min(2 * keep + 16, room), np.int32)
    row_bounds, user_bounds = even_bounds(len(rows), _workers(matrix)), _user_bounds(matrix)
    by_item = asked.by_item(scanned)
    low = 0
    while low < n:
        end = min(low + at_once * STRIP, n, low - low % tile + tile)
        if allowed[low:end].any():
            run(pack_strips, row_bounds, *stored, tile, rows, low, end - low, strips)
            if factors.dense:
                run(pack_left, row_bounds, factors.left, rows, low, end - low, left_strips)
            extras_low = scanned.reach(low, end)
            run(
                scan_users, user_bounds, low, end - low, strips, left_strips, gains, shifts, factors.scales,
                scanned.errors, *asked.histories, places, scanned.extras, extras_low, scanned.lengths,
                allowed, exclude_seen, keep, *by_item, cursor, upcoming, bars,
                found_sums, found_extras, found_items, found, limits, squares,
            )  # fmt: skip
        low = end
        if report is not None:
            report(low, n)
    return found_sums, found_extras, found_items, found


def _finish(
    run: Callable[..., None],
    asked: Asked,
    scanned: PriorScan,
    exact: bool,
    candidates: Candidates,
    items: NDArray[np.int32],
    scores: NDArray[np.float64],
) -> None:
    """Decide among the candidates, wherever they were found."""
    precision, gains, shifts, factors, matrix, _, exclude_seen, allowed, keep = asked
    # What the parts of any score of a user can add up to in size: |P_ji| ≤ √(P_jj·P_ii), as P is positive definite.
    roots = np.sqrt(abs(precision.diagonal()))
    sizes = abs(matrix) @ roots * abs(gains * roots).max(axis=1)[:, None]
    if not exclude_seen:
        sizes += abs(matrix).max(axis=1).toarray() * abs(shifts).max(axis=1)[:, None]
    counts = np.diff(matrix.indptr)
    ties = ROUNDING * (counts * (sizes + scanned.sizes) + (factors.rank / 8 + counts / 16 + 1) * scanned.sizes)
    run(
        finish_users, _user_bounds(matrix), *precision.stored(), gains, shifts, *factors, scanned.errors,
        *asked.histories, scanned.lengths, allowed, exclude_seen, keep, *asked.by_item(scanned), ties, exact,
        *candidates, items, scores,
    )  # fmt: skip


def _workers(matrix: csr_array) -> int:
    return max(1, min(thread_count(), matrix.nnz * matrix.shape[1] // _WORK_PER_THREAD))


def _user_bounds(matrix: csr_array) -> list[int]:
    """More slices of users than threads: one that is held up by other programs gets fewer."""
    workers = _workers(matrix)
    return even_bounds(matrix.shape[0], 4 * workers if workers > 1 else 1)
