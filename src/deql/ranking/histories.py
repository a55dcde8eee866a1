"""Histories as people give them, as a matrix in a model's columns; and what ``recommend`` answers."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from deql._system.frames import make_frame
from deql.data import Interactions
from deql.data.interactions import ItemId, SparseMatrix, canonical
from deql.errors import ParameterError, UnknownItemError, name_some
from deql.ranking import NO_ITEM
from deql.ranking.notebook import recommendations_html, recommendations_repr

__all__ = [
    "NO_ITEM",
    "Histories",
    "History",
    "Recommendations",
    "SimilarItems",
    "allowed_items",
    "encode_histories",
    "known_columns",
    "levels_to_the_caller",
]

History: TypeAlias = Iterable[ItemId]
"""One user's items."""

Histories: TypeAlias = Interactions | SparseMatrix | NDArray[Any] | Iterable[History]
"""Those of several users: interactions, a matrix with the model's columns, or lists of item ids."""


class Recommendations(tuple[NDArray[Any], NDArray[np.float64]]):
    """What ``recommend`` returns: unpacks into ``ids, scores``.

    Attributes
    ----------
    ids : ndarray, users × k
        Item ids, best first. Where fewer than k items were left a row ends in markers: −1 if ids are
        integers, None otherwise, and the score there is NaN.
    scores : ndarray of float64, users × k
        Exact scores; for users without a usable history the share of users who have the item.
    from_popularity : ndarray of bool
        True for cold-start users, whose history was empty or unknown: their row is the fallback, the popularity order.
    titles : ndarray of str or None
        What people call the items, if the model was fitted on interactions with titles.
    users : ndarray
        Ids of the users in the order of rows; numbers from 0 for histories that came without.
    reasons : ndarray of str or None, users × k
        If asked for, the items of the history that speak most for each item, largest part first; None where nothing
        does.

    Examples
    --------
    >>> import deql
    >>> data = deql.Interactions.from_pairs(list("aabbcccd"), ["tea", "jam", "tea", "jam", "tea", "jam", "egg", "tea"])
    >>> found = deql.EASE(l2=1.0).fit(data).recommend([["egg"], []], k=2)
    >>> found.ids.tolist()
    [['jam', 'tea'], ['tea', 'jam']]
    >>> found.from_popularity.tolist()
    [False, True]
    """

    from_popularity: NDArray[np.bool_]
    titles: NDArray[Any] | None
    users: NDArray[Any]
    reasons: NDArray[Any] | None

    def __new__(
        cls,
        ids: NDArray[Any],
        scores: NDArray[np.float64],
        from_popularity: NDArray[np.bool_],
        titles: NDArray[Any] | None = None,
        users: NDArray[Any] | None = None,
        reasons: NDArray[Any] | None = None,
    ) -> Self:
        pair = super().__new__(cls, (ids, scores))
        pair.from_popularity = from_popularity
        pair.titles = titles
        pair.users = np.arange(len(ids)) if users is None else users
        pair.reasons = reasons
        return pair

    def __getnewargs__(self) -> tuple[Any, ...]:
        return self.ids, self.scores, self.from_popularity, self.titles, self.users, self.reasons

    @property
    def ids(self) -> NDArray[Any]:
        """Item ids, best first."""
        return self[0]

    @property
    def scores(self) -> NDArray[np.float64]:
        """Scores, largest first."""
        return self[1]

    _row: ClassVar[str] = "user"
    __repr__ = recommendations_repr
    _repr_html_ = recommendations_html

    def to_frame(self, kind: str | None = None) -> Any:
        """A row for each user and rank: user, rank, item, title if there are any, score, from_popularity, reason.

        Parameters
        ----------
        kind : {"polars", "pandas", "pyarrow"}, optional
            Whose frame; polars' if not given.

        Examples
        --------
        >>> import deql
        >>> eaten = ["tea", "jam", "tea", "jam", "tea", "jam", "egg", "tea"]
        >>> data = deql.Interactions.from_pairs(list("aabbcccd"), eaten)
        >>> frame = deql.EASE(l2=1.0).fit(data).recommend([["egg"]], k=2).to_frame("pandas")
        >>> frame[["user", "rank", "item"]].values.tolist()
        [[0, 1, 'jam'], [0, 2, 'tea']]
        """
        filled = ~np.isnan(self.scores)
        rows, ranks = np.nonzero(filled)
        columns = {"user": self.users[rows], "rank": ranks + 1, "item": self.ids[filled]}
        if self.titles is not None:
            columns["title"] = self.titles[filled]
        columns |= {"score": self.scores[filled], "from_popularity": self.from_popularity[rows]}
        if self.reasons is not None:
            columns["reason"] = self.reasons[filled]
        return make_frame(columns, kind)


