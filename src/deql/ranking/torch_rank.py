"""The best columns of X·W on a device, for models that share P.

Sums are made in float64, as in the host's memory, so what is found here can be decided there to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from deql._system.progress import Report
from deql.linalg.engines.torch_packed import DevicePacked
from deql.ranking.rank import NO_ITEM
from deql.ranking.torch_strips import SCRATCH, Rows, Triple, as_triple, batches, strips

__all__ = ["RUNNERS_UP", "Best", "find_best", "in_order", "rank", "scan"]

RUNNERS_UP = 4
"""Kept beside the k best: which of several equal ones a device keeps is its own affair."""

Made = TypeVar("Made")


class Best(NamedTuple):
    """Candidates of a batch, models × users × keep, in no order; those that are none have the score −∞."""

    scores: torch.Tensor
    sums: torch.Tensor
    items: torch.Tensor


def scan(
    precision: DevicePacked,
    gains: NDArray[np.float64],
    shifts: NDArray[np.float64],
    indptr: NDArray[Any],
    indices: NDArray[Any],
    values: NDArray[Any],
    *,
    keep: int,
    exclude_seen: bool,
    allowed: NDArray[np.bool_],
    squares: NDArray[np.float64] | None = None,
    report: Report | None = None,
    scratch: int = SCRATCH,
) -> tuple[NDArray[np.float64], NDArray[np.int32], NDArray[np.int32]]:
    """Columns that are among the best ``keep`` of any model, for each row of X.

    Parameters
    ----------
    precision, gains, shifts
        W = P·diag(gain) + diag(shift) for each of the models, gains and shifts models × n.
    indptr, indices, values : ndarray
        Histories X in compressed rows.
    keep : int
        How many of each model.
    exclude_seen : bool
        Leave out what a row already has.
    allowed : ndarray of bool
        Columns that may be returned.
    squares : ndarray of float64, models × users, optional
        Becomes Σ (X·W)²_ui over the columns i that row u does not have. Every column must be allowed
        then, and what is seen excluded.
    report : callable, optional
        Called as ``report(done, total)``.
    scratch : int
        Bytes to use on the device beside P.

    Returns
    -------
    sums, items : ndarray, users × room
        Σ_j x_j·P_ji and i of each candidate, in the order of columns.
    found : ndarray
        How many candidates each user has: none without a history.

    Raises
    ------
    DeviceError
        If the device's memory does not suffice for one user.

    Examples
    --------
    >>> from deql.linalg.packed import PackedSymmetric
    >>> P = np.array([[1.0, -0.5, -0.2], [-0.5, 1.0, 0.0], [-0.2, 0.0, 1.0]])
    >>> P = DevicePacked.from_host(PackedSymmetric.from_dense(P, tile=3), torch.device("cpu"))
    >>> history = np.array([0, 1]), np.array([0]), np.array([2.0])
    >>> scan(P, -np.ones((1, 3)), np.ones((1, 3)), *history, keep=1, exclude_seen=True, allowed=np.ones(3, bool))
    (array([[-1.]]), array([[1]], dtype=int32), array([1], dtype=int32))
    """
    n, users = precision.n, len(indptr) - 1
    room = min(len(gains) * keep, n)
    sums, items = np.empty((users, room)), np.empty((users, room), np.int32)
    found = np.zeros(users, np.int32)
    for first, last, candidates in find_best(
        precision, gains, shifts, (indptr, indices, values), partial(_unite, n=n, room=room),
        keep=keep, exclude_seen=exclude_seen, allowed=allowed, squares=squares, report=report, scratch=scratch,
    ):  # fmt: skip
        sums[first:last], items[first:last], found[first:last] = candidates
    found[np.diff(indptr) == 0] = 0
    return sums, items, found


def rank(
    precision: DevicePacked,
    gain: NDArray[np.float64],
    shift: NDArray[np.float64],
    indptr: NDArray[Any],
    indices: NDArray[Any],
    values: NDArray[Any],
    *,
    k: int,
    exclude_seen: bool = True,
    allowed: NDArray[np.bool_] | None = None,
    report: Report | None = None,
    scratch: int = SCRATCH,
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """The k best columns of X·W for each row of X, and their scores, with a device alone.

    As :func:`deql.ranking.rank.rank`, but scores are rounded as float64 sums are, and where more than
    ``RUNNERS_UP`` columns tie for the last places, which of them are in is the device's choice.

    Parameters
    ----------
    precision, gain, shift
        W = P·diag(gain) + diag(shift). With gains and shifts of shape (models, n) several models.
    indptr, indices, values : ndarray
        Histories X in compressed rows.
    k : int
        How many.
    exclude_seen : bool, default True
        Leave out what a row already has.
    allowed : ndarray of bool, optional
        Columns that may be returned.
    report : callable, optional
        Called as ``report(done, total)``.
    scratch : int
        Bytes to use on the device beside P.

    Returns
    -------
    items, scores : ndarray, users × k (or models × users × k)
        Filled up with ``NO_ITEM`` and NaN; rows without a history are so whole.

    Raises
    ------
    DeviceError
        If the device's memory does not suffice for one user.

    Examples
    --------
    >>> from deql.linalg.packed import PackedSymmetric
    >>> P = np.array([[1.0, -0.5, -0.2], [-0.5, 1.0, 0.0], [-0.2, 0.0, 1.0]])
    >>> P = DevicePacked.from_host(PackedSymmetric.from_dense(P, tile=3), torch.device("cpu"))
    >>> rank(P, -np.ones(3), np.ones(3), np.array([0, 1]), np.array([0]), np.array([2.0]), k=2)
    (array([[1, 2]], dtype=int32), array([[1. , 0.4]]))
    """
    n = precision.n
    gains, shifts = np.atleast_2d(gain), np.atleast_2d(shift)
    histories = as_triple((indptr, indices, values), n, "histories")
    k = min(k, n)
    shape = (len(gains), len(indptr) - 1, k)
    items, scores = np.empty(shape, np.int32), np.empty(shape)

    def finish(first: int, last: int, best: Best) -> tuple[NDArray[Any], NDArray[Any]]:
        listed, values = in_order(best, k, n)
        return listed.cpu().numpy(), values.cpu().numpy()

    for first, last, (listed, their_scores) in find_best(
        precision, gains, shifts, histories, finish, keep=k + RUNNERS_UP, exclude_seen=exclude_seen,
        allowed=np.ones(n, bool) if allowed is None else allowed, report=report, scratch=scratch,
    ):  # fmt: skip
        items[:, first:last], scores[:, first:last] = listed, their_scores
    missing = (items == n) | (np.diff(indptr) == 0)[:, None]
    items[missing], scores[missing] = NO_ITEM, np.nan
    return (items[0], scores[0]) if np.ndim(gain) == 1 else (items, scores)


def find_best(
    precision: DevicePacked,
    gains: NDArray[np.float64],
    shifts: NDArray[np.float64],
    histories: Triple,
    finish: Callable[[int, int, Best], Made],
    *,
    keep: int,
    exclude_seen: bool,
    allowed: NDArray[np.bool_],
    squares: NDArray[np.float64] | None = None,
    entries: NDArray[Any] | None = None,
    report: Report | None = None,
    scratch: int = SCRATCH,
) -> Iterator[tuple[int, int, Made]]:
    """``first``, ``last`` and what ``finish(first, last, best)`` makes of these users' candidates.

    ``entries`` is how many entries the users before each one have, where more than histories are needed.
    """

    def work(first: int, last: int, width: int) -> Made:
        best = _search(
            precision, gains, shifts, histories, keep, exclude_seen, allowed, squares, report, first, last, width
        )
        return finish(first, last, best)

    # A candidate is a score, a sum and an item, which are joined with others and sorted.
    return batches(precision, histories[0] if entries is None else entries, len(gains) * keep * 96, work, scratch)


def in_order(best: Best, k: int, n: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The k best items, the best first and of equal ones the lower, and their scores; n where there is none."""
    items, order = torch.where(best.scores > -torch.inf, best.items, n).sort(dim=2)
    # Adding 0 makes −0 a 0, which radix sorts tell apart.
    scores, by_score = (best.scores.gather(2, order) + 0.0).sort(dim=2, descending=True, stable=True)
    return items.gather(2, by_score)[..., :k], scores[..., :k]


