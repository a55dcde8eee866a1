"""BLAS and LAPACK for many threads at once: called without the interpreter's lock, which SciPy's own wrappers hold.

SciPy exports its library's functions for Cython as capsules around C pointers; ctypes calls them. BLAS must be
limited to one thread meanwhile (:func:`deql._system.threads.blas_limited`): its own threads wait for each other by
spinning, at every product, and on a busy machine for the one that has no core.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deql._system.limits import MOST_CALLERS, check_room_for_blas
from deql.errors import NotPositiveDefiniteError
from deql.linalg.packed import mirror_lower

__all__ = [
    "BUFFER",
    "MOST_CALLERS",
    "cholesky_inverse",
    "gemm",
    "lapack_address",
    "lu_factor",
    "lu_solve",
    "not_positive",
]

BUFFER = 5 * 2**20
"""Bytes that it keeps for each of its callers."""

_LETTERS = {np.dtype(np.float32): ("s", ctypes.c_float), np.dtype(np.float64): ("d", ctypes.c_double)}


def gemm(alpha: float, a: NDArray[Any], b: NDArray[Any], beta: float, c: NDArray[Any]) -> None:
    """C ← alpha·A·B + beta·C, in place.

    Parameters
    ----------
    alpha, beta : float
    a, b : ndarray
        float32 or float64, rows or columns contiguous: slices and transposes are not copied.
    c : ndarray
        Of the same type, rows contiguous.

    Examples
    --------
    >>> c = np.ones((2, 2))
    >>> gemm(-1.0, np.array([[1.0, 2.0], [3.0, 4.0]]).T, np.eye(2), 1.0, c)
    >>> c
    array([[ 0., -2.],
           [-1., -3.]])
    """
    if not (a.dtype == b.dtype == c.dtype and a.shape == (len(c), len(b)) and b.shape[1] == c.shape[1]):
        raise ValueError(f"A {a.shape} {a.dtype}, B {b.shape} {b.dtype} and C {c.shape} {c.dtype} do not go together")
    if not c.size:
        return
    function, number = _function("blas", "gemm", c.dtype, 13)
    # BLAS counts by columns and the store by rows, so every product is written transposed: Cᵀ = Bᵀ·Aᵀ.
    (b_turned, b_stride), (a_turned, a_stride), (c_turned, c_stride) = _layout(b), _layout(a), _layout(c)
    if c_turned != b"n":
        raise ValueError("the rows of C must be contiguous")
    rows, columns, inner = map(ctypes.c_int, (*c.shape, len(b)))
    function(
        b_turned,
        a_turned,
        ctypes.byref(columns),
        ctypes.byref(rows),
        ctypes.byref(inner),
        ctypes.byref(number(alpha)),
        b.ctypes.data,
        ctypes.byref(b_stride),
        a.ctypes.data,
        ctypes.byref(a_stride),
        ctypes.byref(number(beta)),
        c.ctypes.data,
        ctypes.byref(c_stride),
    )


def cholesky_inverse(square: NDArray[Any], first: int = 0) -> NDArray[Any]:
    """The inverse of a symmetric positive definite matrix, of which the lower half is read.

    Parameters
    ----------
    square : ndarray
        float32 or float64.
    first : int, default 0
        Which column of a larger matrix its first one is.

    Raises
    ------
    NotPositiveDefiniteError
        At the first pivot that is not positive; it names the column.

    Examples
    --------
    >>> cholesky_inverse(np.array([[2.0, 1.0], [1.0, 1.0]])).round(12)
    array([[ 1., -1.],
           [-1.,  2.]])
    """
    inverse = np.array(square, order="C")
    order, failed = ctypes.c_int(len(inverse)), ctypes.c_int()
    for name in ("potrf", "potri"):
        function, _ = _function("lapack", name, inverse.dtype, 5)
        # Its upper half by columns is the lower half by rows.
        function(b"U", ctypes.byref(order), inverse.ctypes.data, ctypes.byref(order), ctypes.byref(failed))
        if failed.value > 0:
            raise not_positive(first + failed.value - 1)
    mirror_lower(inverse)
    return inverse


def lu_factor(square: NDArray[np.float64]) -> tuple[NDArray[np.int32], bool]:
    """Replace a matrix by the factors of its transpose, for :func:`lu_solve`.

    Returns
    -------
    pivots : ndarray of int32
    positive : bool
        Whether its determinant is.

    Examples
    --------
    >>> lu_factor(np.array([[0.0, 1.0], [1.0, 0.0]]))
    (array([2, 2], dtype=int32), False)
    """
    order, failed = ctypes.c_int(len(square)), ctypes.c_int()
    pivots = np.zeros(len(square), np.int32)
    function, _ = _function("lapack", "getrf", square.dtype, 6)
    size = ctypes.byref(order)
    function(size, size, square.ctypes.data, size, pivots.ctypes.data, ctypes.byref(failed))
    diagonal = np.diagonal(square)
    swaps = np.count_nonzero(pivots != np.arange(1, len(square) + 1))
    odd = (np.count_nonzero(diagonal < 0) + swaps) % 2
    return pivots, bool(failed.value == 0 and not odd and np.isfinite(diagonal).all())


def lu_solve(factored: NDArray[np.float64], pivots: NDArray[np.int32], rows: NDArray[np.float64]) -> None:
    """Replace each row r by the solution x of Aᵀ·x = r, where A was given to :func:`lu_factor`.

    Examples
    --------
    >>> A, rows = np.array([[2.0, 0.0], [1.0, 4.0]]), np.array([[6.0, 8.0]])
    >>> pivots, _ = lu_factor(A)
    >>> lu_solve(A, pivots, rows)
    >>> rows
    array([[2., 2.]])
    """
    order, count, failed = ctypes.c_int(len(factored)), ctypes.c_int(len(rows)), ctypes.c_int()
    function, _ = _function("lapack", "getrs", factored.dtype, 9)
    size = ctypes.byref(order)
    function(
        b"N",
        size,
        ctypes.byref(count),
        factored.ctypes.data,
        size,
        pivots.ctypes.data,
        rows.ctypes.data,
        size,
        ctypes.byref(failed),
    )


def not_positive(column: int) -> NotPositiveDefiniteError:
    """The error for the first column whose pivot is not positive.

    Examples
    --------
    >>> not_positive(3).indices
    [3]
    """
    return NotPositiveDefiniteError(
        f"the matrix is not positive definite: the pivot of column {column} is not positive", [column]
    )


def lapack_address(name: str, dtype: np.dtype[Any]) -> int:
    """Where a function of LAPACK for this type lies in memory.

    Examples
    --------
    >>> lapack_address("potrf", np.dtype(np.float64)) > 0
    True
    """
    return _address("lapack", _LETTERS[dtype][0] + name)


@cache
def _function(library: str, name: str, dtype: np.dtype[Any], arguments: int) -> tuple[Any, Any]:
    """A function of BLAS or LAPACK for this type, every argument a pointer, and the C type of its numbers."""
    letter, number = _LETTERS[dtype]
    prototype = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * arguments)
    return prototype(_address(library, letter + name)), number


def _address(library: str, name: str) -> int:
    check_room_for_blas()
    from scipy.linalg import cython_blas, cython_lapack

    capsule = {"blas": cython_blas, "lapack": cython_lapack}[library].__pyx_capi__[name]
    signature, pointer = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    signature.restype, signature.argtypes = ctypes.c_char_p, [ctypes.py_object]
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return int(pointer(capsule, signature(capsule)))


def _layout(array: NDArray[Any]) -> tuple[bytes, ctypes.c_int]:
    """Whether BLAS sees a two-dimensional array, by rows, as it is or turned, and its leading dimension."""
    (rows, columns), (down, right), size = array.shape, array.strides, array.itemsize
    if (right == size or columns == 1) and (rows == 1 or down >= columns * size):
        return b"n", ctypes.c_int(max(down // size, columns) if rows > 1 else columns)
    if (down == size or rows == 1) and right >= rows * size:
        return b"t", ctypes.c_int(right // size)
    raise ValueError(f"neither rows nor columns of an array with strides {array.strides} are contiguous")