class SimilarItems(Recommendations):
    """What ``similar_items`` returns for several items: unpacks into ``ids, scores``, a row for each item asked for.

    Attributes
    ----------
    ids, scores, titles
        As in :class:`Recommendations`.
    items : ndarray
        What was asked for, in the order of rows.

    Examples
    --------
    >>> import deql
    >>> data = deql.Interactions.from_pairs(list("aabbcccd"), ["tea", "jam", "tea", "jam", "tea", "jam", "egg", "tea"])
    >>> deql.EASE(l2=1.0).fit(data).similar_items(["jam", "egg"], k=1).to_frame()[["item", "similar"]].rows()
    [('jam', 'tea'), ('egg', 'jam')]
    """

    _row = "item"

    @property
    def items(self) -> NDArray[Any]:
        """What was asked for, in the order of rows."""
        return self.users

    def to_frame(self, kind: str | None = None) -> Any:
        """A row for each item and rank: item, rank, similar (the other one), its title if there are any, and score."""
        filled = ~np.isnan(self.scores)
        rows, ranks = np.nonzero(filled)
        columns = {"item": self.items[rows], "rank": ranks + 1, "similar": self.ids[filled]}
        if self.titles is not None:
            columns["title"] = self.titles[filled]
        return make_frame(columns | {"score": self.scores[filled]}, kind)


def encode_histories(
    histories: Histories, index: dict[Any, int], items: NDArray[Any], strict: bool, where: str = "histories"
) -> csr_array:
    """Histories as a users × items matrix in the model's columns.

    Parameters
    ----------
    histories : Interactions, sparse matrix, or sequence of sequences of item ids
        A matrix must have the model's columns.
    index : dict
        Column of each item id.
    items : ndarray
        Item ids in the order of columns.
    strict : bool
        Unknown ids are an error rather than ignored with a warning.
    where : str, default "histories"
        What the error or the warning calls them.
    """
    if isinstance(histories, Interactions):
        if histories.items is items or np.array_equal(histories.items, items):
            return histories.matrix
        columns = np.array([index.get(item, NO_ITEM) for item in _ids_of_kind(histories.items, items)])
        _tell_unknown(
            histories.items[histories.matrix.indices[columns[histories.matrix.indices] < 0]].tolist(), strict, where
        )
        known = np.flatnonzero(columns >= 0)
        narrow = csr_array(histories.matrix[:, known]).tocoo()
        placed = (narrow.data, (narrow.row, columns[known][narrow.col]))
        return canonical(csr_array(placed, shape=(histories.n_users, len(items))))
    if issparse(histories) or (isinstance(histories, np.ndarray) and histories.dtype.kind in "biuf"):
        matrix = canonical(histories)
        if matrix.shape[1] != len(items):
            raise ParameterError(
                f"a matrix of histories needs the model's {len(items):,} columns, got {matrix.shape[1]:,}",
                parameter="histories",
            )
        return matrix
    rows = _as_lists(histories)
    indptr = np.zeros(len(rows) + 1, np.int64)
    indices: list[int] = []
    unknown: list[Any] = []
    for r, row in enumerate(rows):
        columns_of_row, unknown_of_row = known_columns(row, index)
        indices.extend(columns_of_row)
        unknown.extend(unknown_of_row)
        indptr[r + 1] = len(indices)
    _tell_unknown(unknown, strict, where)
    values = np.ones(len(indices), np.float32)
    return csr_array((values, np.array(indices, np.int32), indptr.astype(np.int32)), shape=(len(rows), len(items)))


