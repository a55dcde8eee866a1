"""What a batch of changes makes of interactions: pairs that come and go, users forgotten, items retired."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from deql.data.id_arrays import factorise, id_array
from deql.data.interactions import Interactions
from deql.data.matrices import entry_rows, has_entries, masked, shortest_float
from deql.errors import DataError, Setting, name_some

__all__ = ["Batch", "DataChange", "add_users", "change_data", "empty_rows", "rearranged", "replace_shape"]

Names: TypeAlias = Mapping[Hashable, Hashable]
"""What errors call users, by the ids that they have in the data."""


@dataclass(frozen=True, eq=False)
class Batch:
    """What is to change.

    Attributes
    ----------
    added : Interactions or None
        Pairs of user and item that come; one that is there adds up as :func:`deql.join` does.
    removed : Interactions or None
        Pairs that go, whatever they weigh; before any come, so that a pair in both is replaced.
    forget_users : tuple of ids
        Users who go with everything.
    retire_items : tuple of ids
        Items that go with everything.
    names : mapping
        What errors call users, by the ids that they have here: where these are hashes, the ids that people gave.
    """

    added: Interactions | None = None
    removed: Interactions | None = None
    forget_users: tuple[Hashable, ...] = ()
    retire_items: tuple[Hashable, ...] = ()
    names: Names = field(default_factory=dict)

    def __bool__(self) -> bool:
        pairs = any(part is not None and part.n_interactions for part in (self.added, self.removed))
        return pairs or bool(self.forget_users or self.retire_items)


@dataclass(frozen=True, eq=False)
class DataChange:
    """What a batch makes of the data.

    Attributes
    ----------
    before, after : Interactions
        The rows of the users who change, as they were and as they are, in the columns of afterwards; a user who comes
        or goes has an empty row.
    sizes_before, sizes_after : ndarray of int64
        How many items each of them had and has, retired ones included.
    final : Interactions or None
        All data afterwards; None if those of before are not known.
    items, titles : ndarray
        Of the columns of afterwards.
    retired : ndarray of int64
        Columns of before that are gone.
    n_new_items : int
        How many of the last columns are new.
    n_users : int
        Afterwards.
    n_added, n_removed : int
        Interactions that came, those that weigh more than before included, and that went.
    n_new_users, n_changed_users, n_forgotten_users : int
        Users who came, who have other items or weights than before, and who went, those left without anything included.
    """

    before: Interactions
    after: Interactions
    sizes_before: NDArray[np.int64]
    sizes_after: NDArray[np.int64]
    final: Interactions | None
    items: NDArray[Any]
    titles: NDArray[Any] | None
    retired: NDArray[np.int64]
    n_new_items: int
    n_users: int
    n_added: int
    n_removed: int
    n_new_users: int
    n_changed_users: int
    n_forgotten_users: int


def change_data(data: Interactions, batch: Batch) -> DataChange:
    """What a batch makes of interactions.

    Parameters
    ----------
    data : Interactions
    batch : Batch
        With users under the same ids.

    Raises
    ------
    DataError
        If something is to go that is not there, or to come to a user or an item that goes, or times are missing.

    Examples
    --------
    >>> import deql
    >>> data = deql.Interactions.from_pairs(["ann", "ann", "bob"], ["tea", "jam", "tea"])
    >>> change = change_data(data, Batch(deql.Interactions.from_pairs(["bob", "cat"], ["oat", "tea"])))
    >>> change.final.matrix.toarray().tolist(), change.final.users.tolist(), change.items.tolist()
    ([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0], [0.0, 1.0, 0.0]], ['ann', 'bob', 'cat'], ['jam', 'tea', 'oat'])
    >>> change.before.users.tolist(), change.before.matrix.toarray().tolist()
    (['bob', 'cat'], [[0.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    """
    forgotten = _places(data.user_index, batch.forget_users, "user to forget", "users to forget", batch.names)
    retired = _places(data.item_index, batch.retire_items, "item to retire", "items to retire", {})
    added = _with_times_of(data, batch.added)
    users, new_users = _with_new(data.users, data.user_index, added, "users")
    items, new_items = _with_new(data.items, data.item_index, added, "items")
    shape = len(users), len(items)
    old = replace_shape(data.matrix, shape)
    goes = np.isin(entry_rows(old), forgotten) | np.isin(old.indices, retired)
    n_removed = 0
    if batch.removed is not None and batch.removed.n_interactions:
        taken = _taken(data, batch.removed, shape, batch.names)
        n_removed = taken.nnz
        goes[_places_of(old).multiply(taken.astype(bool)).data - 1] = True
    kept = masked(old, ~goes)
    when = None if data.times is None else data.times[~goes]
    come, came = _placed(data, added, shape)
    if come is not None:
        _refuse_into(forgotten, entry_rows(come), users, "user", "users", "forgotten", batch.names)
        _refuse_into(retired, come.indices, items, "item", "items", "retired", {})
    whole, times = _merged(kept, when, come, came)
    touched = np.unique(np.concatenate([entry_rows(old)[goes], entry_rows(come) if come is not None else []]))
    rows = np.union1d(touched, forgotten).astype(np.int64)
    titles = _titles(data, added, items, new_items)
    stay = np.ones(len(items), bool)
    stay[retired] = False
    all_users = Interactions(whole, users, items, times, titles)
    after, before = (
        one.take_users(rows).take_items(stay)
        for one in (all_users, Interactions(old, users, items, data.times, titles))
    )
    sizes_before, sizes_after = (np.diff(one.indptr)[rows].astype(np.int64) for one in (old, whole))
    gone = np.zeros(len(users), bool)
    gone[rows] = sizes_after == 0
    final = replace(all_users, steps=data.steps)
    final = final.take_items(stay) if len(retired) else final
    final = final.take_users(~gone) if gone.any() else final
    known = rows < data.n_users
    return DataChange(
        before, after, sizes_before, sizes_after, final, final.items, final.titles, retired, len(new_items),
        final.n_users,
        n_added=0 if come is None else int(come.nnz),
        n_removed=int(goes.sum()) if n_removed or len(forgotten) or len(retired) else 0,
        n_new_users=len(new_users),
        n_changed_users=int((known & (sizes_after > 0)).sum()),
        n_forgotten_users=int((known & (sizes_after == 0)).sum()),
    )  # fmt: skip


def add_users(items: NDArray[Any], titles: NDArray[Any] | None, n_users: int, added: Interactions) -> DataChange:
    """What new users make of data that are not known: all of the users are taken to be new.

    Parameters
    ----------
    items, titles : ndarray
        Of the model.
    n_users : int
        How many there are already.
    added : Interactions

    Examples
    --------
    >>> import deql
    >>> change = add_users(np.array(["tea"], object), None, 5, deql.Interactions.from_pairs(["ann"], ["oat"]))
    >>> change.items.tolist(), change.n_users, change.after.matrix.toarray().tolist()
    (['tea', 'oat'], 6, [[0.0, 1.0]])
    """
    nobody = Interactions(empty_rows(len(items)), added.users[:0], items, titles=titles)
    if added.times is not None:
        nobody = replace(nobody, times=np.zeros(0))
    change = change_data(nobody, Batch(added))
    return replace(change, final=None, n_users=n_users + change.n_users)


def empty_rows(n_items: int) -> csr_array:
    """Nobody's rows.

    Examples
    --------
    >>> empty_rows(3).shape
    (0, 3)
    """
    return csr_array(np.zeros((0, n_items), np.float32))


def replace_shape(matrix: csr_array, shape: tuple[int, int]) -> csr_array:
    """A matrix with further empty rows and columns, sharing its values.

    Examples
    --------
    >>> replace_shape(csr_array([[1.0]]), (2, 2)).toarray().tolist()
    [[1.0, 0.0], [0.0, 0.0]]
    """
    indptr = np.concatenate([matrix.indptr, np.full(shape[0] - matrix.shape[0], matrix.nnz, matrix.indptr.dtype)])
    return csr_array((matrix.data, matrix.indices, indptr), shape=shape)


def _called(ids: Iterable[Any], names: Names) -> list[Hashable]:
    """Ids as people know them."""
    return [names.get(one, one) for one in ids]


def _places(index: dict[Any, int], ids: Sequence[Hashable], one: str, several: str, names: Names) -> NDArray[np.int64]:
    """Rows or columns of ids, ascending."""
    listed: list[Any] = list(ids)
    given = id_array(listed).tolist() if listed else []
    unknown = _called([name for name in given if name not in index], names)
    if unknown:
        what = f"is no {one}" if len(unknown) == 1 else f"are no {several}"
        raise DataError(f"there {what} {name_some(unknown)}: nothing was changed")
    return np.unique(np.array([index[name] for name in given], np.int64))


def _with_times_of(data: Interactions, added: Interactions | None) -> Interactions | None:
    """What comes, with times where the data have them."""
    if added is None or not added.n_interactions:
        return None
    if data.times is not None and added.times is None:
        raise DataError("the data have times and what is added has none: read it with ", Setting("time"))
    if data.times is not None and added.times is not None and not np.isfinite(added.times).all():
        raise DataError("the data have times, and some of what is added are missing or not finite: nothing was changed")
    return added if data.times is not None else replace(added, times=None)


def _with_new(
    ids: NDArray[Any], index: dict[Any, int], added: Interactions | None, what: str
) -> tuple[NDArray[Any], NDArray[Any]]:
    """All ids, and those that are new, as they come in what is added."""
    if added is None:
        return ids, ids[:0]
    theirs = added.without_empty()
    others: NDArray[Any] = getattr(theirs, what)
    _refuse_other_kind(ids, others, what, "added")
    new = others[_lookup(index, others) < 0]
    factorise(np.concatenate([ids[:1], new[:1]]))  # text and something else that is no number
    return np.concatenate([ids, new]) if len(new) else ids, new


def _placed(
    data: Interactions, added: Interactions | None, shape: tuple[int, int]
) -> tuple[csr_array | None, NDArray[np.float64] | None]:
    """What comes, in the rows and columns of afterwards, and its times."""
    if added is None:
        return None, None
    added = added.without_empty()
    rows, columns = _lookup(data.user_index, added.users), _lookup(data.item_index, added.items)
    for places, known in ((rows, data.n_users), (columns, data.n_items)):
        new = places < 0
        places[new] = known + np.arange(new.sum())
    return rearranged(added.matrix, rows, columns, shape, added.times)


def _lookup(index: dict[Any, int], wanted: NDArray[Any]) -> NDArray[np.int64]:
    """Where each of some ids stands; −1 for one that is not there."""
    return np.array([index.get(one, -1) for one in wanted.tolist()], np.int64)


def rearranged(
    matrix: csr_array,
    rows: NDArray[np.int64],
    columns: NDArray[np.int64],
    shape: tuple[int, int],
    times: NDArray[np.float64] | None,
) -> tuple[csr_array, NDArray[np.float64] | None]:
    """A matrix with its rows and columns at other places, and its times in their new order.

    Examples
    --------
    >>> matrix, times = rearranged(
    ...     csr_array([[1.0, 2.0]]), np.array([1]), np.array([1, 0]), (2, 2), np.array([7.0, 8.0])
    ... )
    >>> matrix.toarray().tolist(), times.tolist()
    ([[0.0, 0.0], [2.0, 1.0]], [8.0, 7.0])
    """
    at, across = rows[entry_rows(matrix)], columns[matrix.indices]
    order = np.lexsort((across, at))
    indptr = np.concatenate([[0], np.cumsum(np.bincount(at, minlength=shape[0]))])
    placed = csr_array((matrix.data[order], across[order], indptr), shape=shape)
    return placed, None if times is None else times[order]


def _taken(data: Interactions, removed: Interactions, shape: tuple[int, int], names: Names) -> csr_array:
    """The pairs that go, in the rows and columns of afterwards; all of them must be there."""
    removed = removed.without_empty()
    for what in ("users", "items"):
        _refuse_other_kind(getattr(data, what), getattr(removed, what), what, "to be removed")
    rows, columns = _lookup(data.user_index, removed.users), _lookup(data.item_index, removed.items)
    at, across = rows[entry_rows(removed.matrix)], columns[removed.matrix.indices]
    there = (at >= 0) & (across >= 0)
    if there.all():
        taken = rearranged(removed.matrix, rows, columns, shape, None)[0]
        there = has_entries(replace_shape(data.matrix, shape), taken)
        if there.all():
            return taken
        place = int(there.argmin())
        user, item = entry_rows(taken)[place], taken.indices[place]
        pair = data.users[user], data.items[item]
    else:
        place = int(there.argmin())
        user, item = entry_rows(removed.matrix)[place], removed.matrix.indices[place]
        pair = removed.users[user], removed.items[item]
    missing = int((~there).sum())
    more = f", nor {missing - 1:,} more of the {removed.n_interactions:,} pairs" if missing > 1 else ""
    of, what = name_some(_called(pair[:1], names)), name_some(pair[1:])
    raise DataError(f"there is no interaction of user {of} with item {what} to remove{more}: nothing was changed")


def _refuse_other_kind(ids: NDArray[Any], others: NDArray[Any], what: str, which: str) -> None:
    """Raise DataError where ids are whole numbers and others are not, or the other way round."""
    if not len(ids) or others.dtype.kind == ids.dtype.kind:
        return
    if ids.dtype.kind == "i":
        raise DataError(
            f"ids of {what} are whole numbers in the data, and {name_some(others[:1])} in what is {which} is none: "
            "give whole numbers, or fit the model on data that are read with ", Setting("ids", "text"),
        )  # fmt: skip
    raise DataError(
        f"ids of {what} are text in the data and whole numbers in what is {which}: read it with ",
        Setting("ids", "text"),
    )


def _refuse_into(
    goes: NDArray[np.int64], comes: NDArray[Any], ids: NDArray[Any], one: str, several: str, verb: str, names: Names
) -> None:
    both = np.intersect1d(goes, comes)
    if both.size:
        what = one if both.size == 1 else several
        said = name_some(_called(ids[both].tolist(), names))
        raise DataError(f"{what} {said} cannot be {verb} and added to at once: do one after the other")


def _merged(
    kept: csr_array, when: NDArray[np.float64] | None, come: csr_array | None, came: NDArray[np.float64] | None
) -> tuple[csr_array, NDArray[np.float64] | None]:
    """What stays and what comes, as :func:`deql.join` merges them."""
    if come is None:
        return kept, when
    binary = bool((kept.data == 1).all() and (come.data == 1).all())
    # The sum of two matrices that hold places, of which the second's are beyond all of the first's, tells for each
    # pair where it stands in either: in one pass, as both are sorted.
    step = kept.nnz + 1
    places = _places_of(kept) + _places_of(come, step)
    second, first = np.divmod(places.data, step)
    old, new = first > 0, second > 0
    data = np.zeros(len(first))
    data[old] = kept.data[first[old] - 1]
    data[new] += come.data[second[new] - 1]
    if binary:
        np.minimum(data, 1, out=data)
    times = None
    if when is not None and came is not None:
        times = np.full(len(first), -np.inf)
        times[old] = when[first[old] - 1]
        times[new] = np.maximum(times[new], came[second[new] - 1])
    matrix = csr_array((shortest_float(data), places.indices, places.indptr), shape=kept.shape)
    there = data != 0  # weights below 0 may add up to it
    if there.all():
        return matrix, times
    return masked(matrix, there), None if times is None else times[there]


def _places_of(matrix: csr_array, step: int = 1) -> csr_array:
    """The matrix with the place of each stored value instead of it, from 1 on, times ``step``."""
    places = np.arange(1, matrix.nnz + 1, dtype=np.int64) * step
    return csr_array((places, matrix.indices, matrix.indptr), shape=matrix.shape)


def _titles(
    data: Interactions, added: Interactions | None, items: NDArray[Any], new: NDArray[Any]
) -> NDArray[Any] | None:
    """Titles of all items; a new one without any goes by its id."""
    if data.titles is None and (added is None or added.titles is None):
        return None
    named = np.array(list(map(str, items.tolist())), object)
    if data.titles is not None:
        named[: data.n_items] = data.titles
    if added is not None and added.titles is not None:
        told = dict(zip(added.items.tolist(), added.titles.tolist(), strict=True))
        fresh = items if data.titles is None else new
        offset = len(items) - len(fresh)
        for place, item in enumerate(fresh.tolist(), offset):
            named[place] = told.get(item, named[place])
    return named
