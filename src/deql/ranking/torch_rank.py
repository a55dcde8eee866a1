"""The best columns of X·W on a device, for models that share P.

Sums are made in float64, as in the host's memory, so what is found here can be decided there to the last bit.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from deql._system.progress import ProgressCallback
from deql.errors import DeviceError
from deql.linalg.engines.torch_gram import Triple
from deql.linalg.engines.torch_packed import DevicePacked

if TYPE_CHECKING:
    from deql.ranking.prior_scan import Factors

__all__ = ["SCRATCH", "DeviceHistories", "Scan", "batches", "scan", "strips"]

SCRATCH = 2**30
"""Bytes that scoring may take on a device beside P."""

_LEAST_COLUMNS = 64
_BYTES_PER_ENTRY = 64
"""An entry of a history with all its copies, while they are sorted."""

Made = TypeVar("Made")


class DeviceHistories:
    """Histories ``first`` … ``last − 1`` on a device, a sparse matrix in the order of columns.

    Parameters
    ----------
    matrix : indptr, indices, values
    first, last : int
    n : int
        Number of columns.
    device : torch.device
    dtype : torch.dtype
        Values are rounded to it, then kept in float64.

    Attributes
    ----------
    rows, columns, values : Tensor
        Each entry; rows count from ``first``.
    """

    def __init__(
        self, matrix: Triple, first: int, last: int, n: int, device: torch.device, dtype: torch.dtype = torch.float64
    ) -> None:
        indptr, indices, values = matrix
        part = slice(int(indptr[first]), int(indptr[last]))
        # Copies: what is given may be read-only, which tensors cannot be.
        self._starts = torch.from_numpy(np.array(indptr[first : last + 1] - indptr[first], np.int64)).to(device)
        self._indices = torch.from_numpy(np.array(indices[part], np.int64)).to(device)
        self._values = torch.from_numpy(np.array(values[part], np.float64)).to(device).to(dtype).double()
        self.shape = (last - first, n)
        order = torch.argsort(self._indices)
        self.rows = torch.repeat_interleave(self._starts.diff())[order]
        self.columns, self.values = self._indices[order], self._values[order]
        self._ends = np.concatenate([[0], np.cumsum(np.bincount(indices[part], minlength=n))])

    def within(self, low: int, high: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Rows, columns from ``low`` on, and values of the entries in columns ``low`` … ``high − 1``."""
        part = slice(self._ends[low], self._ends[high])
        return self.rows[part], self.columns[part] - low, self.values[part]

    def compressed(self) -> torch.Tensor:
        """The same as a matrix that can be multiplied."""
        with warnings.catch_warnings():
            # Torch warns that it may change how these are made, and that it does not check them.
            warnings.filterwarnings("ignore", "Sparse", UserWarning)
            return torch.sparse_csr_tensor(
                self._starts.int(), self._indices.int(), self._values, self.shape, check_invariants=False
            )


def strips(
    precision: DevicePacked, histories: DeviceHistories, width: int, wanted: NDArray[np.bool_]
) -> Iterator[tuple[int, int, torch.Tensor]]:
    """``low``, ``high`` and columns ``low`` … ``high − 1`` of X·P in float64, wherever one of them is wanted."""
    n, tile = precision.n, precision.tile
    matrix = histories.compressed()
    blocks: list[Any] = [block for _, block in precision.blocks()]
    room = torch.empty(n * width, dtype=torch.float64, device=precision.device)
    for index, left in enumerate(range(0, n, tile)):
        right = min(left + tile, n)
        for low in range(left, right, width):
            high = min(low + width, right)
            if wanted[low:high].any():
                strip = room[: n * (high - low)].view(n, high - low)
                # Rows above the block column are columns of earlier ones, by symmetry.
                for start, block in zip(range(0, left, tile), blocks, strict=False):
                    strip[start : start + tile] = block[low - start : high - start].T
                strip[left:] = blocks[index][:, low - left : high - left]
                yield low, high, matrix @ strip


