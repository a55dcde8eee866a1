"""Histories as people give them, as a matrix in a model's columns."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from numbers import Real
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from deql._system.callers import levels_to_the_caller
from deql.data import Interactions
from deql.data.interactions import ItemId, is_frame
from deql.data.matrices import SparseMatrix, canonical, masked, shortest_float
from deql.errors import ParameterError, UnknownItemError, name_some
from deql.ranking import NO_ITEM
from deql.ranking.item_lookup import TitleIndex, find_column, wrong_kind

__all__ = [
    "NO_ITEM", "Histories", "History", "allowed_columns", "allowed_items", "encode_histories", "encode_history",
    "ids_of_kind", "known_columns", "name_unknown", "weighted_columns",
]  # fmt: skip

History: TypeAlias = Iterable[ItemId] | Mapping[ItemId, float]
"""One user's items, by id or title; a mapping gives each a weight."""

Histories: TypeAlias = Interactions | SparseMatrix | NDArray[Any] | Iterable[History]
"""Those of several users: interactions, a matrix with the model's columns, or lists and mappings of items."""


_LARGEST_WEIGHT = float(np.finfo(np.float32).max)
"""Models in single precision hold no larger number."""

_MOST_LOOKED_AT = 1000
"""Unknown items among which one of another type is looked for."""


def encode_histories(
    histories: Histories,
    index: Mapping[Any, int],
    items: NDArray[Any],
    strict: bool,
    where: str = "histories",
    titles: TitleIndex | None = None,
) -> csr_array:
    """Histories as a users × items matrix in the model's columns, with their weights: 1 where none are given.

    Parameters
    ----------
    histories : Interactions, sparse matrix, or sequence of sequences or mappings of items
        A matrix must have the model's columns. A mapping gives each item a weight.
    index : mapping
        Column of each item id.
    items : ndarray
        Item ids in the order of columns.
    strict : bool
        Unknown ids are an error rather than ignored with a warning.
    where : str, default "histories"
        What the error or the warning calls them.
    titles : TitleIndex, optional
        By which items may be given, too.
    """
    if isinstance(histories, Interactions):
        return _encode_interactions(histories, index, items, strict, where, titles)
    if _is_matrix(histories):
        matrix = canonical(histories)
        if matrix.shape[1] != len(items):
            raise ParameterError(
                f"a matrix of histories needs the model's {len(items):,} columns, got {matrix.shape[1]:,}",
                parameter="histories",
            )
        return matrix
    rows = _as_rows(histories)
    indptr = np.zeros(len(rows) + 1, np.int64)
    indices: list[int] = []
    values: list[float] = []
    unknown: list[Any] = []
    for r, row in enumerate(rows):
        columns_of_row, values_of_row, unknown_of_row = known_columns(row, index, titles)
        indices.extend(columns_of_row)
        values.extend(values_of_row)
        unknown.extend(unknown_of_row)
        indptr[r + 1] = len(indices)
    _tell_unknown(unknown, index, strict, where)
    data = shortest_float(np.array(values, np.float64))
    return csr_array((data, np.array(indices, np.int32), indptr.astype(np.int32)), shape=(len(rows), len(items)))


def encode_history(
    history: History | Interactions | SparseMatrix | NDArray[Any],
    index: Mapping[Any, int],
    items: NDArray[Any],
    strict: bool,
    titles: TitleIndex | None = None,
) -> csr_array:
    """One user's history, in any of the forms that :func:`encode_histories` takes several in, as one row.

    Examples
    --------
    >>> row = encode_history({"tea": 2.5, "jam": 0.0}, {"jam": 0, "tea": 1}, np.array(["jam", "tea"]), strict=False)
    >>> row.toarray().tolist()
    [[0.0, 2.5]]
    """
    rows: Any = history
    if not isinstance(rows, Interactions) and not (_is_matrix(rows) and rows.ndim == 2):
        if isinstance(rows, str | bytes) or not isinstance(rows, Iterable) or is_frame(rows):
            raise ParameterError(f"a history must be a list of item ids, got {name_some([rows])}", parameter="history")
        rows = [rows]
    matrix = encode_histories(rows, index, items, strict, titles=titles)
    if matrix.shape[0] != 1:
        raise ParameterError(f"one history is wanted, one row, got {matrix.shape[0]:,}", parameter="history")
    return matrix


