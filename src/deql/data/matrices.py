"""Sparse matrices as the kernels want them: CSR of floats, checked, sorted, without zeros."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse, sparray, spmatrix

from deql.errors import DataError

__all__ = [
    "SparseMatrix",
    "canonical",
    "check_compressed",
    "empty_rows",
    "entry_rows",
    "has_entries",
    "masked",
    "rearranged",
    "shortest_float",
    "widened",
    "with_rows",
]

SparseMatrix: TypeAlias = sparray | spmatrix
"""Any of SciPy's sparse formats."""


def entry_rows(matrix: csr_array) -> NDArray[np.int64]:
    """The row of each stored value.

    Examples
    --------
    >>> entry_rows(csr_array([[1.0, 2.0], [0.0, 3.0]])).tolist()
    [0, 0, 1]
    """
    return np.repeat(np.arange(matrix.shape[0], dtype=np.int64), np.diff(matrix.indptr))


def has_entries(matrix: csr_array, other: csr_array) -> NDArray[np.bool_]:
    """Whether a matrix has a value where each stored value of another of its shape stands; neither has duplicates.

    Examples
    --------
    >>> has_entries(csr_array([[1.0, 0.0], [0.0, 3.0]]), csr_array([[1.0, 2.0], [0.0, 3.0]])).tolist()
    [True, False, True]
    """
    wanted, own = (entry_rows(part) * part.shape[1] + part.indices for part in (other, matrix))
    return np.isin(wanted, own, assume_unique=True)


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


def empty_rows(n_items: int) -> csr_array:
    """Nobody's rows.

    Examples
    --------
    >>> empty_rows(3).shape
    (0, 3)
    """
    return csr_array(np.zeros((0, n_items), np.float32))


def widened(matrix: csr_array, shape: tuple[int, int]) -> csr_array:
    """A matrix with further empty rows and columns, sharing its values.

    Examples
    --------
    >>> widened(csr_array([[1.0]]), (2, 2)).toarray().tolist()
    [[1.0, 0.0], [0.0, 0.0]]
    """
    indptr = np.concatenate([matrix.indptr, np.full(shape[0] - matrix.shape[0], matrix.nnz, matrix.indptr.dtype)])
    return csr_array((matrix.data, matrix.indices, indptr), shape=shape)


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


def with_rows(
    matrix: csr_array,
    rows: NDArray[np.int64],
    others: csr_array,
    times: NDArray[np.float64] | None = None,
    other_times: NDArray[np.float64] | None = None,
) -> tuple[csr_array, NDArray[np.float64] | None]:
    """A matrix with other rows in place of some, which ascend, in single precision if that loses nothing; and times.

    Examples
    --------
    >>> matrix, _ = with_rows(csr_array([[1.0, 0.0], [0.0, 2.0]]), np.array([1]), csr_array([[3.0, 4.0]]))
    >>> matrix.toarray().tolist()
    [[1.0, 0.0], [3.0, 4.0]]
    """
    marked = np.zeros(matrix.shape[0], bool)
    marked[rows] = True
    sizes = np.diff(matrix.indptr)
    stay = np.repeat(~marked, sizes)
    sizes[rows] = np.diff(others.indptr)
    indptr = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
    kept = np.repeat(~marked, sizes)

    def spliced(old: NDArray[Any], new: NDArray[Any]) -> NDArray[Any]:
        values = np.empty(len(kept), np.result_type(old, new))
        values[kept], values[~kept] = old[stay], new
        return values

    # Of one type, or SciPy would copy both.
    kind = np.int32 if len(kept) < 2**31 and matrix.indices.dtype == np.int32 else np.int64
    indices = spliced(matrix.indices, others.indices.astype(kind)).astype(kind, copy=False)
    values = shortest_float(spliced(matrix.data, others.data))
    whole = csr_array((values, indices, indptr.astype(kind)), shape=matrix.shape)
    return whole, None if times is None or other_times is None else spliced(times, other_times)
