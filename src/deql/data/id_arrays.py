"""Ids of users and items as arrays: integers, or objects such as text."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deql.errors import DataError

__all__ = ["as_ids", "factorise", "id_array"]


def as_ids(ids: ArrayLike | None, length: int, what: str) -> NDArray[Any]:
    """Ids as an array of integers or objects, checked to be unique and of the right length."""
    if ids is None:
        return np.arange(length)
    array = id_array(ids)
    if array.shape != (length,):
        raise DataError(f"{length:,} {what} need {length:,} ids, got {array.shape[0]:,}")
    if len(set(array.tolist())) != length:
        raise DataError(f"the ids of {what} must be unique")
    return array


def id_array(ids: ArrayLike) -> NDArray[Any]:
    """Ids as a flat array of integers or objects."""
    try:
        # NumPy's own text is as wide everywhere as the longest id.
        text = isinstance(ids, list | tuple) and bool(ids) and isinstance(ids[0], str)
        array = np.array(ids, dtype=object) if text else np.asarray(ids)
    except ValueError:  # of ids like ("ann", 1) some have more parts than others
        array = np.array(ids, dtype=object)
    if array.dtype.kind == "U" and not isinstance(ids, np.ndarray):
        array = np.array(ids, dtype=object)  # else numbers among the text would become text
    if array.ndim != 1:
        raise DataError(f"ids must be a flat sequence, got {array.ndim} dimensions")
    if array.dtype.kind in "iu":
        if len(array) and array.max() > np.iinfo(np.int64).max:
            raise DataError(f"the id {array.max()} is too large for a whole number of 64 bits: give the ids as text")
        return array.astype(np.int64)
    return array if array.dtype == object else array.astype(object)


def factorise(ids: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """Sorted distinct ids and the place of each given one among them.

    Examples
    --------
    >>> distinct, places = factorise(np.array(["tea", "jam", "tea"], object))
    >>> distinct.tolist(), places.tolist()
    (['jam', 'tea'], [1, 0, 1])
    """
    try:
        distinct, places = np.unique(ids, return_inverse=True)
    except TypeError:
        kinds = sorted({type(one).__name__ for one in ids.tolist()})
        raise DataError(f"ids must be all of one kind, got {' and '.join(kinds)}") from None
    return distinct, places