def known_columns(
    history: History, index: Mapping[Any, int], titles: TitleIndex | None = None
) -> tuple[list[int], list[float], list[Any]]:
    """The columns of a history's items, sorted and each once, their weights, and the items that have no column.

    Examples
    --------
    >>> known_columns(["tea", "oat", "jam", "tea"], {"jam": 0, "tea": 1})
    ([0, 1], [1.0, 1.0], ['oat'])
    >>> known_columns({"tea": 2.5, "oat": 1}, {"jam": 0, "tea": 1})
    ([1], [2.5], ['oat'])
    """
    if isinstance(history, Mapping):
        return weighted_columns(history.items(), index, titles)
    items, unknown = list(history), []
    try:
        found = set(map(index.get, items))
    except TypeError:  # of an item that cannot be a key; which one, the slower way says
        found = {None}
    if None in found:
        found = set()
        for item in items:
            column = find_column(item, index, titles)
            if column is None:
                unknown.append(item)
            else:
                found.add(column)
    columns = sorted(column for column in found if column is not None)
    return columns, [1.0] * len(columns), unknown


def weighted_columns(
    pairs: Iterable[tuple[Any, Any]], index: Mapping[Any, int], titles: TitleIndex | None = None
) -> tuple[list[int], list[float], list[Any]]:
    """The same for items with their weights: those of one item add up, and what weighs 0 is not in the history.

    Examples
    --------
    >>> weighted_columns([("tea", 2.5), ("jam", 0), ("tea", -0.5)], {"jam": 0, "tea": 1})
    ([1], [2.0], [])
    """
    weights: dict[int, float] = {}
    unknown = []
    for item, given in pairs:
        weight = _as_weight(given, item)
        if weight == 0.0:
            continue
        column = find_column(item, index, titles)
        if column is None:
            unknown.append(item)
        else:
            weights[column] = _as_weight(weights.get(column, 0.0) + weight, item)  # a sum may be too large, too
    columns = sorted(column for column, weight in weights.items() if weight)
    return columns, [weights[column] for column in columns], unknown


def allowed_columns(
    n: int,
    index: Mapping[Any, int],
    exclude: Iterable[ItemId] | None,
    candidates: Iterable[ItemId] | None,
    titles: TitleIndex | None = None,
) -> tuple[NDArray[np.bool_], dict[str, list[Any]]]:
    """Which columns may be recommended, and what of ``candidates`` and of ``exclude`` is unknown.

    An error if candidates are given and none of them is known.

    Examples
    --------
    >>> allowed_columns(2, {"jam": 0, "tea": 1}, None, ["tea", "gin"])
    (array([False,  True]), {'candidates': ['gin'], 'exclude': []})
    """
    allowed = np.full(n, candidates is None)
    unknown: dict[str, list[Any]] = {}
    for name, given, value in (("candidates", candidates, True), ("exclude", exclude, False)):
        if isinstance(given, str | bytes) or not isinstance(given, Iterable | None):
            raise ParameterError(f"{name} must be a list of item ids, got {name_some([given])}", parameter=name)
        found = [(item, find_column(item, index, titles)) for item in given or ()]
        unknown[name] = [item for item, column in found if column is None]
        allowed[[column for _, column in found if column is not None]] = value
        if name == "candidates" and found and len(unknown[name]) == len(found):
            raise UnknownItemError(f"the model knows none of the candidates: {name_unknown(unknown[name], index)}")
    return allowed, unknown


def allowed_items(
    n: int,
    index: Mapping[Any, int],
    exclude: Iterable[ItemId] | None,
    candidates: Iterable[ItemId] | None,
    strict: bool,
    titles: TitleIndex | None = None,
) -> NDArray[np.bool_]:
    """Which columns may be recommended.

    Unknown candidates are ignored with a warning that counts them, or an error if ``strict``. What is excluded and
    unknown cannot come anyway: it is an error if ``strict``, and worth a warning where an id of another type was meant.
    """
    allowed, unknown = allowed_columns(n, index, exclude, candidates, titles)
    for name, items in unknown.items():
        if items and strict:
            raise UnknownItemError(f"{name} names items the model does not know: {name_unknown(items, index)}")
        if name == "candidates" or wrong_kind(items, index):
            _tell_unknown(items, index, strict, name)
    return allowed


