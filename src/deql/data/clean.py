"""Cleaning: weak signals, rare items and short histories go, and every step says what it took away."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from deql.data.interactions import Interactions, Step, as_interactions
from deql.errors import DataError, ParameterError

__all__ = ["clean", "describe_steps"]


def clean(
    data: Interactions,
    *,
    min_weight: float | None = None,
    binary: bool = False,
    min_users_per_item: int | None = None,
    min_items_per_user: int | None = None,
    k_core: int | None = None,
) -> Interactions:
    """Remove what is too weak or too rare, in the order of the parameters below.

    Users and items that are left without interactions go with the step that emptied them; those that
    came without any go first, as a step of their own.

    Parameters
    ----------
    data : Interactions
    min_weight : float, optional
        Keep values of at least this much: 4 turns ratings up to 5 into "liked it".
    binary : bool, default False
        Set every value to 1.
    min_users_per_item : int, optional
        Keep items that at least so many users have. One pass.
    min_items_per_user : int, optional
        Then keep users with at least so many items. One pass, so an item may fall below its own minimum again.
    k_core : int, optional
        Repeat both with the same number until every user and every item has at least so many.

    Returns
    -------
    Interactions
        Its ``steps`` are those of ``data`` and one for each thing done.

    Examples
    --------
    >>> import deql
    >>> data = deql.Interactions.from_pairs(list("aabbc"), ["tea", "jam", "tea", "jam", "egg"], [5, 4, 4, 4, 2])
    >>> liked = clean(data, min_weight=4, binary=True)
    >>> liked
    Interactions(2 users × 2 items, 4 interactions)
    >>> [step.what for step in liked.steps]
    ['values below 4 removed', 'every value set to 1']
    """
    data = as_interactions(data)
    _check(min_weight, min_users_per_item=min_users_per_item, min_items_per_user=min_items_per_user, k_core=k_core)
    counts = np.diff(data.matrix.indptr), np.bincount(data.matrix.indices, minlength=data.n_items)
    if not all(count.all() for count in counts):
        data = _keep(data, None, "users and items without interactions removed")
    if min_weight is not None:
        data = _keep(data, data.matrix.data >= min_weight, f"values below {min_weight:g} removed")
    if binary:
        matrix = data.matrix
        ones = csr_array((np.ones(matrix.nnz, np.float32), matrix.indices, matrix.indptr), shape=matrix.shape)
        data = _after(replace(data, matrix=ones), "every value set to 1")
    if min_users_per_item is not None:
        users = np.bincount(data.matrix.indices, minlength=data.n_items)
        enough = (users >= min_users_per_item)[data.matrix.indices]
        data = _keep(data, enough, f"items with fewer than {min_users_per_item:,} users removed")
    if min_items_per_user is not None:
        items = np.diff(data.matrix.indptr)
        enough = np.repeat(items >= min_items_per_user, items)
        data = _keep(data, enough, f"users with fewer than {min_items_per_user:,} items removed")
    if k_core is not None:
        data = _keep(data, _in_core(data.matrix, k_core), f"{k_core}-core kept")
    return data


def describe_steps(steps: Iterable[Step]) -> list[dict[str, Any]]:
    """What each step left, and what it removed relative to the step before (None for the first).

    Examples
    --------
    >>> rows = describe_steps([Step("read", 3, 3, 5), Step("values below 4 removed", 2, 2, 4)])
    >>> rows[1]["removed_interactions"], rows[1]["users"]
    (1, 2)
    """
    rows: list[dict[str, Any]] = []
    names = ("users", "items", "interactions")
    before: Step | None = None
    for step in steps:
        left = {name: getattr(step, name) for name in names}
        removed = {f"removed_{name}": None if before is None else getattr(before, name) - left[name] for name in names}
        rows.append({"what": step.what, **left, **removed})
        before = step
    return rows


def _check(min_weight: float | None, **minima: int | None) -> None:
    number = isinstance(min_weight, int | float | np.number) and not isinstance(min_weight, bool)
    if min_weight is not None and not (number and math.isfinite(min_weight)):
        raise ParameterError(f"min_weight must be a finite number, got {min_weight!r}", parameter="min_weight")
    for name, value in minima.items():
        whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
        if value is not None and not (whole and value >= 1):
            raise ParameterError(f"{name} must be a whole number from 1 up, got {value!r}", parameter=name)


def _after(data: Interactions, what: str) -> Interactions:
    return replace(data, steps=(*data.steps, Step(what, data.n_users, data.n_items, data.n_interactions)))


def _keep(data: Interactions, mask: NDArray[np.bool_] | None, what: str) -> Interactions:
    """The marked interactions (all without a mask), and only the users and items that have any."""
    kept = data if mask is None or mask.all() else data.keep(mask)
    if not kept.n_interactions:
        raise DataError(f"nothing is left after the step “{what}”, which had {data.n_interactions:,} interactions")
    return _after(kept.without_empty(), what)


def _in_core(matrix: csr_array, k: int) -> NDArray[np.bool_]:
    """Which interactions are in the k-core: peeling by counts, each interaction looked at no more than twice."""
    by_item = csr_array((np.ones(matrix.nnz, np.int8), matrix.indices, matrix.indptr), shape=matrix.shape).T.tocsr()
    sides = ((matrix.indptr, matrix.indices), (by_item.indptr, by_item.indices))
    counts = [np.diff(indptr).astype(np.int64) for indptr, _ in sides]
    alive = [np.ones(len(count), bool) for count in counts]
    side, settled = 0, 0
    while settled < 2:  # both sides in turn found nothing to remove
        falling = np.flatnonzero(alive[side] & (counts[side] < k))
        settled = 0 if falling.size else settled + 1
        alive[side][falling] = False
        touched = _entries(*sides[side], falling)
        counts[1 - side] -= np.bincount(touched, minlength=len(counts[1 - side]))
        side = 1 - side
    users, items = alive
    return np.asarray(np.repeat(users, np.diff(matrix.indptr)) & items[matrix.indices])


def _entries(indptr: NDArray[Any], indices: NDArray[Any], rows: NDArray[np.intp]) -> NDArray[Any]:
    """Column numbers in the given rows, one after the other."""
    sizes = (indptr[rows + 1] - indptr[rows]).astype(np.int64)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    return np.asarray(indices[np.arange(starts[-1]) + np.repeat(indptr[rows] - starts[:-1], sizes)])
