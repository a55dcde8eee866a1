"""Every user tested once: the users cut into folds, each of them the test of one split."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from deql._system.checks import check_whole
from deql.data import Interactions, as_interactions
from deql.data.interactions import InteractionsLike
from deql.errors import DataError
from deql.split.parts import Split
from deql.split.protocols import check_share, new_users

__all__ = ["k_fold"]


def k_fold(
    data: InteractionsLike, folds: int = 5, validation_users: float = 0.1, held_out: float = 0.2, seed: int = 0
) -> Iterator[Split]:
    """Strong generalisation with every user tested exactly once: a split for each fold of the users.

    Splits are made one at a time, as they are asked for.

    Parameters
    ----------
    data : Interactions, sparse matrix or frame
    folds : int, default 5
        How many, two or more.
    validation_users : float, default 0.1
        Share of all users who validate in each split; they are the test of another. With 0 there is no validation part.
    held_out : float, default 0.2
        Share of each evaluated user's items to be found.
    seed : int, default 0
        The same seed gives the same splits with every version of NumPy.

    Yields
    ------
    Split
        As of :func:`deql.split_strong`; ``parameters["fold"]`` counts from 1.

    Examples
    --------
    >>> import deql
    >>> splits = deql.k_fold(deql.datasets.debian(), folds=4)
    >>> [split.test.seen.n_users for split in splits]
    [4358, 4358, 4358, 4358]
    """
    data = as_interactions(data)
    folds, seed = check_whole("folds", folds, least=2), check_whole("seed", seed, least=0)
    check_share("held_out", held_out)
    if isinstance(validation_users, bool) or validation_users != 0:
        check_share("validation_users", validation_users)
    n_validation = round(validation_users * data.n_users)
    largest = -(-data.n_users // folds)
    if data.n_users < folds or (n_validation == 0) != (validation_users == 0) or largest + n_validation >= data.n_users:
        raise DataError(
            f"{data.n_users:,} users cannot be split into {folds:,} folds with {n_validation:,} validation users and "
            "the rest: choose fewer folds or another share"
        )
    return _splits(data, folds, n_validation, validation_users, held_out, seed)


def _splits(
    data: Interactions, folds: int, n_validation: int, validation_users: float, held_out: float, seed: int
) -> Iterator[Split]:
    bits = np.random.PCG64(seed)
    order = np.argsort(bits.random_raw(data.n_users), kind="stable")
    first = 0
    for number, fold in enumerate(np.array_split(order, folds), start=1):
        ring = np.roll(order, -first)  # those who validate come after the fold, so that each fold has others
        groups = np.split(ring, [len(fold), len(fold) + n_validation])
        test, validation, train = (np.sort(group) for group in groups)
        parts = new_users(data, train, validation, test, held_out, bits)
        parameters = {"folds": folds, "fold": number, "validation_users": validation_users, "held_out": held_out}
        yield Split(*parts, "k-fold", seed, parameters)
        first += len(fold)
