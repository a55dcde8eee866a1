"""Products on a device in a choice of arithmetics, some of them past its plain float32 rate.

A tensor core multiplies short numbers exactly and adds in float32. A float32 number is the sum of two shorter
ones, x = h + l, so with h and l of both factors

    N·Bᵀ ≈ N_h·B_hᵀ + N_h·B_lᵀ + N_l·B_hᵀ,

three products at the rate of short numbers. The two small ones are one product of panels twice as wide,
[N_l N_h]·[B_h B_l]ᵀ; what is left out, l·l, is about as small as what h + l leaves of x.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch

from deql.errors import ParameterError
from deql.linalg.blas import not_positive
from deql.linalg.sweep import Piece
from deql.linalg.tiling import ARITHMETICS

__all__ = ["Products", "arithmetic_set"]

_SHORT = {"bf16x3": torch.bfloat16, "fp16x3": torch.float16}
_HIGH_BITS = {"bf16x3": 8, "fp16x3": 8, "tf32x3": 11, "tf32": 11}
"""Significant bits of the higher half. Tensor cores cut off, rather than round, what falls below the last of a sum's 24
bits, always towards zero, so that errors add up. Products of two numbers of 8 bits have 16: most sums are exact."""

_LONGEST_SUM = 512
"""Products of higher halves that are added on a tensor core before the result is rounded as it should be."""


@contextmanager
def arithmetic_set(arithmetic: str) -> Iterator[None]:
    """Let float32 products on CUDA devices use tf32 or not, sums be float32, and restore what was set before."""
    settings: Any = torch.backends.cuda.matmul
    before = settings.fp32_precision, settings.allow_fp16_accumulation
    settings.fp32_precision = "tf32" if arithmetic.startswith("tf32") else "ieee"
    settings.allow_fp16_accumulation = False
    try:
        yield
    finally:
        settings.fp32_precision, settings.allow_fp16_accumulation = before


class Products:
    """The arithmetic of a sweep on one device.

    Parameters
    ----------
    arithmetic : str
        One of ``ARITHMETICS``.
    dtype : torch.dtype
        Of the matrix: float64 for ``"float64"``, else float32.
    device : torch.device
    """

    def __init__(self, arithmetic: str, dtype: torch.dtype, device: torch.device) -> None:
        if arithmetic not in ARITHMETICS:
            raise ParameterError(
                f"arithmetic must be one of {', '.join(ARITHMETICS)}, got {arithmetic!r}", parameter="arithmetic"
            )
        if (arithmetic == "float64") != (dtype == torch.float64):
            raise ParameterError(
                f"arithmetic {arithmetic!r} does not go with a matrix in {dtype}".replace("torch.", ""),
                parameter="arithmetic",
            )
        self.arithmetic = arithmetic
        self.dtype = dtype
        self.device = device

    def panel(self, rows: int, columns: int) -> torch.Tensor:
        self._factors: list[tuple[torch.Tensor, torch.Tensor]] = []  # those of the pivot before go first
        return torch.empty(rows, columns, dtype=self.dtype, device=self.device)

    def invert(self, pivot: torch.Tensor, first: int) -> torch.Tensor:
        # In float64: the pivot is a small share of the work and all of N inherits its error.
        factor, failed = torch.linalg.cholesky_ex(pivot.double())
        if info := int(failed):
            raise not_positive(first + info - 1)
        inverse = torch.cholesky_inverse(factor)
        return inverse.to(self.dtype)

    def solve(self, panel: torch.Tensor, inverse: torch.Tensor) -> torch.Tensor:
        # Plain where more is wanted than tf32: what cancels out in here is large, and all that follows inherits it.
        with nullcontext() if self.arithmetic == "tf32" else arithmetic_set("float32"):
            solved = panel @ inverse
        self._load(solved, panel)
        return solved

    def update(self, piece: Piece, sign: int) -> None:
        self._add(piece.values, piece.top, piece.left, sign)

    def _load(self, left: torch.Tensor, right: torch.Tensor) -> None:
        """Make the factors of the next products: pairs of a left and a right one, in the order they are added."""
        self._scale = 1.0
        if self.arithmetic in _SHORT or self.arithmetic == "tf32x3":
            (left_high, left_low), (right_high, right_low) = self._split(left), self._split(right)
            # What is small comes first, while the sums are small.
            self._factors = [(torch.cat([left_low, left_high], 1), torch.cat([right_high, right_low], 1))]
            self._factors += zip(left_high.split(_LONGEST_SUM, 1), right_high.split(_LONGEST_SUM, 1), strict=True)
        else:
            self._factors = [(left, right)]

    def _split(self, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Two shorter numbers for each, high and low."""
        if self.arithmetic == "fp16x3":
            # To 2¹⁵ at most: from there to 2⁻³ the halves of a number keep 19 of its bits, and what is smaller is
            # off by 2⁻⁴⁰ of the largest.
            largest = float(values.abs().max())
            exponent = 15 - math.frexp(largest)[1] if 0 < largest < math.inf else 0
            values = values * 2.0**exponent
            self._scale *= 2.0**-exponent
        bits = _HIGH_BITS[self.arithmetic]
        high = _rounded(values, bits)
        low = values - high
        kind = _SHORT.get(self.arithmetic)
        return (high.to(kind), low.to(kind)) if kind else (high, _rounded(low, bits))

    def _add(self, values: torch.Tensor, top: int, left: int, sign: int) -> None:
        """Add sign times the product of the factors' rows from ``top`` and ``left`` on."""
        for rows, columns in self._factors:
            a, b = rows[top : top + len(values)], columns[left : left + values.shape[1]].T
            if self.device.type == "cuda" and self.arithmetic in _SHORT:
                torch.addmm(values, a, b, alpha=sign * self._scale, out_dtype=torch.float32, out=values)
            elif self.arithmetic in _SHORT:  # short products exist on CUDA only; elsewhere the same numbers in float32
                values.addmm_(a.float(), b.float(), alpha=sign * self._scale)
            elif self.arithmetic == "tf32" and self.device.type != "cuda":
                values.addmm_(_rounded(a, 11), _rounded(b.T, 11).T, alpha=sign)
            else:
                values.addmm_(a, b, alpha=sign)


def _rounded(values: torch.Tensor, kept: int) -> torch.Tensor:
    """The nearest numbers with so many significant bits."""
    dropped = 24 - kept
    bits = values.contiguous().view(torch.int32)
    return ((bits + (1 << (dropped - 1))) & -(1 << dropped)).view(torch.float32)
