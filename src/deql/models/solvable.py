"""What has no solution, said before the work."""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike, NDArray

from deql.data import Interactions
from deql.errors import DataError, NotPositiveDefiniteError, name_some

__all__ = ["check_size", "check_solvable_without_ridge"]


def check_solvable_without_ridge(data: Interactions, diagonal: NDArray[np.float64], dropout: float) -> None:
    """Say before the cubic work what would make A singular, and which items are at fault.

    With a ridge A is always positive definite. With dropout alone it is so unless a column is
    empty; without either it is S itself, which needs at least as many users as items and no two
    equal columns.
    """
    empty = np.flatnonzero(diagonal == 0)
    if empty.size:
        raise NotPositiveDefiniteError(
            f"{empty.size:,} item{'s have' if empty.size > 1 else ' has'} no interactions "
            f"({name_some(data.items[empty])}), so without a ridge there is no solution: "
            "set l2 above 0 or leave the items out",
            empty.tolist(),
        )
    if dropout > 0:
        return
    if data.n_users < data.n_items:
        raise NotPositiveDefiniteError(
            f"{data.n_users:,} users cannot determine {data.n_items:,} items ({name_some(data.items)}) "
            "without a ridge: set l2 above 0",
            range(data.n_items),
        )
    # Two equal columns have equal products with any vector, and others almost never have.
    marks = data.matrix.astype(np.float64).T @ np.random.default_rng(0).standard_normal(data.n_users)
    order = np.argsort(marks, kind="stable")
    same = np.flatnonzero(np.diff(marks[order]) == 0)
    if same.size:
        pair = [int(order[same[0]]), int(order[same[0] + 1])]
        raise NotPositiveDefiniteError(
            f"items {name_some(data.items[pair])} occur with exactly the same users, so without a ridge "
            "there is no single solution: set l2 above 0",
            pair,
        )


def check_size(data: Interactions, diagonal: NDArray[np.float64], dtype: DTypeLike) -> None:
    """Raise DataError if the squares of sums of squares pass the type's largest number."""
    if not diagonal.max() < np.sqrt(np.finfo(dtype).max):
        largest = name_some(data.items[[int(np.nan_to_num(diagonal, nan=np.inf).argmax())]])
        raise DataError(f"the values of item {largest} are too large: divide all values by one number")
