"""Who did what, as a sparse matrix with the names of its rows and columns."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from types import EllipsisType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array

from deql._system.frames import make_frame
from deql.data.id_arrays import as_ids, factorise, id_array
from deql.data.matrices import SparseMatrix, canonical, masked, shortest_float
from deql.data.notebook import interactions_html
from deql.errors import DataError, Setting

if TYPE_CHECKING:
    from narwhals.typing import IntoFrame

    from deql.data.partitions import PartitionedInteractions
else:  # importing narwhals would cost everybody who has no frames
    IntoFrame = PartitionedInteractions = Any

__all__ = [
    "Interactions",
    "InteractionsLike",
    "ItemId",
    "Step",
    "UserId",
    "as_interactions",
    "is_frame",
]

ItemId: TypeAlias = Hashable
"""What stands for an item: a whole number or text; any other value that can be a key works until a model is saved."""

UserId: TypeAlias = Hashable
"""What stands for a user, likewise."""


@dataclass(frozen=True)
class Step:
    """One thing that was done to a table, and what it left.

    Attributes
    ----------
    what : str
        The step in words.
    users, items, interactions : int
        How many there were after it; ``interactions`` of a reading step are its rows.
    """

    what: str
    users: int
    items: int
    interactions: int


@dataclass(frozen=True, eq=False)
class Interactions:
    """Users × items, with ids.

    Attributes
    ----------
    matrix : scipy.sparse.csr_array
        Values by user and item; no stored zeros, columns sorted within each row.
    users, items : ndarray
        Ids of rows and columns: integers, or objects such as strings.
    times : ndarray of float64 or None
        When each stored value happened, in the order of ``matrix.data``; any unit, later is larger.
    titles : ndarray of str or None
        What people call the items, in the order of ``items``.
    steps : tuple of Step
        What reading and cleaning did, so that nothing is dropped silently.
    order : ndarray of int64 or None
        Where each stored value stood in its file, in the order of ``matrix.data``, later is larger: of formats whose
        lines list a user's items, unless all of them are sorted by item. It stands in for times that are not known.

    Examples
    --------
    >>> import deql
    >>> data = deql.Interactions.from_pairs(["ann", "ann", "bob"], ["tea", "jam", "tea"])
    >>> data
    Interactions(2 users × 2 items, 3 interactions)
    >>> data.items.tolist()
    ['jam', 'tea']
    """

    matrix: csr_array
    users: NDArray[Any]
    items: NDArray[Any]
    times: NDArray[np.float64] | None = None
    titles: NDArray[Any] | None = None
    steps: tuple[Step, ...] = ()
    order: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        # Kernels rely on sorted columns without duplicates, whoever built the matrix.
        ordered = canonical(self.matrix)
        for what, values in (("times", self.times), ("places in their file", self.order)):
            if values is not None and not len(values) == ordered.nnz == self.matrix.nnz:
                raise DataError(f"{ordered.nnz:,} interactions need as many {what}, got {len(values):,}")
            if values is not None and self.matrix.format == "csr" and not self.matrix.has_canonical_format:
                raise DataError(f"{what} need a matrix whose columns are sorted within rows")
        if self.titles is not None and len(self.titles) != len(self.items):
            raise DataError(f"{len(self.items):,} items need as many titles, got {len(self.titles):,}")
        object.__setattr__(self, "matrix", ordered)
        if self.matrix.shape != (len(self.users), len(self.items)):
            raise DataError(
                f"a matrix of {self.matrix.shape} needs as many ids, got {len(self.users)} and {len(self.items)}"
            )

    @classmethod
    def from_csr(
        cls, csr: SparseMatrix | NDArray[Any], users: ArrayLike | None = None, items: ArrayLike | None = None
    ) -> Interactions:
        """Wrap a SciPy sparse matrix; ids are row and column numbers unless given.

        Parameters
        ----------
        csr : sparse matrix or array
            Users × items. It is not changed; it is copied only if it has stored zeros, duplicates or
            unsorted columns, or is not of a float type.
        users, items : array-like, optional
            Ids, unique, one for each row and column.
        """
        matrix = canonical(csr)
        m, n = matrix.shape
        return cls(matrix, as_ids(users, m, "users"), as_ids(items, n, "items"))

    @classmethod
    def from_pairs(cls, users: ArrayLike, items: ArrayLike, weights: ArrayLike | None = None) -> Interactions:
        """Build from parallel sequences; ids are sorted, repeated pairs count once (weights add up)."""
        user_ids, rows = factorise(id_array(users))
        item_ids, columns = factorise(id_array(items))
        values = np.ones(len(rows), np.float32) if weights is None else shortest_float(np.asarray(weights, np.float64))
        if not len(rows) == len(columns) == len(values):
            raise DataError(
                "users, items and weights must be as long as each other, "
                f"got {len(rows):,}, {len(columns):,} and {len(values):,}"
            )
        matrix = csr_array((values, (rows, columns)), shape=(len(user_ids), len(item_ids)))
        matrix.sum_duplicates()
        if weights is None:
            matrix.data[:] = 1
        return cls(matrix, user_ids, item_ids)

    @property
    def n_users(self) -> int:
        """Number of rows."""
        return int(self.matrix.shape[0])

    @property
    def n_items(self) -> int:
        """Number of columns."""
        return int(self.matrix.shape[1])

    @property
    def n_interactions(self) -> int:
        """Number of stored values."""
        return int(self.matrix.nnz)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of users and of items, as a matrix has it."""
        return self.n_users, self.n_items

    @property
    def item_counts(self) -> NDArray[np.int64]:
        """How many users have each item."""
        return np.bincount(self.matrix.indices, minlength=self.n_items)

    @property
    def weighted(self) -> bool:
        """Whether interactions have other weights than 1."""
        return bool((self.matrix.data != 1).any())

    def blocks(self) -> Iterator[csr_array]:
        """The rows in blocks that are in memory one at a time: here all of them are."""
        yield self.matrix

    def __getitem__(self, rows: Any) -> Interactions:
        """Some users, same items, by number, slice or mask of rows: ``data[:100]``, as scikit-learn takes folds.

        Examples
        --------
        >>> import deql
        >>> deql.Interactions.from_pairs(["ann", "ann", "bob"], ["tea", "jam", "tea"])[1:].users.tolist()
        ['bob']
        """
        if isinstance(rows, tuple) and len(rows) == 2 and isinstance(rows[1], slice | EllipsisType):
            rows = rows[0] if rows[1] in (..., slice(None)) else rows
        if isinstance(rows, tuple):
            raise DataError("interactions are indexed by users alone: take_items takes some of the items")
        return self.take_users(np.arange(self.n_users)[rows] if isinstance(rows, slice) else np.atleast_1d(rows))

    __iter__ = None  # rows are users without their ids: who wants to go through them takes history or matrix

    @cached_property
    def item_index(self) -> dict[Any, int]:
        """Column of each item id."""
        return {item: column for column, item in enumerate(self.items.tolist())}

    @cached_property
    def user_index(self) -> dict[Any, int]:
        """Row of each user id."""
        return {user: row for row, user in enumerate(self.users.tolist())}

    def history(self, user: Any) -> list[Any]:
        """Item ids of one user.

        Examples
        --------
        >>> import deql
        >>> deql.Interactions.from_pairs(["ann", "ann", "bob"], ["tea", "jam", "tea"]).history("ann")
        ['jam', 'tea']
        """
        rows = np.flatnonzero(self.users == user)
        if not rows.size:
            raise DataError(f"there is no user {user!r} among {self.n_users:,}")
        start, stop = self.matrix.indptr[rows[0]], self.matrix.indptr[rows[0] + 1]
        return list(self.items[self.matrix.indices[start:stop]].tolist())

    def take_users(self, rows: NDArray[Any]) -> Interactions:
        """The given rows (numbers or a mask), same items."""
        return replace(
            self, matrix=self.matrix[rows], users=self.users[rows], **self._when_of(lambda whole: whole[rows])
        )

    def take_items(self, columns: NDArray[Any]) -> Interactions:
        """The given columns (ascending numbers or a mask), same users."""
        return replace(
            self,
            matrix=csr_array(self.matrix[:, columns]),
            items=self.items[columns],
            titles=None if self.titles is None else self.titles[columns],
            **self._when_of(lambda whole: whole[:, columns]),
        )

    def keep(self, mask: NDArray[np.bool_]) -> Interactions:
        """The marked interactions, in the order of ``matrix.data``; same users and items.

        Examples
        --------
        >>> import numpy as np, deql
        >>> data = deql.Interactions.from_pairs(["ann", "ann", "bob"], ["tea", "jam", "tea"])
        >>> data.keep(np.array([True, False, True])).history("ann")
        ['jam']
        """
        times = None if self.times is None else self.times[mask]
        order = None if self.order is None else self.order[mask]
        return replace(self, matrix=masked(self.matrix, mask), times=times, order=order)

    def without_empty(self) -> Interactions:
        """Only the users and items that have any interaction."""
        matrix = self.matrix
        users = np.diff(matrix.indptr) > 0
        items = np.bincount(matrix.indices, minlength=self.n_items) > 0
        if users.all() and items.all():
            return self
        # A row without entries ends where it begins, so dropping its end drops the row.
        indptr = np.concatenate([matrix.indptr[:1], matrix.indptr[1:][users]])
        column = (np.cumsum(items) - 1).astype(matrix.indices.dtype)
        compact = csr_array((matrix.data, column[matrix.indices], indptr), shape=(int(users.sum()), int(items.sum())))
        titles = None if self.titles is None else self.titles[items]
        return replace(self, matrix=compact, users=self.users[users], items=self.items[items], titles=titles)

    def to_frame(self, kind: str | None = None) -> Any:
        """A row for each interaction: user, item, and what else there is of weight, time and title.

        Parameters
        ----------
        kind : {"polars", "pandas", "pyarrow"}, optional
            Whose frame; polars' if not given.

        Examples
        --------
        >>> import deql
        >>> deql.Interactions.from_pairs(["ann", "bob"], [7, 9]).to_frame("pandas").values.tolist()
        [['ann', 7], ['bob', 9]]
        """
        from deql.data.write import as_frame  # it stands on this module

        frame = as_frame(self)
        if kind in (None, "polars"):
            return frame
        return make_frame({column.name: column.to_numpy() for column in frame}, kind)

    def _when_of(self, part: Callable[[csr_array], csr_array]) -> dict[str, Any]:
        """Times and order of a part of the matrix: taking the part from a matrix of places says where they stand."""
        if self.times is None and self.order is None:
            return {}
        places = csr_array((np.arange(self.matrix.nnz), self.matrix.indices, self.matrix.indptr), self.matrix.shape)
        kept = csr_array(part(places)).data
        return {name: values[kept] for name in ("times", "order") if (values := getattr(self, name)) is not None}

    def __repr__(self) -> str:
        return f"Interactions({self.n_users:,} users × {self.n_items:,} items, {self.n_interactions:,} interactions)"

    def _repr_html_(self) -> str:
        return interactions_html(self)


