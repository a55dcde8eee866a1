"""One's own split: parts as people have them, brought to the items of train."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, sparray, spmatrix

from deql._system.lazy import lazy_module
from deql.data import Interactions
from deql.data.matrices import has_entries
from deql.errors import DataError, ParameterError, Setting, name_some
from deql.split.held_out import HeldOut

if TYPE_CHECKING:
    from deql.data import read
    from deql.data.read import TableLike
else:  # the kernels that read tables are of no use to who has none
    read = lazy_module("deql.data.read")

__all__ = ["HeldOutLike", "PartLike", "align_parts"]

PartLike: TypeAlias = "Interactions | TableLike | NDArray[Any]"
"""Interactions, or what they are made of: a file, a frame, or a users × items matrix."""

HeldOutLike: TypeAlias = "HeldOut | PartLike | tuple[PartLike, PartLike]"
"""What is to be found of users that train has, or a pair: what is seen of users, and what is to be found."""


def align_parts(
    train: PartLike, validation: HeldOutLike | None, test: HeldOutLike
) -> tuple[Interactions, HeldOut | None, HeldOut, dict[str, int]]:
    """Bring validation and test to the items of train, and say what was left out for it.

    Left out are items that train does not have; what is to be found although the model sees it; and users of whom
    then nothing is to be seen, or nothing to be found.

    Examples
    --------
    >>> train = Interactions.from_pairs(["ann", "ann", "bob"], ["jam", "tea", "tea"])
    >>> test = Interactions.from_pairs(["bob", "bob"], ["jam", "oat"])
    >>> _, _, part, dropped = align_parts(train, None, test)
    >>> part.seen.history("bob"), part.held_out.history("bob"), dropped
    (['tea'], ['jam'], {'items': 1, 'interactions': 1, 'users': 0})
    """
    table = _as_table(train, "train")
    unknown: set[Any] = set()
    dropped = {"items": 0, "interactions": 0, "users": 0}

    def aligned(given: HeldOutLike, name: str) -> HeldOut:
        if isinstance(given, HeldOut) and _same_ids(given.seen.items, table.items):
            return given
        seen, held_out = _pair(given, table, name)
        part = _align(seen, held_out, table)
        for one in (seen, held_out):
            unknown.update(_with_interactions(one) - table.item_index.keys())
        evaluated = int(np.count_nonzero(np.diff(held_out.matrix.indptr)))
        dropped["interactions"] += held_out.n_interactions - part.held_out.n_interactions
        dropped["users"] += evaluated - part.seen.n_users
        if not part.seen.n_users:
            raise DataError(
                f"nothing is left of {name}: train has none of its items, or the model sees all that is to be found"
            )
        return part

    judged = None if validation is None else aligned(validation, "validation")
    tested = aligned(test, "test")
    dropped["items"] = len(unknown)
    return table, judged, tested, dropped


def _pair(given: HeldOutLike, train: Interactions, name: str) -> tuple[Interactions, Interactions]:
    """What is seen and what is to be found, as they were given."""
    if isinstance(given, HeldOut):
        seen, held_out = given.seen, given.held_out
    elif isinstance(given, tuple | list):
        if len(given) != 2:
            raise ParameterError(
                f"{name} must be a table or a pair, what is seen and what is to be found, got {len(given)} parts",
                parameter=name,
            )
        seen, held_out = (_as_table(one, name) for one in given)
    else:
        seen, held_out = train, _as_table(given, name)
    _check_kinds(train.items, held_out.items, f"items of train and of {name}")
    _check_kinds(train.items, seen.items, f"items of train and of {name}")
    _check_kinds(seen.users, held_out.users, f"users of {'train' if seen is train else 'what is seen'} and of {name}")
    if seen is train:
        known = set(train.users.tolist())
        users = held_out.users[np.diff(held_out.matrix.indptr) > 0].tolist()
        if users and known.isdisjoint(users):
            raise DataError(
                f"none of the users of {name} is in train ({name_some(users, 3)}), so that nothing is seen of them: "
                f"give {name} as a pair, what is seen and what is to be found"
            )
    return seen, held_out


def _align(seen: Interactions, held_out: Interactions, train: Interactions) -> HeldOut:
    """Those users, in the order of what is held out, of whom there is something to see and something to find."""
    users = held_out.users
    known, found = _spread(seen, users, train), _spread(held_out, users, train)
    found = found.keep(~has_entries(known.matrix, found.matrix))
    both = (np.diff(known.matrix.indptr) > 0) & (np.diff(found.matrix.indptr) > 0)
    return HeldOut(known.take_users(both), found.take_users(both))


def _spread(data: Interactions, users: NDArray[Any], train: Interactions) -> Interactions:
    """The same interactions among these users and the items of train; others are left out."""
    place_of = {user: place for place, user in enumerate(users.tolist())}
    rows = np.array([place_of.get(user, -1) for user in data.users.tolist()], np.int64)
    columns = np.array([train.item_index.get(item, -1) for item in data.items.tolist()], np.int64)
    rows = np.repeat(rows, np.diff(data.matrix.indptr))
    columns = columns[data.matrix.indices] if data.n_interactions else columns[:0]
    kept = np.flatnonzero((rows >= 0) & (columns >= 0))
    # A matrix of places sorts them, and says where the weights and times of its entries stand.
    placed = csr_array((kept, (rows[kept], columns[kept])), shape=(len(users), train.n_items))
    matrix = csr_array((data.matrix.data[placed.data], placed.indices, placed.indptr), shape=placed.shape)
    times = None if data.times is None else data.times[placed.data]
    order = None if data.order is None else data.order[placed.data]
    return Interactions(matrix, users, train.items, times, train.titles, train.steps, order)


def _as_table(given: Any, name: str) -> Interactions:
    if isinstance(given, Interactions):
        return given
    if isinstance(given, np.ndarray | sparray | spmatrix):
        return Interactions.from_csr(given)
    try:
        return read.read_interactions(given)
    except DataError as error:
        raise DataError(f"{name}: ", *error.args) from None


def _with_interactions(data: Interactions) -> set[Any]:
    return set(data.items[np.bincount(data.matrix.indices, minlength=data.n_items) > 0].tolist())


def _same_ids(one: NDArray[Any], other: NDArray[Any]) -> bool:
    return one is other or (one.dtype.kind == other.dtype.kind and np.array_equal(one, other))


def _check_kinds(one: NDArray[Any], other: NDArray[Any], what: str) -> None:
    if one.size and other.size and one.dtype.kind != other.dtype.kind:
        raise DataError(
            f"the {what} are whole numbers on one side and text on the other: read both with ", Setting("ids", "text")
        )