def _search(
    precision: DevicePacked,
    gains: NDArray[np.float64],
    shifts: NDArray[np.float64],
    histories: Triple,
    keep: int,
    exclude_seen: bool,
    allowed: NDArray[np.bool_],
    squares: NDArray[np.float64] | None,
    report: Report | None,
    first: int,
    last: int,
    width: int,
) -> Best:
    """Candidates of users ``first`` … ``last − 1``: each strip's best are merged with the best before it."""
    n, device, users = precision.n, precision.device, last - first
    seen = Rows(histories, first, last, n, device, precision.data.dtype)
    # What is NaN is no candidate.
    factors = torch.from_numpy(np.where(allowed, gains, np.nan)).to(device)
    added = torch.from_numpy(np.array(shifts, np.float64)).to(device)
    shape = (len(gains), users, keep)
    best = Best(
        torch.full(shape, -torch.inf, dtype=torch.float64, device=device),
        torch.zeros(shape, dtype=torch.float64, device=device),
        torch.zeros(shape, dtype=torch.int64, device=device),
    )
    squared = torch.zeros(shape[:2], dtype=torch.float64, device=device)
    for low, high, sums in strips(precision, seen, width, allowed):
        rows, columns, values = seen.within(low, high)
        if exclude_seen:
            sums[rows, columns] = torch.nan
        for m in range(len(gains)):
            scores = sums * factors[m, low:high]
            if not exclude_seen:
                scores[rows, columns] += values * added[m, low + columns]
            if squares is not None:
                squared[m] += scores.square().nansum(dim=1)
            scores.nan_to_num_(nan=-torch.inf, posinf=torch.inf, neginf=-torch.inf)
            _merge(best, m, scores, sums, low)
        if report is not None:
            report(first * n + users * high, (len(histories[0]) - 1) * n)
    if squares is not None:
        squares[:, first:last] = squared.cpu().numpy()
    return best