def batches(
    precision: DevicePacked,
    entries: NDArray[Any],
    user_bytes: int,
    work: Callable[[int, int, int], Made],
    scratch: int = SCRATCH,
) -> Iterator[tuple[int, int, Made]]:
    """``first``, ``last`` and what ``work(first, last, width)`` made of these users, with strips of that width.

    Where the device's memory does not suffice, a batch is done again with half the memory, and so are
    the ones after it.

    Parameters
    ----------
    precision : DevicePacked
    entries : ndarray
        How many entries the users before each one have.
    user_bytes : int
        What a user takes beside entries and strips.
    work : callable
    scratch : int
        Bytes to use: half of them for a strip of P, half for the users.

    Raises
    ------
    DeviceError
        If the memory does not suffice for one user.
    """
    n, first, users = precision.n, 0, len(entries) - 1
    while first < users:
        width = min(n, precision.tile, max(_LEAST_COLUMNS, scratch // (16 * n)))
        # The sums of two strips, a model's scores, and a copy of these.
        each = user_bytes + 32 * width
        taken = np.asarray(entries, np.int64) * _BYTES_PER_ENTRY + np.arange(users + 1) * each
        last = max(first + 1, int(np.searchsorted(taken, taken[first] + scratch // 2, "right")) - 1)
        try:
            made = work(first, last, width)
        except torch.cuda.OutOfMemoryError:
            needs = 8 * n * width + int(taken[last] - taken[first])
        else:
            yield first, last, made
            first = last
            continue
        # Out here what the failed batch held is free.
        if precision.device.type == "cuda":
            torch.cuda.empty_cache()
        if last == first + 1 and width <= _LEAST_COLUMNS:
            raise DeviceError(
                f"{precision.device} has too little memory to score even one user, which takes about "
                f"{needs / 2**20:,.0f} MiB beside P: free some of it, or score without the device"
            )
        # A batch that took less than it might must shrink, too.
        scratch = min(scratch, needs) // 2


class Best(NamedTuple):
    """Candidates of a batch, models × users × keep, in no order; those that are none have the score −∞."""

    scores: torch.Tensor
    sums: torch.Tensor
    extras: torch.Tensor
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
    factors : Factors or None
        Of the prior that adds left·rightᵀ·diag(scale) to each W.
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
    factors: Factors | None = None


class DevicePrior:
    """Extras of some users, X·left·rightᵀ in float64, as a device makes them.

    Parameters
    ----------
    factors : Factors
    histories : DeviceHistories
    """

    def __init__(self, factors: Factors, histories: DeviceHistories) -> None:
        self._matrix, self._device = histories.compressed(), histories.columns.device
        self._left, self._right, self.scales = factors.left, factors.right, self._there(factors.scales)
        self._y = None if factors.dense else self._matrix @ self._there(self._left)

    def _there(self, array: NDArray[Any]) -> torch.Tensor:
        return torch.from_numpy(np.array(array)).to(self._device).double()

    def extras(self, low: int, high: int) -> torch.Tensor:
        """Those of columns ``low`` … ``high − 1``."""
        if self._y is None:
            return self._matrix @ self._there(self._left[:, low:high])
        return self._y @ self._there(self._right[low:high]).T


def scan(
    wanted: Scan, scratch: int = SCRATCH
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int32], NDArray[np.int32]]:
    """Columns that are among the best ``keep`` of any model, for each row of X.

    Parameters
    ----------
    wanted : Scan
    scratch : int
        Bytes to use on the device beside P.

    Returns
    -------
    sums, extras, items : ndarray, users × room
        Σ_j x_j·P_ji, the same sum of the prior's products (users × 0 without one) and i of each candidate, in the
        order of columns.
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
    (array([[-1.]]), array([], shape=(1, 0), dtype=float64), array([[1]], dtype=int32), array([1], dtype=int32))
    """
    n, indptr, candidates_each = wanted.precision.n, wanted.histories[0], len(wanted.gains) * wanted.keep
    users, room = len(indptr) - 1, min(candidates_each, n)
    sums, items = np.empty((users, room)), np.empty((users, room), np.int32)
    rank = 0 if wanted.factors is None else wanted.factors.rank
    extras = np.empty((users, room if wanted.factors is not None and wanted.factors.left.size else 0))
    found = np.zeros(users, np.int32)

    def work(first: int, last: int, width: int) -> tuple[NDArray[Any], ...]:
        return _unite(_search(wanted, first, last, width), n, room)

    # A candidate is a score, a sum, an extra and an item, which are joined with others and sorted.
    user_bytes = candidates_each * 128 + 8 * rank
    for first, last, candidates in batches(wanted.precision, indptr, user_bytes, work, scratch):
        sums[first:last], more, items[first:last], found[first:last] = candidates
        extras[first:last] = more[:, : extras.shape[1]]
    found[np.diff(indptr) == 0] = 0
    return sums, extras, items, found


def _search(wanted: Scan, first: int, last: int, width: int) -> Best:
    """Candidates of users ``first`` … ``last − 1``: each strip's best are merged with the best before it."""
    precision, gains, shifts, histories, keep, exclude_seen, allowed, squares, report, factors = wanted
    n, device, users = precision.n, precision.device, last - first
    seen = DeviceHistories(histories, first, last, n, device, precision.data.dtype)
    prior = DevicePrior(factors, seen) if factors is not None and factors.left.size else None
    # What is NaN is no candidate.
    weights = torch.from_numpy(np.where(allowed, gains, np.nan)).to(device)
    added = torch.from_numpy(np.array(shifts, np.float64)).to(device)
    shape = (len(gains), users, keep)
    best = Best(
        torch.full(shape, -torch.inf, dtype=torch.float64, device=device),
        torch.zeros(shape, dtype=torch.float64, device=device),
        torch.zeros(shape, dtype=torch.float64, device=device),
        torch.zeros(shape, dtype=torch.int64, device=device),
    )
    squared = torch.zeros(shape[:2], dtype=torch.float64, device=device)
    for low, high, sums in strips(precision, seen, width, allowed):
        rows, columns, values = seen.within(low, high)
        if exclude_seen:
            sums[rows, columns] = torch.nan
        extras = None if prior is None else prior.extras(low, high)
        for m in range(len(gains)):
            scores = sums * weights[m, low:high]
            if prior is not None and extras is not None:
                scores += extras * prior.scales[m, low:high]
            if not exclude_seen:
                scores[rows, columns] += values * added[m, low + columns]
            if squares is not None:
                squared[m] += scores.square().nansum(dim=1)
            scores.nan_to_num_(nan=-torch.inf, posinf=torch.inf, neginf=-torch.inf)
            _merge(best, m, scores, sums, extras, low)
        if report is not None:
            report(first * n + users * high, (len(histories[0]) - 1) * n)
    if squares is not None:
        squares[:, first:last] = squared.cpu().numpy()
    return best


def _merge(
    best: Best, m: int, scores: torch.Tensor, sums: torch.Tensor, extras: torch.Tensor | None, low: int
) -> None:
    """Keep the best of the best so far and of a strip, for one model."""
    keep = best.scores.shape[2]
    top, where = scores.topk(min(keep, scores.shape[1]), sorted=False)
    best.scores[m], kept = torch.cat([best.scores[m], top], dim=1).topk(keep, sorted=False)
    best.sums[m] = torch.cat([best.sums[m], sums.gather(1, where)], dim=1).gather(1, kept)
    if extras is not None:
        best.extras[m] = torch.cat([best.extras[m], extras.gather(1, where)], dim=1).gather(1, kept)
    best.items[m] = torch.cat([best.items[m], where + low], dim=1).gather(1, kept)


def _unite(best: Best, n: int, room: int) -> tuple[NDArray[Any], ...]:
    """Candidates of all models in one list for each user, every item once, in the order of columns."""
    users = best.items.shape[1]
    items = torch.where(best.scores > -torch.inf, best.items, n).transpose(0, 1).reshape(users, -1)
    items, first = items.sort(dim=1)
    items[:, 1:][items[:, 1:] == items[:, :-1]] = n
    items, then = items.sort(dim=1)
    order = first.gather(1, then)
    sums, extras = (
        part.transpose(0, 1).reshape(users, -1).gather(1, order)[:, :room].cpu().numpy()
        for part in (best.sums, best.extras)
    )
    found = (items < n).sum(dim=1)
    return sums, extras, items[:, :room].int().cpu().numpy(), found.int().cpu().numpy()
