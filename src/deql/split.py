"""Honest splits: what a model is judged on it has not seen."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from deql.errors import DataError, ParameterError
from deql.interactions import Interactions

__all__ = ["HeldOut", "Split", "split_strong"]


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Users to be judged on: what the model may see of them and what it is to find.

    Attributes
    ----------
    seen, held_out : Interactions
        Same users in the same order, same items.
    """

    seen: Interactions
    held_out: Interactions


@dataclass(frozen=True, eq=False)
class Split:
    """Training interactions and two sets of users to be judged on.

    Attributes
    ----------
    train : Interactions
    validation, test : HeldOut
    dropped : dict
        What the protocol leaves out: items that no training user has, interactions with them, and
        users who then have fewer than two items.
    """

    train: Interactions
    validation: HeldOut
    test: HeldOut
    dropped: dict[str, int]


def split_strong(
    data: Interactions,
    test_users: float = 0.1,
    validation_users: float = 0.1,
    held_out: float = 0.2,
    seed: int = 0,
) -> Split:
    """Strong generalisation: the users a model is judged on are not in its training data at all.

    Of each such user a share of the items is held out, at least one, and the others are the history
    that the model is given.

    Parameters
    ----------
    data : Interactions
    test_users, validation_users : float, default 0.1
        Shares of the users.
    held_out : float, default 0.2
        Share of each judged user's items to be found.
    seed : int, default 0
        The same seed gives the same split with every version of NumPy: only the generator's raw
        bits are used, which NumPy promises to keep.

    Returns
    -------
    Split

    Examples
    --------
    >>> import deql
    >>> split = deql.split_strong(deql.datasets.debian(), seed=1)
    >>> split.train.n_users, split.test.seen.n_users
    (13946, 1743)
    """
    for name, share in (("test_users", test_users), ("validation_users", validation_users), ("held_out", held_out)):
        if not 0 < share < 1:
            raise ParameterError(f"{name} must be a share between 0 and 1, got {share!r}")
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise ParameterError(f"seed must be a whole number from 0 up, got {seed!r}")
    n_test, n_validation = (round(share * data.n_users) for share in (test_users, validation_users))
    if n_test == 0 or n_validation == 0 or n_test + n_validation >= data.n_users:
        raise DataError(
            f"{data.n_users:,} users cannot be split into {n_test} test, {n_validation} validation and the rest"
        )
    bits = np.random.PCG64(seed)
    order = np.argsort(bits.random_raw(data.n_users), kind="stable")
    groups = np.split(order, [n_test, n_test + n_validation])
    test_rows, validation_rows, train_rows = (np.sort(group) for group in groups)

    known = np.unique(data.matrix[train_rows].indices)
    dropped = {"items": data.n_items - len(known), "interactions": 0, "users": 0}

    def judged(rows: NDArray[np.int64]) -> HeldOut:
        whole = data.take_users(rows)
        part = whole.take_items(known)
        enough = np.diff(part.matrix.indptr) >= 2
        part = part.take_users(enough)
        dropped["interactions"] += whole.n_interactions - part.n_interactions
        dropped["users"] += int(np.count_nonzero(~enough))
        hidden = _hide(part.matrix, held_out, bits.random_raw(part.n_interactions))
        return HeldOut(part.keep(~hidden), part.keep(hidden))

    train = data.take_users(train_rows).take_items(known)
    test = judged(test_rows)
    return Split(train, judged(validation_rows), test, dropped)


def _hide(matrix: csr_array, share: float, keys: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Mark a share of each row's entries, at least one and not all: those with the smallest keys."""
    sizes = np.diff(matrix.indptr)
    rows = np.repeat(np.arange(len(sizes)), sizes)
    order = np.lexsort((keys, rows))
    position = np.arange(matrix.nnz) - matrix.indptr[:-1][rows]
    counts = np.clip(np.round(share * sizes).astype(np.int64), 1, sizes - 1)
    hidden = np.zeros(matrix.nnz, bool)
    hidden[order] = position < counts[rows]
    return hidden