def _merge(best: Best, m: int, scores: torch.Tensor, sums: torch.Tensor, low: int) -> None:
    """Keep the best of the best so far and of a strip, for one model."""
    keep = best.scores.shape[2]
    top, where = scores.topk(min(keep, scores.shape[1]), sorted=False)
    best.scores[m], kept = torch.cat([best.scores[m], top], dim=1).topk(keep, sorted=False)
    best.sums[m] = torch.cat([best.sums[m], sums.gather(1, where)], dim=1).gather(1, kept)
    best.items[m] = torch.cat([best.items[m], where + low], dim=1).gather(1, kept)


def _unite(
    first: int, last: int, best: Best, n: int, room: int
) -> tuple[NDArray[np.float64], NDArray[np.int32], NDArray[np.int32]]:
    """Candidates of all models in one list for each user, every item once, in the order of columns."""
    users = last - first
    items = torch.where(best.scores > -torch.inf, best.items, n).transpose(0, 1).reshape(users, -1)
    sums = best.sums.transpose(0, 1).reshape(users, -1)
    items, order = items.sort(dim=1)
    sums = sums.gather(1, order)
    items[:, 1:][items[:, 1:] == items[:, :-1]] = n
    items, order = items.sort(dim=1)
    found = (items < n).sum(dim=1)
    sums = sums.gather(1, order)
    return (
        sums[:, :room].cpu().numpy(),
        items[:, :room].int().cpu().numpy(),
        found.int().cpu().numpy(),
    )