def _encode_interactions(
    histories: Interactions,
    index: Mapping[Any, int],
    items: NDArray[Any],
    strict: bool,
    where: str,
    titles: TitleIndex | None,
) -> csr_array:
    if histories.items is items or np.array_equal(histories.items, items):
        return histories.matrix
    columns = np.array([index.get(item, NO_ITEM) for item in ids_of_kind(histories.items, items)], np.int32)
    if titles is not None and histories.items.dtype == object:
        for place in np.flatnonzero(columns == NO_ITEM):
            found = find_column(histories.items[place], index, titles)
            columns[place] = NO_ITEM if found is None else found
    known = columns[histories.matrix.indices] >= 0
    _tell_unknown(histories.items[histories.matrix.indices[~known]].tolist(), index, strict, where)
    narrow = masked(histories.matrix, known)
    placed = (narrow.data, columns[narrow.indices], narrow.indptr)
    matrix = canonical(csr_array(placed, shape=(histories.n_users, len(items))))
    if matrix.nnz < narrow.nnz and (narrow.data == 1).all():  # an id and its title, without weights: once
        matrix.data[:] = 1
    return matrix


def _is_matrix(histories: Any) -> bool:
    return issparse(histories) or (isinstance(histories, np.ndarray) and histories.dtype.kind in "biuf")


def _as_weight(weight: Any, item: Any) -> float:
    try:
        number = float(weight) if isinstance(weight, float | int | Real | Decimal | np.bool_) else np.nan
    except OverflowError:
        number = np.inf
    if not abs(number) <= _LARGEST_WEIGHT:
        raise ParameterError(
            f"the weight of {name_some([item])} in a history must be a finite number, got {name_some([weight])}",
            parameter="histories",
        )
    return number


def ids_of_kind(ids: NDArray[Any], model_ids: NDArray[Any]) -> list[Any]:
    """Ids of another table as the model would have read them: text for text, whole numbers for numbers.

    Examples
    --------
    >>> ids_of_kind(np.array([7, 8]), np.array(["7", "x"], object))
    ['7', '8']
    """
    if (ids.dtype == object) == (model_ids.dtype == object):
        return list(ids.tolist())
    if model_ids.dtype == object:
        return [str(item) for item in ids.tolist()]
    whole = {str(item): item for item in model_ids.tolist()}
    return [whole.get(str(item)) for item in ids.tolist()]


def _as_rows(histories: Any) -> list[History]:
    hint = "histories must be a list of histories, each a list of item ids, such as [['a', 'b'], ['c']]"
    if isinstance(histories, str | bytes | Mapping) or not isinstance(histories, Iterable):
        one = " (for one user with weights, wrap the mapping in a list)" if isinstance(histories, Mapping) else ""
        raise ParameterError(f"{hint}; got {name_some([histories])}{one}", parameter="histories")
    rows = list(histories)
    for row in rows:
        if isinstance(row, str | bytes) or not isinstance(row, Iterable):
            raise ParameterError(
                f"{hint}; one of them is {name_some([row])} (for one user, wrap the list once more)",
                parameter="histories",
            )
    return rows


def _tell_unknown(unknown: Sequence[Any], index: Mapping[Any, int], strict: bool, where: str) -> None:
    if not unknown:
        return
    if strict:
        raise UnknownItemError(f"{where} name items the model does not know: {name_unknown(unknown, index)}")
    items = "item" if len(unknown) == 1 else "items"
    warnings.warn(
        f"ignored {len(unknown):,} unknown {items} in {where}: {name_unknown(unknown, index)}",
        stacklevel=levels_to_the_caller(),
    )


def name_unknown(unknown: Sequence[Any], index: Mapping[Any, int]) -> str:
    """Some of the unknown items, each once, and what is wrong with one of them if that can be told.

    Examples
    --------
    >>> name_unknown(["7", "x"], {7: 0})
    "'7', 'x'; the model's ids are whole numbers and '7' is text: give 7"
    """
    distinct = list(dict.fromkeys(unknown))
    hint = wrong_kind(distinct[:_MOST_LOOKED_AT], index)
    return name_some(distinct) + (f"; {hint}" if hint else "")
