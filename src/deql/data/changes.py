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
from deql.data.matrices import (
    empty_rows,
    entry_rows,
    has_entries,
    masked,
    rearranged,
    shortest_float,
    widened,
    with_rows,
)
from deql.errors import DataError, Setting, name_some

__all__ = ["Batch", "DataChange", "add_users", "change_data"]

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
        Interactions that came, those that were there and may weigh more now included; and that went, those of
        forgotten users and retired items included.
    n_new_users, n_changed_users, n_forgotten_users : int
        Users who came, of whom something came or went, and who went, those left without anything included.
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
    forgotten = _places(data.user_index, batch.forget_users, "user", "users", "forget", batch.names)
    retired = _places(data.item_index, batch.retire_items, "item", "items", "retire", {})
    added, removed = _used(batch.added), _used(batch.removed)
    users, new_users, rows_added = _with_new(data.users, data.user_index, added, "users")
    items, new_items, columns_added = _with_new(data.items, data.item_index, added, "items")
    shape = len(users), len(items)
    nothing = widened(empty_rows(shape[1]), shape)
    come, came = nothing, None
    if added is not None:
        added = _with_times_of(data, added)
        come, came = rearranged(added.matrix, rows_added, columns_added, shape, added.times)
        _refuse_into(forgotten, entry_rows(come), users, "user", "users", "forgotten", batch.names)
        _refuse_into(retired, come.indices, items, "item", "items", "retired", {})
    taken = nothing if removed is None else _taken(data, removed, shape, batch.names)
    old = widened(data.matrix, shape)
    losing = entry_rows(old)[np.isin(old.indices, retired)] if len(retired) else retired
    rows = np.unique(np.concatenate([forgotten, losing, entry_rows(taken), entry_rows(come)]))
    # All that follows is done to the rows that change, which are few; then they take their place among the others.
    theirs, when = _rows(old, rows, data.times)
    goes = np.isin(rows[entry_rows(theirs)], forgotten) | np.isin(theirs.indices, retired)
    goes |= has_entries(taken[rows], theirs)
    ones = np.count_nonzero(old.data != 1) == np.count_nonzero(theirs.data[goes] != 1) and bool((come.data == 1).all())
    stays, when_stays = masked(theirs, ~goes), None if when is None else when[~goes]
    changed, times = (stays, when_stays) if added is None else _merged(stays, when_stays, come[rows], came, ones)
    titles = _titles(data, added, items, new_items)
    sizes_before, sizes_after = (np.diff(one.indptr).astype(np.int64) for one in (theirs, changed))
    in_columns = np.delete(np.arange(len(items)), retired)
    before, after = (
        Interactions(one, users[rows], items, at, titles).take_items(in_columns)
        for one, at in ((theirs, when), (changed, times))
    )
    whole, all_times = with_rows(old, rows, changed, data.times, times)
    there = np.ones(len(users), bool)
    there[rows] = sizes_after > 0
    # A row without entries ends where it begins, so dropping its end drops the row.
    ends = np.concatenate([whole.indptr[:1], whole.indptr[1:][there]])
    whole = csr_array((whole.data, whole.indices, ends), shape=(int(there.sum()), len(items)))
    final = Interactions(whole, users[there], items, all_times, titles, data.steps)
    final = final.take_items(in_columns) if len(retired) else final
    known = rows < data.n_users
    return DataChange(
        before, after, sizes_before, sizes_after, final, final.items, final.titles, retired, len(new_items),
        final.n_users,
        n_added=int(come.nnz),
        n_removed=int(goes.sum()),
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


def _used(given: Interactions | None) -> Interactions | None:
    """Interactions without the users and items that have none; None if there is nothing."""
    return None if given is None or not given.n_interactions else given.without_empty()


def _called(ids: Iterable[Any], names: Names) -> list[Hashable]:
    """Ids as people know them."""
    return [names.get(one, one) for one in ids]


def _places(
    index: dict[Any, int], ids: Sequence[Hashable], one: str, several: str, verb: str, names: Names
) -> NDArray[np.int64]:
    """Rows or columns of ids, ascending."""
    listed: list[Any] = list(ids)
    given = id_array(listed).tolist() if listed else []
    unknown = _called([name for name in given if name not in index], names)
    if unknown:
        what = f"is no {one}" if len(unknown) == 1 else f"are no {several}"
        raise DataError(f"there {what} {name_some(unknown)} to {verb}: nothing was changed")
    return np.unique(np.array([index[name] for name in given], np.int64))


def _with_times_of(data: Interactions, added: Interactions) -> Interactions:
    """What comes, with times where the data have them."""
    if data.times is not None and added.times is None:
        raise DataError("the data have times and what is added has none: read it with ", Setting("time"))
    if data.times is not None and added.times is not None and not np.isfinite(added.times).all():
        raise DataError("the data have times, and some of what is added are missing or not finite: nothing was changed")
    return added if data.times is not None else replace(added, times=None)


def _check_kind(ids: NDArray[Any], others: NDArray[Any], what: str, where: str) -> None:
    """Raise DataError where ids are numbers on one side and text on the other."""
    if not len(ids) or others.dtype.kind == ids.dtype.kind:
        return
    if ids.dtype.kind == "i":
        raise DataError(f"ids of {what} are whole numbers in the data and text in {where}: give whole numbers there")
    raise DataError(
        f"ids of {what} are text in the data and whole numbers in {where}: read it with ", Setting("ids", "text")
    )


def _with_new(
    ids: NDArray[Any], index: dict[Any, int], added: Interactions | None, what: str
) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.int64]]:
    """All ids, those that are new, as they come in what is added, and where each of its ids stands among all."""
    if added is None:
        return ids, ids[:0], np.zeros(0, np.int64)
    others: NDArray[Any] = getattr(added, what)
    _check_kind(ids, others, what, "what is added")
    places = _lookup(index, others)
    is_new = places < 0
    places[is_new] = len(ids) + np.arange(is_new.sum())
    new = others[is_new]
    factorise(np.concatenate([ids[:1], new[:1]]))  # text, and what is neither that nor a number
    return np.concatenate([ids, new]) if len(new) else ids, new, places


