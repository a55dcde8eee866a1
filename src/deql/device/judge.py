"""Evaluation where there are torch and NumPy alone: the numbers of :func:`deql.evaluate`, from plain arrays."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from deql.device.packed import DevicePacked
from deql.device.rank import RUNNERS_UP, Best, find_best, in_order
from deql.device.strips import SCRATCH, Rows, Triple, as_triple, batches, strips
from deql.errors import DataError
from deql.evaluation.metrics import parse_metrics
from deql.evaluation.result import Evaluation
from deql.evaluation.tally import Tally
from deql.progress import Report
from deql.ranking import NO_ITEM

__all__ = ["judge"]


def judge(
    precision: DevicePacked,
    gains: NDArray[np.float64],
    shifts: NDArray[np.float64],
    seen: Triple,
    held_out: Triple,
    metrics: Any = ("recall@20", "ndcg@20"),
    *,
    item_counts: NDArray[np.int64],
    n_users: int,
    report: Report | None = None,
    scratch: int = SCRATCH,
) -> list[Evaluation]:
    """Judge models that share P on held-out interactions.

    Parameters
    ----------
    precision, gains, shifts
        W = P·diag(gain) + diag(shift) for each of the models, gains and shifts models × n.
    seen, held_out : indptr, indices, values
        Users × items in compressed rows. Users with nothing held out are left out and counted; those with
        nothing seen are recommended what is popular.
    metrics : str or sequence of str
        As those of :func:`deql.evaluate`.
    item_counts : ndarray of int64
        How many training users have each item.
    n_users : int
        How many training users there are.
    report : callable, optional
        Called as ``report(done, total)``.
    scratch : int
        Bytes to use on the device beside P.

    Returns
    -------
    list of Evaluation
        One for each model; its users are numbers of rows.

    Raises
    ------
    DeviceError
        If the device's memory does not suffice for one user.

    Examples
    --------
    >>> from deql.precision import PackedSymmetric
    >>> P = np.array([[1.0, -0.5, -0.2], [-0.5, 1.0, 0.0], [-0.2, 0.0, 1.0]])
    >>> P = DevicePacked.from_host(PackedSymmetric.from_dense(P, tile=3), torch.device("cpu"))
    >>> seen = np.array([0, 1]), np.array([0]), np.array([1.0])
    >>> held_out = np.array([0, 1]), np.array([2]), np.array([1.0])
    >>> found = judge(P, -np.ones(3), np.ones(3), seen, held_out, "mrr@2", item_counts=np.array([3, 2, 1]), n_users=3)
    >>> found[0].means
    {'mrr@2': 0.5}
    """
    n = precision.n
    wanted = parse_metrics(metrics)
    gains, shifts = np.atleast_2d(gains), np.atleast_2d(shifts)
    seen = as_triple(seen, n, "what is seen")
    held_out = as_triple(held_out, n, "what is held out", len(seen[0]) - 1)
    judged = np.diff(held_out[0]) > 0
    if not judged.any():
        raise DataError("no user has anything held out, so there is nothing to evaluate")
    seen, held_out = _take(seen, judged), _take(held_out, judged)
    entries = seen[0] + held_out[0]
    tallies = [Tally(wanted, np.diff(held_out[0]), item_counts, n_users) for _ in gains]
    k = min(n, max(1, *(k for _, k in wanted.values())))
    popular = np.argsort(-item_counts, kind="stable")[:k]
    for first, last, (columns, hits) in find_best(
        precision, gains, shifts, seen, partial(_find_hits, seen=seen, held_out=held_out, popular=popular, n=n),
        keep=k + RUNNERS_UP, exclude_seen=True, allowed=np.ones(n, bool), entries=entries,
        report=report, scratch=scratch,
    ):  # fmt: skip
        for m, tally in enumerate(tallies):
            tally.add(slice(first, last), columns[m], hits[m])
    if "mse" in wanted:
        work = partial(_squared_errors, precision, gains, seen, held_out)
        for first, last, errors in batches(precision, entries, 0, work, scratch):
            for m, tally in enumerate(tallies):
                tally.add_errors(slice(first, last), errors[m])
    users, skipped = np.flatnonzero(judged), int(np.count_nonzero(~judged))
    return [Evaluation(*tally.finish(len(seen[1])), users, skipped) for tally in tallies]


def _take(matrix: Triple, chosen: NDArray[np.bool_]) -> Triple:
    """The chosen rows."""
    indptr, indices, values = matrix
    sizes = np.diff(indptr)
    kept = np.repeat(chosen, sizes)
    return np.concatenate([[0], np.cumsum(sizes[chosen], dtype=np.int64)]), indices[kept], values[kept]


def _find_hits(
    first: int, last: int, best: Best, seen: Triple, held_out: Triple, popular: NDArray[np.int64], n: int
) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """The lists, models × users × k, and which of their items were held out."""
    k, device = len(popular), best.items.device
    items, _ = in_order(best, k, n)
    cold = torch.from_numpy(np.diff(seen[0][first : last + 1]) == 0).to(device)
    items[:, cold] = torch.from_numpy(popular).to(device)
    # Entries as row·(n + 1) + column: n, which stands for no item, is in no row.
    there = Rows(held_out, first, last, n, device)
    keys = (there.rows * (n + 1) + there.columns).sort().values
    asked = torch.arange(last - first, device=device)[:, None] * (n + 1) + items
    place = torch.searchsorted(keys, asked).clamp_(max=len(keys) - 1)
    hits = keys[place] == asked
    items[items == n] = NO_ITEM
    return items.int().cpu().numpy(), hits.cpu().numpy()


def _squared_errors(
    precision: DevicePacked,
    gains: NDArray[np.float64],
    seen: Triple,
    held_out: Triple,
    first: int,
    last: int,
    width: int,
) -> NDArray[np.float64]:
    """Σ (r_i − s_i)² over the columns i that a user does not have, models × users, where r is what is held out."""
    n, device = precision.n, precision.device
    had = Rows(seen, first, last, n, device, precision.data.dtype)
    truth = Rows(held_out, first, last, n, device)
    factors = torch.from_numpy(np.array(gains, np.float64)).to(device)
    errors = torch.zeros((len(gains), last - first), dtype=torch.float64, device=device)
    for low, high, sums in strips(precision, had, width, np.ones(n, bool)):
        rows, columns, values = truth.within(low, high)
        sums[had.within(low, high)[:2]] = torch.nan
        for m in range(len(gains)):
            scores = sums * factors[m, low:high]
            scores[rows, columns] -= values
            errors[m] += scores.square().nansum(dim=1)
    return errors.cpu().numpy()