def known_columns(history: Iterable[Any], index: dict[Any, int]) -> tuple[list[int], list[Any]]:
    """The columns of a history's items, sorted and each once, and the items that have none.

    Examples
    --------
    >>> known_columns(["tea", "oat", "jam", "tea"], {"jam": 0, "tea": 1})
    ([0, 1], ['oat'])
    """
    columns, unknown = set(), []
    for item in history:
        column = _lookup(item, index)
        if column is None:
            unknown.append(item)
        else:
            columns.add(column)
    return sorted(columns), unknown


def allowed_items(
    n: int,
    index: dict[Any, int],
    exclude: Iterable[ItemId] | None,
    candidates: Iterable[ItemId] | None,
    strict: bool,
) -> NDArray[np.bool_]:
    """Which columns may be recommended.

    Unknown candidates are an error; what is excluded and unknown cannot come anyway, and is one only
    if ``strict``.
    """
    allowed = np.full(n, candidates is None)
    for name, given, value in (("candidates", candidates, True), ("exclude", exclude, False)):
        if given is None:
            continue
        if isinstance(given, str) or not isinstance(given, Iterable):
            raise ParameterError(f"{name} must be a list of item ids, got {given!r}", parameter=name)
        found = [(item, _lookup(item, index)) for item in given]
        unknown = [item for item, column in found if column is None]
        if unknown and (strict or name == "candidates"):
            raise UnknownItemError(f"{name} names items the model does not know: {name_some(unknown)}")
        allowed[[column for _, column in found if column is not None]] = value
    return allowed


def _lookup(item: Any, index: dict[Any, int]) -> int | None:
    try:
        return index.get(item)
    except TypeError:  # unhashable: a list where an id was expected
        raise ParameterError(f"an item id must be a single value, got {item!r}") from None


def _ids_of_kind(ids: NDArray[Any], model_ids: NDArray[Any]) -> list[Any]:
    """Ids of another table as the model would have read them: text for text, whole numbers for numbers."""
    if (ids.dtype == object) == (model_ids.dtype == object):
        return list(ids.tolist())
    if model_ids.dtype == object:
        return [str(item) for item in ids.tolist()]
    whole = {str(item): item for item in model_ids.tolist()}
    return [whole.get(str(item)) for item in ids.tolist()]


def _as_lists(histories: Any) -> list[Sequence[Any]]:
    hint = "histories must be a list of histories, each a list of item ids, such as [['a', 'b'], ['c']]"
    if isinstance(histories, str | bytes) or not isinstance(histories, Iterable):
        raise ParameterError(f"{hint}; got {histories!r}", parameter="histories")
    rows = list(histories)
    for row in rows:
        if isinstance(row, str | bytes) or not isinstance(row, Iterable):
            raise ParameterError(
                f"{hint}; one of them is {row!r} (for one user, wrap the list once more)", parameter="histories"
            )
    return [list(row) for row in rows]


def _tell_unknown(unknown: Sequence[Any], strict: bool, where: str) -> None:
    if not unknown:
        return
    distinct = list(dict.fromkeys(unknown))
    if strict:
        raise UnknownItemError(f"{where} name items the model does not know: {name_some(distinct)}")
    warnings.warn(
        f"ignored {len(unknown):,} unknown item{'s' if len(unknown) > 1 else ''} in {where}: {name_some(distinct)}",
        stacklevel=levels_to_the_caller(),
    )


def levels_to_the_caller() -> int:
    """How far up the stack, seen from who asks, the code outside this package is."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("deql."):
        level, frame = level + 1, frame.f_back
    return level
