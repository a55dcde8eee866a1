"""Batches of changes as plain values, which a line of JSON can hold, and back."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from deql.data.changes import Batch
from deql.data.id_arrays import id_array
from deql.data.interactions import Interactions
from deql.data.matrices import check_compressed, shortest_float
from deql.errors import DataError

__all__ = ["batch_from_record", "batch_to_record"]

_PAIRS = ("added", "removed")
_IDS = ("forget_users", "retire_items")


def batch_to_record(batch: Batch) -> dict[str, Any]:
    """A batch as numbers, text, lists and dictionaries; what it does not ask for is left out.

    Examples
    --------
    >>> batch = Batch(Interactions.from_pairs(["ann", "bob"], ["tea", "jam"]), retire_items=("oat",))
    >>> batch_to_record(batch)  # doctest: +NORMALIZE_WHITESPACE
    {'added': {'users': ['ann', 'bob'], 'items': ['jam', 'tea'], 'ends': [1, 2], 'columns': [1, 0]},
     'retire_items': ['oat']}
    """
    parts = {name: getattr(batch, name) for name in _PAIRS}
    record: dict[str, Any] = {name: _pairs_to_record(part) for name, part in parts.items() if part is not None}
    return record | {name: id_array([*dict.fromkeys(ids)]).tolist() for name in _IDS if (ids := getattr(batch, name))}


def batch_from_record(record: Any) -> Batch:
    """What :func:`batch_to_record` gave; DataError if it is no such record.

    Examples
    --------
    >>> batch = Batch(Interactions.from_pairs(["ann", "bob"], ["tea", "jam"]), forget_users=("cat",))
    >>> again = batch_from_record(batch_to_record(batch))
    >>> again.added.history("ann"), again.forget_users
    (['tea'], ('cat',))
    """
    try:
        if not isinstance(record, dict) or not record.keys() <= {*_PAIRS, *_IDS}:
            raise ValueError("it is not what a batch is written as")
        added, removed = (_pairs_from_record(record[name]) if name in record else None for name in _PAIRS)
        forget, retire = (tuple(_ids(record.get(name, []), name).tolist()) for name in _IDS)
    except KeyError as error:
        raise DataError(f"a batch of changes is damaged: it has no {error.args[0]}") from None
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(f"a batch of changes is damaged: {error}") from None
    return Batch(added, removed, forget, retire)


def _pairs_to_record(data: Interactions) -> dict[str, Any]:
    """Ids once, in their order, which is that of new users and items; then where each user's items end, and items."""
    data = data.without_empty()
    matrix = data.matrix
    record = {
        "users": data.users.tolist(),
        "items": data.items.tolist(),
        "ends": matrix.indptr[1:].tolist(),
        "columns": matrix.indices.tolist(),
    }
    if (matrix.data != 1).any():
        record["weights"] = matrix.data.tolist()
    if data.times is not None:
        record["times"] = data.times.tolist()
    if data.titles is not None:
        record["titles"] = data.titles.tolist()
    return record


def _pairs_from_record(record: Any) -> Interactions:
    if not isinstance(record, dict):
        raise ValueError("its interactions are no JSON object")
    users, items = (_ids(record[name], name) for name in ("users", "items"))
    columns = _numbers(record["columns"], "columns", np.int32)
    indptr = np.concatenate([[0], _numbers(record["ends"], "ends", np.int32)]).astype(np.int32)
    weights = np.ones(len(columns), np.float32)
    if "weights" in record:
        weights = shortest_float(_numbers(record["weights"], "weights", np.float64))
    matrix = csr_array((weights, columns, indptr), shape=(len(users), len(items)))
    check_compressed(matrix)
    if not matrix.has_canonical_format:
        raise ValueError("a user has an item twice, or items out of order")
    times = _numbers(record["times"], "times", np.float64) if "times" in record else None
    titles = None if "titles" not in record else np.array([*map(str, record["titles"])], object)
    return Interactions(matrix, users, items, times, titles)


def _ids(given: Any, name: str) -> NDArray[Any]:
    """Ids, all of one kind and each once."""
    kinds = {type(one) for one in given} if isinstance(given, list) else {None}
    if not kinds <= {int} and not kinds <= {str}:
        raise ValueError(f"its {name} are not a list of whole numbers or of text")
    if len(set(given)) < len(given):
        raise ValueError(f"its {name} are not all different")
    return id_array(given)


def _numbers(given: Any, name: str, dtype: Any) -> NDArray[Any]:
    kinds = int if dtype is np.int32 else int | float
    if not isinstance(given, list) or not all(isinstance(one, kinds) and not isinstance(one, bool) for one in given):
        raise ValueError(f"its {name} are not a list of numbers")
    numbers = np.array(given, dtype)
    if not np.isfinite(numbers).all():
        raise ValueError(f"its {name} are not all finite")
    return numbers
