"""The best columns of X·W on a device, for models that share P.

Sums are made in float64, as in the host's memory, so what is found here can be decided there to the last bit.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from deql._system.progress import ProgressCallback
from deql.linalg.engines.torch_gram import Triple
from deql.linalg.engines.torch_packed import DevicePacked
from deql.ranking.torch_strips import SCRATCH, DeviceHistories, batches, strips

__all__ = ["Scan", "scan"]


class Best(NamedTuple):
    """Candidates of a batch, models × users × keep, in no order; those that are none have the score −∞."""

    scores: torch.Tensor
    sums: torch.Tensor
    items: torch.Tensor


class Scan(NamedTuple):
    """Which columns are looked for.

    Attributes
    ----------
    precision, gains, shifts
        W = P·diag(gain) + diag(shift) for each of the models, gains and shifts models × n.
    histories : tuple of ndarray
        X in compressed rows: indptr, indices, values.
    keep : int
        How many of each model.
    exclude_seen : bool
        Leave out what a row already has.
    allowed : ndarray of bool
        Columns that may be returned.
    squares : ndarray of float64, models × users, or None
        Becomes Σ (X·W)²_ui over the columns i that row u does not have. Every column must be allowed
        then, and what is seen excluded.
    report : callable or None
        Called as ``report(done, total)``.
    """

    precision: DevicePacked
    gains: NDArray[np.float64]
    shifts: NDArray[np.float64]
    histories: Triple
    keep: int
    exclude_seen: bool
    allowed: NDArray[np.bool_]
    squares: NDArray[np.float64] | None = None
    report: ProgressCallback | None = None


def scan(wanted: Scan, scratch: int = SCRATCH) -> tuple[NDArray[np.float64], NDArray[np.int32], NDArray[np.int32]]:
    """Columns that are among the best ``keep`` of any model, for each row of X.

    Parameters
    ----------
    wanted : Scan
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
    >>> scan(Scan(P, -np.ones((1, 3)), np.ones((1, 3)), history, 1, True, np.ones(3, bool)))
    (array([[-1.]]), array([[1]], dtype=int32), array([1], dtype=int32))
    """
    n, indptr, candidates_each = wanted.precision.n, wanted.histories[0], len(wanted.gains) * wanted.keep
    users, room = len(indptr) - 1, min(candidates_each, n)
    sums, items = np.empty((users, room)), np.empty((users, room), np.int32)
    found = np.zeros(users, np.int32)

    def work(first: int, last: int, width: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        return _unite(_search(wanted, first, last, width), n, room)

    # A candidate is a score, a sum and an item, which are joined with others and sorted.
    for first, last, candidates in batches(wanted.precision, indptr, candidates_each * 96, work, scratch):
        sums[first:last], items[first:last], found[first:last] = candidates
    found[np.diff(indptr) == 0] = 0
    return sums, items, found


def _search(wanted: Scan, first: int, last: int, width: int) -> Best:
    """Candidates of users ``first`` … ``last − 1``: each strip's best are merged with the best before it."""
    precision, gains, shifts, histories, keep, exclude_seen, allowed, squares, report = wanted
    n, device, users = precision.n, precision.device, last - first
    seen = DeviceHistories(histories, first, last, n, device, precision.data.dtype)
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


def _unite(best: Best, n: int, room: int) -> tuple[NDArray[np.float64], NDArray[np.int32], NDArray[np.int32]]:
    """Candidates of all models in one list for each user, every item once, in the order of columns."""
    users = best.items.shape[1]
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
