"""Strong generalisation: users to evaluate on are not in the training data."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from deql._system.checks import check_whole
from deql.data import Interactions, as_interactions
from deql.errors import DataError, Setting
from deql.split.draw import check_share, hide
from deql.split.parts import HeldOut, Split

__all__ = ["hold_out_users", "split_strong"]

_VALIDATION_SHARE, _LEAST_USERS = 0.1, 10


def split_strong(
    data: Interactions,
    test_users: float = 0.1,
    validation_users: float = 0.1,
    held_out: float = 0.2,
    seed: int = 0,
) -> Split:
    """Strong generalisation: the users a model is evaluated on are not in its training data at all.

    Of each such user a share of the items is held out, at least one, and the others are the history
    that the model is given.

    Parameters
    ----------
    data : Interactions
    test_users, validation_users : float, default 0.1
        Shares of the users. With ``validation_users=0`` there is no validation part.
    held_out : float, default 0.2
        Share of each such user's items to be found.
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
    parameters = {"test_users": test_users, "validation_users": validation_users, "held_out": held_out}
    for name, share in parameters.items():
        if name != "validation_users" or isinstance(share, bool) or share != 0:
            check_share(name, share)
    seed = check_whole("seed", seed, least=0)
    data = as_interactions(data)
    n_test, n_validation = (round(share * data.n_users) for share in (test_users, validation_users))
    if n_test == 0 or (n_validation == 0) != (validation_users == 0) or n_test + n_validation >= data.n_users:
        raise DataError(
            f"{data.n_users:,} users cannot be split into {n_test:,} test, {n_validation:,} validation and the rest: "
            "choose other shares"
        )
    bits = np.random.PCG64(seed)
    order = np.argsort(bits.random_raw(data.n_users), kind="stable")
    groups = np.split(order, [n_test, n_test + n_validation])
    test_rows, validation_rows, train_rows = (np.sort(group) for group in groups)

    known = np.unique(data.matrix[train_rows].indices)
    dropped = {"items": data.n_items - len(known), "interactions": 0, "users": 0}

    def evaluated(rows: NDArray[np.int64]) -> HeldOut:
        whole = data.take_users(rows)
        part = whole.take_items(known)
        enough = np.diff(part.matrix.indptr) >= 2
        part = part.take_users(enough)
        dropped["interactions"] += whole.n_interactions - part.n_interactions
        dropped["users"] += int(np.count_nonzero(~enough))
        hidden = hide(part.matrix, held_out, bits.random_raw(part.n_interactions))
        return HeldOut(part.keep(~hidden), part.keep(hidden))

    train = data.take_users(train_rows).take_items(known)
    test = evaluated(test_rows)
    validation = evaluated(validation_rows) if n_validation else None
    if not test.seen.n_users:
        raise DataError(
            "no test user has two items that train has too, one to see and one to find: "
            "leave out short histories with ",
            Setting("min_items_per_user"),
            ", or use a weak split",
        )
    return Split(train, validation, test, dropped, "strong", seed, parameters)


def hold_out_users(data: Interactions, seed: int) -> tuple[Interactions, HeldOut]:
    """Training and validation data of a table that is not split: a tenth of the users validate.

    For what is chosen by validation: hyper-parameters, or when to stop early.

    Raises
    ------
    DataError
        If there are too few users, or none of those held out has an item to see and one to find.

    Examples
    --------
    >>> import deql
    >>> train, validation = hold_out_users(deql.datasets.debian(), seed=0)
    >>> train.n_users, validation.seen.n_users
    (15689, 1743)
    """
    if data.n_users < _LEAST_USERS:
        raise DataError(f"{data.n_users:,} users are too few to choose on: tuning needs at least {_LEAST_USERS}")
    try:
        split = split_strong(data, _VALIDATION_SHARE, validation_users=0, seed=seed)
    except DataError:
        raise DataError(
            "none of the users that were held out has two items that others have too, one to see and one to find: "
            "leave out short histories with ",
            Setting("min_items_per_user"),
        ) from None
    return split.train, split.test
