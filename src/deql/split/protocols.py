"""The protocols: users held out whole (strong), a share of each user (weak), or what came last (leave-last).

Chance is only the raw bits of the generator, which NumPy promises to keep.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from deql._system.checks import check_whole
from deql.data import Interactions, as_interactions
from deql.data.interactions import InteractionsLike
from deql.data.moments import check_times
from deql.errors import DataError, ParameterError, Setting
from deql.split.parts import HeldOut, Split

__all__ = [
    "check_share",
    "hide",
    "hold_out_users",
    "new_users",
    "places_from_end",
    "split_leave_last",
    "split_strong",
    "split_weak",
    "within_users",
]

_VALIDATION_SHARE, _LEAST_USERS = 0.1, 10

Mask = NDArray[np.bool_]

_AT_A_TIME = 2**20


def split_strong(
    data: InteractionsLike,
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
    data : Interactions, sparse matrix or frame
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

    train, validation, test, dropped = new_users(data, train_rows, validation_rows, test_rows, held_out, bits)
    return Split(train, validation, test, dropped, "strong", seed, parameters)


def new_users(
    data: Interactions,
    train_rows: NDArray[np.int64],
    validation_rows: NDArray[np.int64],
    test_rows: NDArray[np.int64],
    held_out: float,
    bits: np.random.PCG64,
) -> tuple[Interactions, HeldOut | None, HeldOut, dict[str, int]]:
    """The parts of a split in which those who are evaluated are not in train, and what is dropped; rows ascend."""
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
    validation = evaluated(validation_rows) if len(validation_rows) else None
    if not test.seen.n_users:
        raise DataError(
            "no test user has two items that train has too, one to see and one to find: "
            "leave out short histories with ",
            Setting("min_items_per_user"),
            ", or use a weak split",
        )
    return train, validation, test, dropped


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


def split_weak(data: InteractionsLike, held_out: float = 0.2, validation: float = 0.1, seed: int = 0) -> Split:
    """Weak generalisation: every user is in the training data, and some interactions of each are held out.

    The test is evaluated with everything else of the user in sight, validation's interactions included;
    validation with train in sight. Users with fewer than two interactions stay in train.

    Parameters
    ----------
    data : Interactions, sparse matrix or frame
    held_out : float, default 0.2
        Share of each user's interactions to be found in the test, at least one and not all.
    validation : float, default 0.1
        Share of what then remains of each user, to be found in validation, at least one and not all. With 0 there
        is no validation part.
    seed : int, default 0
        The same seed gives the same split with every version of NumPy.

    Returns
    -------
    Split
        ``dropped`` counts the items that train does not have, the held-out interactions with them, and the
        users who then have nothing to be found in the test; these users stay in train.

    Examples
    --------
    >>> import deql
    >>> split = split_weak(deql.datasets.debian())
    >>> split.train.n_users, split.test.seen.n_users
    (17432, 17425)
    """
    data = as_interactions(data)
    check_share("held_out", held_out)
    if isinstance(validation, bool) or validation != 0:
        check_share("validation", validation)
    seed = check_whole("seed", seed, least=0)
    bits = np.random.PCG64(seed)
    in_test = hide(data.matrix, held_out, bits.random_raw(data.n_interactions))
    in_validation = None
    if validation:
        rest = data.keep(~in_test)
        in_validation = np.zeros(data.n_interactions, bool)
        in_validation[~in_test] = hide(rest.matrix, validation, bits.random_raw(rest.n_interactions))
    parameters = {"held_out": held_out, "validation": validation}
    return within_users(data, in_test, in_validation, "weak", seed, parameters)


def split_leave_last(data: InteractionsLike, test: int = 1, validation: int = 1) -> Split:
    """Leave-last: each user's latest interactions are to be found, from the earlier ones.

    Of two interactions at the same time, the one with the later item (in the order of ``data.items``)
    counts as later. Users with too few interactions for all three parts stay in train.

    Parameters
    ----------
    data : Interactions or frame
        With times; of a frame the column is found by common names.
    test, validation : int, default 1
        How many of each user's interactions: the last are the test, those before them validation. With
        ``validation=0`` there is no validation part.

    Returns
    -------
    Split
        ``dropped`` as in :func:`split_weak`.

    Examples
    --------
    >>> import numpy as np, deql
    >>> from dataclasses import replace
    >>> data = deql.Interactions.from_pairs(list("aaabb"), ["egg", "jam", "tea", "jam", "tea"])
    >>> data = replace(data, times=np.array([3.0, 1.0, 2.0, 1.0, 2.0]))
    >>> split = split_leave_last(data, validation=0)
    >>> split.test.held_out.history("b"), split.dropped
    (['tea'], {'items': 1, 'interactions': 1, 'users': 1})
    """
    check_whole("test", test)
    check_whole("validation", validation, least=0)
    data = as_interactions(data, time=True)
    from_end = places_from_end(data.matrix, check_times(data, "leave-last"))
    sizes = np.diff(data.matrix.indptr)
    enough = np.repeat(sizes > test + validation, sizes)
    in_test = enough & (from_end <= test)
    in_validation = enough & ~in_test & (from_end <= test + validation) if validation else None
    return within_users(data, in_test, in_validation, "leave-last", None, {"test": test, "validation": validation})


def places_from_end(matrix: csr_array, when: NDArray[Any]) -> NDArray[np.int64]:
    """Of each stored value its place among those of its row by ``when``: the latest is 1, the one before it 2.

    Examples
    --------
    >>> places_from_end(csr_array([[1.0, 1.0, 1.0], [0.0, 1.0, 0.0]]), np.array([5.0, 9.0, 7.0, 1.0])).tolist()
    [3, 1, 2, 1]
    """
    sizes = np.diff(matrix.indptr)
    rows = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
    order = np.lexsort((when, rows))  # stable, and columns are sorted: ties keep the order of items
    from_end = np.empty(matrix.nnz, np.int64)
    from_end[order] = np.repeat(matrix.indptr[1:], sizes) - np.arange(matrix.nnz)
    return from_end


def within_users(
    data: Interactions,
    in_test: Mask,
    in_validation: Mask | None,
    protocol: str,
    seed: int | None,
    parameters: dict[str, float],
) -> Split:
    """A split in which some interactions of users are held out, and the others of the same users seen."""
    in_train = ~in_test if in_validation is None else ~(in_test | in_validation)
    known = np.bincount(data.matrix.indices[in_train], minlength=data.n_items) > 0
    findable = known[data.matrix.indices]
    dropped = {
        "items": int(np.count_nonzero(~known)),
        "interactions": int(np.count_nonzero(~findable)),
        "users": data.n_users,
    }
    if not (in_test & findable).any():
        raise DataError(
            f"{data.n_users:,} users with {data.n_interactions:,} interactions cannot be split: "
            "users have too few, or train lacks the items that would be held out"
        )

    def part(mask: Mask) -> Interactions:
        kept = data.keep(mask & findable)
        return kept if known.all() else kept.take_items(known)

    def evaluated(seen: Mask, target: Mask) -> HeldOut:
        whole = part(target)
        known_of = part(seen)
        users = (np.diff(whole.matrix.indptr) > 0) & (np.diff(known_of.matrix.indptr) > 0)
        return HeldOut(known_of.take_users(users), whole.take_users(users))

    test = evaluated(~in_test, in_test)
    if not test.seen.n_users:
        raise DataError("nobody has something to be seen and something to be found in the test: choose another split")
    dropped["users"] -= test.seen.n_users
    validation = None if in_validation is None else evaluated(in_train, in_validation)
    return Split(part(in_train), validation, test, dropped, protocol, seed, parameters)


def check_share(name: str, share: Any) -> None:
    """Refuse what is not strictly between 0 and 1."""
    if isinstance(share, bool) or not isinstance(share, int | float | np.number) or not 0 < share < 1:
        raise ParameterError(f"{name} must be a share between 0 and 1, got {share!r}", parameter=name)


def hide(matrix: csr_array, share: float | NDArray[np.float64], keys: NDArray[Any]) -> NDArray[np.bool_]:
    """Mark a share of each row's entries, at least one and not all: those with the smallest keys.

    Rows with fewer than two entries keep what they have. ``share`` is one number, or one for each row.
    """
    indptr, sizes = matrix.indptr, np.diff(matrix.indptr)
    counts = np.clip(np.round(share * sizes).astype(np.int64), 1, sizes - 1)
    hidden = np.zeros(matrix.nnz, bool)
    # Some rows at a time: sorting what fits into the cache is several times faster.
    bounds = np.unique([*np.searchsorted(indptr, np.arange(0, matrix.nnz, _AT_A_TIME)), len(sizes)])
    for first, last in pairwise([0, *bounds[bounds > 0].tolist()]):
        start, stop, lengths = indptr[first], indptr[last], sizes[first:last]
        rows = np.repeat(np.arange(last - first, dtype=np.min_scalar_type(last - first)), lengths)
        order = np.argsort(keys[start:stop], kind="stable")
        order = order[np.argsort(rows[order], kind="stable")]
        # Sorted by row and key, those of a row begin where the row does.
        end = np.repeat(indptr[first:last] - start + counts[first:last], lengths)
        hidden[start + order] = np.arange(stop - start) < end
    return hidden
