"""LAPACK inside compiled kernels: called by address, so that a loop over many small systems never meets Python."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import DTypeLike

from deql.linalg.blas import lapack_address

__all__ = ["call_with_5", "call_with_8", "potrf_address", "potrs_address"]


def potrf_address(dtype: DTypeLike) -> int:
    """Where LAPACK's Cholesky factorisation for this type lies in memory.

    Examples
    --------
    >>> potrf_address(np.float32) > 0
    True
    """
    return lapack_address("potrf", np.dtype(dtype))


def potrs_address(dtype: DTypeLike) -> int:
    """Where LAPACK's solution by a Cholesky factor for this type lies in memory.

    Examples
    --------
    >>> potrs_address(np.float64) > 0
    True
    """
    return lapack_address("potrs", np.dtype(dtype))


def _caller(count: int) -> Any:
    """Code that calls a function with so many addresses. Kernels that are given the address of the function as a
    number can be cached, which those with a pointer of ctypes inside cannot."""

    def codegen(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        word = ir.IntType(8 * ctypes.sizeof(ctypes.c_void_p))
        kind = ir.FunctionType(ir.VoidType(), [word] * count)
        builder.call(builder.inttoptr(arguments[0], kind.as_pointer()), arguments[1:])
        return context.get_dummy_value()

    return codegen


@intrinsic
def call_with_5(_context, function, a, b, c, d, e):  # type: ignore[no-untyped-def]
    """Call a function of five addresses."""
    return types.void(*[types.int64] * 6), _caller(5)


@intrinsic
def call_with_8(_context, function, a, b, c, d, e, f, g, h):  # type: ignore[no-untyped-def]
    """Call a function of eight addresses."""
    return types.void(*[types.int64] * 9), _caller(8)