def _lookup(index: dict[Any, int], wanted: NDArray[Any]) -> NDArray[np.int64]:
    """Where each of some ids stands; −1 for one that is not there."""
    return np.array([index.get(one, -1) for one in wanted.tolist()], np.int64)


def _taken(data: Interactions, removed: Interactions, shape: tuple[int, int], names: Names) -> csr_array:
    """The pairs that go, in the rows and columns of afterwards; all of them must be there."""
    for what in ("users", "items"):
        _check_kind(getattr(data, what), getattr(removed, what), what, "what is to be removed")
    rows, columns = _lookup(data.user_index, removed.users), _lookup(data.item_index, removed.items)
    at, across = rows[entry_rows(removed.matrix)], columns[removed.matrix.indices]
    there = (at >= 0) & (across >= 0)
    if there.all():
        taken = rearranged(removed.matrix, rows, columns, shape, None)[0]
        some = np.unique(at)
        there = has_entries(_rows(data.matrix, some, None)[0], csr_array(taken[some, : data.n_items]))
        if there.all():
            return taken
        place = int(there.argmin())
        pair = data.users[[entry_rows(taken)[place]]], data.items[[taken.indices[place]]]
    else:
        place = int(there.argmin())
        pair = removed.users[[entry_rows(removed.matrix)[place]]], removed.items[[removed.matrix.indices[place]]]
    missing = int((~there).sum())
    more = f", nor {missing - 1:,} more of the {removed.n_interactions:,} pairs" if missing > 1 else ""
    of, what = name_some(_called(pair[0].tolist(), names)), name_some(pair[1])
    raise DataError(f"there is no interaction of user {of} with item {what} to remove{more}: nothing was changed")


def _rows(
    matrix: csr_array, rows: NDArray[np.int64], times: NDArray[np.float64] | None
) -> tuple[csr_array, NDArray[np.float64] | None]:
    """Some rows of a matrix, and the times of their values."""
    sizes = np.diff(matrix.indptr)[rows]
    ends = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
    places = np.repeat(matrix.indptr[rows] - ends[:-1], sizes) + np.arange(ends[-1])
    taken = csr_array((matrix.data[places], matrix.indices[places], ends), shape=(len(rows), matrix.shape[1]))
    return taken, None if times is None else times[places]


def _refuse_into(
    goes: NDArray[np.int64], comes: NDArray[Any], ids: NDArray[Any], one: str, several: str, verb: str, names: Names
) -> None:
    both = np.intersect1d(goes, comes)
    if both.size:
        what = one if both.size == 1 else several
        said = name_some(_called(ids[both].tolist(), names))
        raise DataError(f"{what} {said} cannot be {verb} and added to at once: do one after the other")


def _merged(
    stays: csr_array,
    when: NDArray[np.float64] | None,
    come: csr_array,
    came: NDArray[np.float64] | None,
    ones: bool,
) -> tuple[csr_array, NDArray[np.float64] | None]:
    """What stays and what comes, as :func:`deql.join` merges them; ``ones`` if nothing in all data weighs other."""
    # The sum of two matrices that hold places, of which the second's are beyond all of the first's, tells for each
    # pair where it stands in either: in one pass, as both are sorted.
    step = stays.nnz + 1
    places = _places_of(stays) + _places_of(come, step)
    second, first = np.divmod(places.data, step)
    old, new = first > 0, second > 0
    data = np.zeros(len(first))
    data[old] = stays.data[first[old] - 1]
    data[new] += come.data[second[new] - 1]
    if ones:
        np.minimum(data, 1, out=data)
    times = None
    if when is not None and came is not None:
        times = np.full(len(first), -np.inf)
        times[old] = when[first[old] - 1]
        times[new] = np.maximum(times[new], came[second[new] - 1])
    matrix = csr_array((shortest_float(data), places.indices, places.indptr), shape=stays.shape)
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
