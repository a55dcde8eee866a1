"""What a search learns from and is judged on; never the test part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deql.data import Interactions, as_interactions
from deql.errors import DataError
from deql.io.container import digest
from deql.split import HeldOut, Split, split_strong, split_weak

__all__ = ["Ground", "matrix_arrays", "sample_items", "stake_out"]

_HELD_OUT_USERS, _LEAST_USERS = 0.1, 10
_HELD_OUT_SHARE = 0.1


@dataclass(frozen=True, eq=False)
class Ground:
    """Training and validation data of a search.

    Attributes
    ----------
    train : Interactions
    validation : HeldOut
    final : Interactions
        What the winner is fitted on in the end: all that may be learned from.
    how : str
        Where validation came from, in words.
    """

    train: Interactions
    validation: HeldOut
    final: Interactions
    how: str

    def fingerprint(self) -> str:
        """A checksum of all that the search reads."""
        arrays = matrix_arrays(train=self.train, seen=self.validation.seen, held_out=self.validation.held_out)
        for name, items in (("train", self.train.items), ("validation", self.validation.seen.items)):
            arrays[f"{name}_items"] = np.frombuffer("\n".join(map(str, items.tolist())).encode(), np.uint8)
        return digest({}, arrays)


def matrix_arrays(**parts: Interactions) -> dict[str, NDArray[Any]]:
    """The arrays of the parts' matrices by name, for a checksum of what they hold."""
    return {
        f"{name}_{field}": np.ascontiguousarray(getattr(part.matrix, field))
        for name, part in parts.items()
        for field in ("indptr", "indices", "data")
    }


def stake_out(data: Any, seed: int) -> Ground:
    """Decide what to learn from and what to judge on.

    Parameters
    ----------
    data : Split, Interactions or sparse matrix
        A split is taken as it is; one without a validation part gives a tenth of every user's training
        interactions instead. Of a table without a split, a tenth of the users validate.
    seed : int
        For what is held out here.

    Examples
    --------
    >>> import deql
    >>> ground = stake_out(deql.datasets.debian(), seed=0)
    >>> ground.how, ground.train.n_users < ground.final.n_users
    ('1,743 users were held out to choose on', True)
    """
    if isinstance(data, Split):
        if data.validation is not None:
            if not data.validation.held_out.n_interactions:
                raise DataError("no validation user has anything held out, so there is nothing to choose on")
            users = data.validation.seen.n_users
            return Ground(data.train, data.validation, data.train, f"the split has {users:,} validation users")
        inner = split_weak(data.train, _HELD_OUT_SHARE, validation=0, seed=seed)
        how = f"the split has no validation part, so {_HELD_OUT_SHARE:.0%} of each user's training items were held out"
        return Ground(inner.train, inner.test, data.train, how)
    table = as_interactions(data)
    if table.n_users < _LEAST_USERS:
        raise DataError(f"{table.n_users:,} users are too few to choose on: tuning needs at least {_LEAST_USERS}")
    try:
        inner = split_strong(table, _HELD_OUT_USERS, validation_users=0, seed=seed)
    except DataError:
        raise DataError(
            "none of the users that were held out has two items that others have too, one to see and one to find: "
            "leave out short histories with min_items_per_user=…"
        ) from None
    return Ground(inner.train, inner.test, table, f"{inner.test.seen.n_users:,} users were held out to choose on")


def sample_items(ground: Ground, share: float, users: int, seed: int) -> Ground:
    """A share of the items, drawn by their popularity, and at most so many users to judge on.

    Popular items are where most of what is held out lies: drawn evenly, a sample would leave too little to find.

    Raises
    ------
    DataError
        If nobody is left who has something to see and something to find.
    """
    counts = np.bincount(ground.train.matrix.indices, minlength=ground.train.n_items)
    bits = np.random.PCG64(seed)
    # The smallest of −log(u)/count are a draw without replacement in proportion to the counts (Efraimidis, Spirakis).
    uniform = (bits.random_raw(len(counts)).astype(np.float64) + 1) * 2.0**-64
    order = np.argsort(-np.log(uniform) / np.maximum(counts, 1), kind="stable")
    items = np.sort(order[: max(1, round(share * len(counts)))])
    seen, held_out = (part.take_items(items) for part in (ground.validation.seen, ground.validation.held_out))
    judged = np.flatnonzero((np.diff(seen.matrix.indptr) > 0) & (np.diff(held_out.matrix.indptr) > 0))
    if not judged.size:
        raise DataError("too few items are left to judge on")
    few = np.sort(judged[np.argsort(bits.random_raw(len(judged)), kind="stable")[:users]])
    train = ground.train.take_items(items)
    return Ground(train, HeldOut(seen.take_users(few), held_out.take_users(few)), train, ground.how)
