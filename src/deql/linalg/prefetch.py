"""Ask the processor to fetch a cache line before it is needed."""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

__all__ = ["LINE", "prefetch"]

LINE = 64
"""Bytes of a cache line."""


@intrinsic
def prefetch(typing_context, array, index):  # type: ignore[no-untyped-def]
    """Fetch the line that holds ``array[index]`` into the nearest cache, without waiting for it.

    A row of a strip is a few lines at a place that only the history tells, so the processor cannot
    foresee it. Only for one-dimensional arrays in numba code; the index may not be negative.
    """

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        kind = signature.args[0]
        view = make_array(kind)(context, builder, arguments[0])  # type: ignore[no-untyped-call]
        place = [context.cast(builder, arguments[1], signature.args[1], types.intp)]
        address = cgutils.get_item_pointer(context, builder, kind, view, place, wraparound=False)  # type: ignore[no-untyped-call]
        address = builder.bitcast(address, ir.IntType(8).as_pointer())
        number = ir.IntType(32)
        wanted = ir.FunctionType(ir.VoidType(), [address.type, number, number, number])
        function = cgutils.get_or_insert_function(builder.module, wanted, "llvm.prefetch.p0i8")  # type: ignore[no-untyped-call]
        # To be read, to be kept in every level of cache, and data rather than code.
        builder.call(function, [address, number(0), number(3), number(1)])
        return context.get_dummy_value()

    return types.void(array, index), generate
