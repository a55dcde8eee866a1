"""Several tables as one: yesterday's and today's, or those of two shops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from deql.data.id_arrays import factorise
from deql.data.interactions import Interactions, Step
from deql.data.matrices import shortest_float
from deql.errors import DataError, ParameterError, Setting

__all__ = ["join"]


def join(*parts: Interactions, weights: Literal["sum", "max"] = "sum") -> Interactions:
    """Join tables: all their users and items, by id, with all their interactions.

    Parameters
    ----------
    *parts : Interactions
        Two or more, with ids of one kind.
    weights : {"sum", "max"}, default "sum"
        What a pair of user and item counts that several parts have. "sum" adds up, as repeated pairs of one table do:
        where every interaction of all parts counts 1, such a pair counts 1 too. "max" takes the largest.

    Returns
    -------
    Interactions
        Ids sorted. Of several times of a pair the latest stays; of several titles of an item the first.

    Raises
    ------
    DataError
        If ids are whole numbers in one part and text in another, or only some have times.

    Examples
    --------
    >>> import deql
    >>> monday = deql.Interactions.from_pairs(["ann", "bob"], ["tea", "jam"], [1, 2])
    >>> tuesday = deql.Interactions.from_pairs(["ann", "cat"], ["tea", "oat"], [4, 1])
    >>> both = deql.join(monday, tuesday)
    >>> both
    Interactions(3 users × 3 items, 3 interactions)
    >>> both.matrix.toarray().tolist()
    [[0.0, 0.0, 5.0], [2.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    """
    if weights not in ("sum", "max"):
        raise ParameterError(f"weights must be 'sum' or 'max', got {weights!r}", parameter="weights")
    for part in parts:
        if not isinstance(part, Interactions):
            raise ParameterError(
                f"only Interactions can be joined, got {type(part).__name__}: deql.read_interactions makes them"
            )
    if not parts:
        raise ParameterError("there is nothing to join: give two or more Interactions")
    user_ids, user_places = _union([part.users for part in parts], "users")
    item_ids, item_places = _union([part.items for part in parts], "items")
    counts = [np.diff(part.matrix.indptr) for part in parts]
    rows = np.concatenate([np.repeat(places, count) for places, count in zip(user_places, counts, strict=True)])
    columns = np.concatenate([places[part.matrix.indices] for places, part in zip(item_places, parts, strict=True)])
    pairs = rows.astype(np.int64) * len(item_ids) + columns
    order = np.argsort(pairs, kind="stable")
    pairs = pairs[order]
    starts = np.flatnonzero(np.diff(pairs, prepend=-1))

    def merged(values: NDArray[Any], add: np.ufunc) -> NDArray[Any]:
        with np.errstate(over="ignore"):  # what is too large to add up is refused with its place
            return np.asarray(add.reduceat(values[order], starts)) if starts.size else values[:0]

    values = np.concatenate([part.matrix.data.astype(np.float64) for part in parts])
    data = merged(values, np.maximum if weights == "max" or (values == 1).all() else np.add)
    times = None
    if _have_times(parts):
        times = merged(np.concatenate([part.times for part in parts if part.times is not None]), np.maximum)
    shape = len(user_ids), len(item_ids)
    steps = [Step(f"joined {len(parts)} tables", *shape, len(pairs))]
    if len(starts) < len(pairs):
        steps.append(Step("repeated pairs merged", *shape, len(starts)))
    kept = data != 0  # weights below 0 may add up to it
    if not kept.all():
        starts, data, times = starts[kept], data[kept], None if times is None else times[kept]
        steps.append(Step("weights that add up to 0 left out", *shape, len(starts)))
    matrix = csr_array((shortest_float(data), np.divmod(pairs[starts], max(1, shape[1]))), shape=shape)
    return Interactions(matrix, user_ids, item_ids, times, _titles(parts, item_ids, item_places), tuple(steps))


def _union(ids: list[NDArray[Any]], what: str) -> tuple[NDArray[Any], list[NDArray[np.intp]]]:
    """All ids, sorted, and the places among them of those of each part."""
    if len({one.dtype.kind for one in ids if one.size}) > 1:
        raise DataError(
            f"{what} are whole numbers in one part and text in another: read all with ", Setting("ids", "text")
        )
    union, places = factorise(np.concatenate([one for one in ids if one.size] or ids))
    return union, np.split(places, np.cumsum([one.size for one in ids])[:-1])


def _have_times(parts: Sequence[Interactions]) -> bool:
    timed = [part.times is not None for part in parts]
    if any(timed) and not all(timed):
        raise DataError("some parts have times and others none: read all with ", Setting("time"), ", or none")
    return all(timed)


def _titles(
    parts: Sequence[Interactions], ids: NDArray[Any], places: Sequence[NDArray[np.intp]]
) -> NDArray[Any] | None:
    """The first title of each item; an item that only goes by its id may have one in another part."""
    if all(part.titles is None for part in parts):
        return None
    named = np.array(list(map(str, ids.tolist())), object)
    titles = named.copy()
    for part, place in reversed(list(zip(parts, places, strict=True))):
        if part.titles is not None:
            titles[place] = np.where(part.titles == named[place], titles[place], part.titles)
    return titles