InteractionsLike: TypeAlias = Interactions | PartitionedInteractions | SparseMatrix | NDArray[Any] | IntoFrame
"""What a model can be fitted on: interactions, a users × items matrix whose ids are its row and column numbers, or a
frame with a row for each interaction."""


def as_interactions(data: InteractionsLike, time: bool = False) -> Interactions:
    """Interactions as they are, anything matrix-like with numbers as ids, a frame with its columns guessed.

    Parameters
    ----------
    data : Interactions, PartitionedInteractions, sparse matrix, array or frame
        Partitions are joined. A frame is read as :func:`deql.read_interactions` does, which tells the columns it took;
        every row counts 1.
    time : bool, default False
        Find a frame's column of times, too.

    Examples
    --------
    >>> import polars as pl
    >>> as_interactions(pl.DataFrame({"user": ["ann", "bob"], "item": ["tea", "jam"]}))
    Interactions(2 users × 2 items, 2 interactions)
    """
    if isinstance(data, Interactions):
        return data
    if hasattr(type(data), "to_interactions"):  # partitions, which stand on this module
        return data.to_interactions()  # type: ignore[union-attr]
    if not is_frame(data):
        return Interactions.from_csr(data)  # type: ignore[arg-type]
    from deql.data.read import read_interactions  # it stands on this module

    try:
        return read_interactions(data, time=time or None)  # type: ignore[arg-type]
    except DataError as error:
        if not any(isinstance(part, Setting) for part in error.args):
            raise
        raise DataError(*error.args, ", in deql.read_interactions, and give what it returns") from None


def is_frame(data: Any) -> bool:
    """Whether something is a frame of some library: what has named columns.

    Examples
    --------
    >>> import polars as pl
    >>> is_frame(pl.LazyFrame({"user": [1]})), is_frame(pl.Series([1])), is_frame([[1]])
    (True, False, False)
    """
    return hasattr(type(data), "columns")  # of the type: a lazy frame's own may take long
