"""Splits within each user: weak generalisation by chance, leave-last by time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from deql._system.checks import check_whole
from deql.data import Interactions, as_interactions
from deql.errors import DataError, Setting
from deql.split.draw import check_share, hide
from deql.split.parts import HeldOut, Split

__all__ = ["split_leave_last", "split_weak"]

Mask = NDArray[np.bool_]


def split_weak(data: Interactions, held_out: float = 0.2, validation: float = 0.1, seed: int = 0) -> Split:
    """Weak generalisation: every user is in the training data, and some interactions of each are held out.

    The test is evaluated with everything else of the user in sight, validation's interactions included;
    validation with train in sight. Users with fewer than two interactions stay in train.

    Parameters
    ----------
    data : Interactions
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
    return _within_users(data, in_test, in_validation, "weak", seed, parameters)


def split_leave_last(data: Interactions, test: int = 1, validation: int = 1) -> Split:
    """Leave-last: each user's latest interactions are to be found, from the earlier ones.

    Of two interactions at the same time, the one with the later item (in the order of ``data.items``)
    counts as later. Users with too few interactions for all three parts stay in train.

    Parameters
    ----------
    data : Interactions
        With times.
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
    if data.times is None:
        raise DataError(
            "leave-last needs to know when things happened: say ", Setting("time"), " with that column when reading"
        )
    if not np.isfinite(data.times).all():
        raise DataError("leave-last needs a time for every interaction: some are missing or not finite")
    sizes = np.diff(data.matrix.indptr)
    rows = np.repeat(np.arange(data.n_users, dtype=np.int32), sizes)
    order = np.lexsort((data.times, rows))  # stable, and columns are sorted: ties keep the order of items
    from_end = np.empty(data.n_interactions, np.int64)
    from_end[order] = np.repeat(data.matrix.indptr[1:], sizes) - np.arange(data.n_interactions)
    enough = np.repeat(sizes > test + validation, sizes)
    in_test = enough & (from_end <= test)
    in_validation = enough & ~in_test & (from_end <= test + validation) if validation else None
    return _within_users(data, in_test, in_validation, "leave-last", None, {"test": test, "validation": validation})


def _within_users(
    data: Interactions,
    in_test: Mask,
    in_validation: Mask | None,
    protocol: str,
    seed: int | None,
    parameters: dict[str, float],
) -> Split:
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
        users = np.diff(whole.matrix.indptr) > 0
        return HeldOut(part(seen).take_users(users), whole.take_users(users))

    test = evaluated(~in_test, in_test)
    dropped["users"] -= test.seen.n_users
    validation = None if in_validation is None else evaluated(in_train, in_validation)
    return Split(part(in_train), validation, test, dropped, protocol, seed, parameters)
