"""The scalar product of two rows in float32, the same to the last bit in every kernel that it is compiled into."""

from __future__ import annotations

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

__all__ = ["dot"]

_LANES = 8
_SUMS = 4
"""Vectors of partial sums: additions wait for each other, so several go on at once."""


@njit(cache=True, nogil=True)
def dot(left, j, right, i):  # type: ignore[no-untyped-def]
    """Σ_t left[j, t]·right[i, t] in float64, where products of float32 are exact.

    32 partial sums, each of every 32nd product, are added in pairs; what is left of a row comes last. A compiler may
    not change that order, nor does it matter whether it joins a product and a sum.
    """
    length = left.shape[1]
    whole = length - length % (_LANES * _SUMS)
    total = _whole_dot(left, j, right, i, whole)  # type: ignore[call-arg, var-annotated]
    for t in range(whole, length):
        total += types.float64(left[j, t]) * types.float64(right[i, t])
    return total


@intrinsic
def _whole_dot(typing_context, left, j, right, i, length):  # type: ignore[no-untyped-def]
    """That of the first ``length`` numbers, a multiple of 32, by vectors: numba leaves such sums one by one."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        single, double = ir.VectorType(ir.FloatType(), _LANES), ir.VectorType(ir.DoubleType(), _LANES)
        starts = []
        for array, row in ((0, 1), (2, 3)):
            kind = signature.args[array]
            view = make_array(kind)(context, builder, arguments[array])  # type: ignore[no-untyped-call]
            place = [
                context.cast(builder, arguments[row], signature.args[row], types.intp),
                context.get_constant(types.intp, 0),
            ]
            starts.append(cgutils.get_item_pointer(context, builder, kind, view, place, wraparound=False))  # type: ignore[no-untyped-call]
        zero = ir.Constant(double, [0.0] * _LANES)
        sums = [cgutils.alloca_once_value(builder, zero) for _ in range(_SUMS)]  # type: ignore[no-untyped-call]
        step = ir.Constant(arguments[4].type, _LANES * _SUMS)
        with cgutils.for_range(builder, builder.udiv(arguments[4], step)) as loop:
            for part, total in enumerate(sums):
                numbers = []
                for start in starts:
                    offset = builder.add(builder.mul(loop.index, step), ir.Constant(step.type, part * _LANES))
                    address = builder.bitcast(builder.gep(start, [offset]), single.as_pointer())
                    numbers.append(builder.fpext(builder.load(address, align=4), double))
                builder.store(builder.fadd(builder.load(total), builder.fmul(*numbers)), total)
        a, b, c, d = (builder.load(total) for total in sums)
        vector = builder.fadd(builder.fadd(a, b), builder.fadd(c, d))
        lanes = [builder.extract_element(vector, ir.Constant(ir.IntType(32), lane)) for lane in range(_LANES)]
        while len(lanes) > 1:
            lanes = [builder.fadd(*lanes[pair : pair + 2]) for pair in range(0, len(lanes), 2)]
        return lanes[0]

    wanted = types.Array(types.float32, 2, "C")
    if not all(isinstance(array, types.Array) and array.copy(readonly=False) == wanted for array in (left, right)):
        return None
    return types.float64(left, j, right, i, types.intp), generate
