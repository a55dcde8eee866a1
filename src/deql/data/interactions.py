"""Who did what, as a sparse matrix with the names of its rows and columns."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array, issparse, sparray, spmatrix

from deql._system.frames import make_frame
from deql.data.notebook import interactions_html
from deql.errors import DataError, Setting

if TYPE_CHECKING:
    from narwhals.typing import IntoFrame
else:  # importing narwhals would cost everybody who has no frames
    IntoFrame = Any

__all__ = [
    "Interactions",
    "InteractionsLike",
    "ItemId",
    "SparseMatrix",
    "Step",
    "UserId",
    "as_ids",
    "as_interactions",
    "canonical",
    "factorise",
    "id_array",
    "is_frame",
    "masked",
    "shortest_float",
]

ItemId: TypeAlias = Hashable
"""What stands for an item: a whole number or text; any other value that can be a key works until a model is saved."""

UserId: TypeAlias = Hashable
"""What stands for a user, likewise."""

SparseMatrix: TypeAlias = sparray | spmatrix
"""Any of SciPy's sparse formats."""


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

    def __post_init__(self) -> None:
        # Kernels rely on sorted columns without duplicates, whoever built the matrix.
        ordered = canonical(self.matrix)
        if self.times is not None and not len(self.times) == ordered.nnz == self.matrix.nnz:
            raise DataError(f"{ordered.nnz:,} interactions need as many times, got {len(self.times):,}")
        if self.times is not None and self.matrix.format == "csr" and not self.matrix.has_canonical_format:
            raise DataError("times need a matrix whose columns are sorted within rows")
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

    def __getitem__(self, rows: Any) -> Interactions:
        """Some users, same items, by number, slice or mask of rows: ``data[:100]``, as scikit-learn takes folds.

        Examples
        --------
        >>> import deql
        >>> deql.Interactions.from_pairs(["ann", "ann", "bob"], ["tea", "jam", "tea"])[1:].users.tolist()
        ['bob']
        """
        if isinstance(rows, tuple) and len(rows) == 2 and rows[1] in (..., slice(None)):
            rows = rows[0]
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
            self, matrix=self.matrix[rows], users=self.users[rows], times=self._times_of(lambda whole: whole[rows])
        )

    def take_items(self, columns: NDArray[Any]) -> Interactions:
        """The given columns (ascending numbers or a mask), same users."""
        return replace(
            self,
            matrix=csr_array(self.matrix[:, columns]),
            items=self.items[columns],
            times=self._times_of(lambda whole: whole[:, columns]),
            titles=None if self.titles is None else self.titles[columns],
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
        return replace(self, matrix=masked(self.matrix, mask), times=None if self.times is None else self.times[mask])

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
        return frame if kind in (None, "polars") else make_frame(frame.to_dict(as_series=False), kind)

    def _times_of(self, part: Callable[[csr_array], csr_array]) -> NDArray[np.float64] | None:
        """Times of a part of the matrix: taking the part from a matrix of places says where they stand."""
        if self.times is None:
            return None
        places = csr_array((np.arange(self.matrix.nnz), self.matrix.indices, self.matrix.indptr), self.matrix.shape)
        return np.asarray(self.times[csr_array(part(places)).data])

    def __repr__(self) -> str:
        return f"Interactions({self.n_users:,} users × {self.n_items:,} items, {self.n_interactions:,} interactions)"

    def _repr_html_(self) -> str:
        return interactions_html(self)


def masked(matrix: csr_array, mask: NDArray[np.bool_]) -> csr_array:
    """The marked stored values of a matrix, in the same shape.

    Examples
    --------
    >>> masked(csr_array([[1.0, 2.0], [0.0, 3.0]]), np.array([False, True, True])).toarray().tolist()
    [[0.0, 2.0], [0.0, 3.0]]
    """
    indptr = np.concatenate([[0], np.cumsum(mask)])[matrix.indptr].astype(matrix.indptr.dtype)
    return csr_array((matrix.data[mask], matrix.indices[mask], indptr), shape=matrix.shape)


def canonical(matrix: Any) -> csr_array:
    """Float CSR without stored zeros or duplicates, columns sorted; a copy only where needed.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> canonical(csr_array([[1, 0], [2, 3]])).dtype
    dtype('float32')
    """
    if not issparse(matrix):
        if hasattr(matrix, "columns"):
            raise DataError(f"expected Interactions or a users × items matrix, got a {type(matrix).__name__}: "
                            "a frame with a row for each interaction goes through deql.read_interactions")  # fmt: skip
        try:
            matrix = np.asarray(matrix)
        except ValueError:  # lists that differ in length
            raise DataError(
                "expected Interactions or a users × items matrix, got lists that differ in length: "
                "deql.Interactions.from_pairs makes interactions of users and items"
            ) from None
        if matrix.ndim != 2 or matrix.dtype.kind not in "biuf":
            raise DataError(
                "expected Interactions or a users × items sparse matrix of numbers, "
                f"got an array of shape {matrix.shape} and type {matrix.dtype}"
            )
    if matrix.dtype.kind not in "biuf":
        raise DataError(f"the matrix must hold real numbers, got {matrix.dtype}")
    dtype = np.float64 if matrix.dtype == np.float64 else np.float32
    if hasattr(matrix, "check_format"):
        # SciPy takes columns beyond the shape; it and the kernels would read and write beside their arrays.
        try:
            check_compressed(type(matrix)(matrix))
        except ValueError as error:
            raise DataError(f"the sparse matrix contradicts itself: {error}") from None
    csr = csr_array(matrix, dtype=dtype)
    if csr.indices.dtype != np.int32 and max(csr.nnz, *csr.shape) < 2**31:  # half the memory, and one kernel to compile
        csr = csr_array((csr.data, csr.indices.astype(np.int32), csr.indptr.astype(np.int32)), shape=csr.shape)
    if not csr.has_canonical_format or (csr.nnz and not csr.data.all()):
        csr = csr.copy()
        csr.sum_duplicates()
        csr.eliminate_zeros()
    if not np.isfinite(csr.data).all():  # duplicates can add up to infinity, too
        place = int(np.flatnonzero(~np.isfinite(csr.data))[0])
        row = int(np.searchsorted(csr.indptr, place, side="right")) - 1
        raise DataError(
            f"row {row}, column {csr.indices[place]} is {csr.data[place]}: remove or replace values that are not finite"
        )
    return csr


def check_compressed(matrix: Any) -> None:
    """Raise ValueError unless a sparse matrix is one throughout: the kernels trust where its rows begin and end.

    Examples
    --------
    >>> check_compressed(csr_array([[1.0, 0.0], [0.0, 2.0]]))
    """
    matrix.check_format(full_check=True)
    # SciPy looks at differences, which go around where numbers of 32 bits do.
    ends = getattr(matrix, "indptr", None)
    if ends is not None and (ends[1:] < ends[:-1]).any():
        raise ValueError("its rows or columns end before they begin")


def shortest_float(values: NDArray[Any]) -> NDArray[Any]:
    """Single precision where that loses nothing.

    Examples
    --------
    >>> shortest_float(np.array([0.5, 3.0])).dtype, shortest_float(np.array([0.1])).dtype
    (dtype('float32'), dtype('float64'))
    """
    if values.dtype == np.float32:
        return values
    with np.errstate(over="ignore"):
        short = values.astype(np.float32)
    return short if np.array_equal(short, values) else values


InteractionsLike: TypeAlias = Interactions | SparseMatrix | NDArray[Any] | IntoFrame
"""What a model can be fitted on: interactions, a users × items matrix whose ids are its row and column numbers, or a
frame with a row for each interaction."""


def as_interactions(data: InteractionsLike, time: bool = False) -> Interactions:
    """Interactions as they are, anything matrix-like with numbers as ids, a frame with its columns guessed.

    Parameters
    ----------
    data : Interactions, sparse matrix, array or frame
        A frame is read as :func:`deql.read_interactions` does, which tells the columns it took; every row counts 1.
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
    array = np.asarray(ids)
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
