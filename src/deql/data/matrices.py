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
    "entry_rows",
    "has_entries",
    "masked",
    "shortest_float",
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
