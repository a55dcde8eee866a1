"""Users whom a model has not met: what it sees of each, and what it is to find."""

from __future__ import annotations

import numpy as np

from deql._system.checks import check_whole
from deql.data import as_interactions
from deql.data.interactions import InteractionsLike
from deql.errors import DataError
from deql.split.parts import HeldOut
from deql.split.protocols import check_share, hide

__all__ = ["hold_out_items"]


def hold_out_items(data: InteractionsLike, held_out: float = 0.2, seed: int = 0) -> HeldOut:
    """Hold out a share of each user's items, at least one and not all; users with fewer than two are left out.

    Parameters
    ----------
    data : Interactions, sparse matrix or frame
    held_out : float, default 0.2
    seed : int, default 0
        The same seed gives the same items with every version of NumPy: only the generator's raw bits are used.

    Examples
    --------
    >>> import deql
    >>> part = hold_out_items(deql.Interactions.from_pairs(list("aaab"), ["egg", "jam", "tea", "tea"]))
    >>> part.seen.users.tolist(), part.seen.n_interactions, part.held_out.n_interactions
    (['a'], 2, 1)
    """
    check_share("held_out", held_out)
    seed = check_whole("seed", seed, least=0)
    data = as_interactions(data)
    hidden = hide(data.matrix, held_out, np.random.PCG64(seed).random_raw(data.n_interactions))
    enough = np.diff(data.matrix.indptr) >= 2
    if not enough.any():
        raise DataError("no user has two items, one to see and one to find")
    return HeldOut(data.keep(~hidden).take_users(enough), data.keep(hidden).take_users(enough))
