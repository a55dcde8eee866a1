"""Quantised rows: every row of P once more, whole and in 8 bits, to rank a few histories at a time fast.

P is packed, so that half of each of its rows is a column of other blocks: one number in each line of memory.
Here a row is one run of bytes, and all of them take about half of what P takes in float32. They tell which items
can be among the best, as their error is bounded; the exact scores of those, from P itself, decide.

A strip of 64 entries of row j is c·step: c the codes, whole numbers from −127 to 127, and step the strip's own.
Entries are P_ji/√(P_jj·P_ii), so that one error bound fits rare and popular items alike. That of an item itself,
of size 1, is left out: it counts for items of the history only, which are scored exactly without a look at the codes.
Of a prior of low rank its right factor is held in 8 bits, too (see :mod:`deql.ranking.quantised_right`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Self

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.sparse import csr_array

from deql._system.threads import even_bounds, read_only, run_slices, thread_count
from deql.errors import ParameterError
from deql.linalg.packed import PackedSymmetric
from deql.linalg.prefetch import LINE
from deql.linalg.tiling import STRIP
from deql.ranking.prior_scan import Factors, row_lengths
from deql.ranking.prior_term import PriorTerm
from deql.ranking.quantised_kernels import rank_users
from deql.ranking.quantised_right import ORDINARY_FACTORS, QuantisedRight

__all__ = ["QuantisedRows"]

_LARGEST = 127
"""The largest code."""

_SMALLEST = 2.0**-60
"""The largest entry of a strip counts as at least this, so that a strip of zeros divides nothing by zero and what is
too small for float32 is within the error bound."""

_LARGEST_STEP = 2.0**32
"""Steps are below this. Where P is positive definite they are 1/127 at most."""

_ORDINARY = 2.0**170
"""Roots of the diagonal, gains, shifts and weights of histories are zero, or from the inverse of this to this in size:
else lists are made without rows."""

_WORK_PER_THREAD = 2**23
"""Multiplications below which another thread does not pay."""

_USERS_PER_SLICE = 64
"""At most, so that an interruption does not wait for long."""


class QuantisedRows:
    """All rows of P in 8 bits, for :func:`deql.ranking.rank.rank`: lists and scores stay the same to the last bit.

    Parameters
    ----------
    precision : PackedSymmetric
        P.
    codes : ndarray of int8
        Rows × columns, these filled up to whole strips of 64; made by :meth:`fill` from this very P.
    steps : ndarray of float32
        Rows × strips. Both are only read: several processes may share the memory behind them.
    right : ndarray of float32, optional
        That of the prior, if it has low rank: what ``of_right`` was made from.
    of_right : QuantisedRight, optional

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.sparse import csr_array
    >>> from deql.ranking.rank import rank
    >>> P = PackedSymmetric.from_dense(np.array([[1.0, -0.5, -0.2], [-0.5, 1.0, 0.0], [-0.2, 0.0, 1.0]]), tile=3)
    >>> rows = QuantisedRows.fill(P)
    >>> items, scores = rank(P, -np.ones(3), np.ones(3), csr_array([[1.0, 0.0, 0.0]]), k=2, rows=rows)
    >>> items.tolist(), scores.round(6).tolist()
    ([[1, 2]], [[0.5, 0.2]])
    """

    __slots__ = ("_is_ordinary", "codes", "of_right", "precision", "right", "roots", "steps", "stored")

    def __init__(
        self,
        precision: PackedSymmetric,
        codes: NDArray[np.int8],
        steps: NDArray[np.float32],
        right: NDArray[np.float32] | None = None,
        of_right: QuantisedRight | None = None,
    ) -> None:
        n, strips = precision.n, -(-precision.n // STRIP)
        if codes.shape != (n, strips * STRIP) or steps.shape != (n, strips):
            raise ValueError("the quantised rows are those of a P of another size")
        if of_right is None:
            right, of_right = None, QuantisedRight.views(b"", 0, 0, 0)
        elif right is None or of_right.codes.shape != right.shape or not len(of_right.steps) == len(right) == n:
            raise ValueError("the quantised rows are those of a prior of another size")
        self.precision, self.right = precision, right
        self.stored = precision.stored()
        self.roots = np.sqrt(abs(precision.diagonal()))
        self.roots[self.roots == 0.0] = 1.0
        # Read-only whatever was given: the kernels are compiled for one kind of array.
        self.codes, self.steps, self.of_right = read_only(codes), read_only(steps), of_right.read_only()
        self._is_ordinary = all(_in_safe_range(part, ORDINARY_FACTORS) for part in self.of_right[:2])

    @classmethod
    def from_buffer(cls, precision: PackedSymmetric, buffer: Any, right: NDArray[np.float32] | None = None) -> Self:
        """Rows that :meth:`fill` has put into a buffer, such as a mapping of memory that several processes share."""
        return cls(precision, *_views(buffer, precision.n), right, _right_views(buffer, precision.n, right))

    @classmethod
    def from_arrays(
        cls, precision: PackedSymmetric, arrays: Mapping[str, NDArray[Any]], right: NDArray[np.float32] | None = None
    ) -> Self:
        """Rows that :meth:`arrays` gave, such as those of a model file; a ValueError says what is wrong with them.

        A file without those of ``right`` gives rows that rank without a prior only.
        """
        for name in ("row_steps", "right_steps", "right_reaches"):
            if name in arrays and arrays[name].dtype != np.float32:
                raise ValueError(f"its quantised rows have {name.partition('_')[2]} of {arrays[name].dtype}")
        of_right = None
        if right is not None and "right_codes" in arrays:
            of_right = QuantisedRight(
                arrays["right_steps"], arrays["right_reaches"], arrays["right_codes"].view(np.int8)
            )
            if of_right.reaches.shape != of_right.steps.shape:
                raise ValueError("the quantised rows are those of a prior of another size")
        return cls(precision, arrays["row_codes"].view(np.int8), arrays["row_steps"], right, of_right)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """By name, for a model file. Codes are bytes, which versions that know no rows read, too, and pass over.

        Examples
        --------
        >>> import numpy as np
        >>> sorted(QuantisedRows.fill(PackedSymmetric.from_dense(np.eye(2), tile=2)).arrays())
        ['row_codes', 'row_steps']
        """
        arrays: dict[str, NDArray[Any]] = {"row_codes": self.codes.view(np.uint8), "row_steps": self.steps}
        if self.right is not None:
            steps, reaches, codes = self.of_right
            arrays |= {"right_codes": codes.view(np.uint8), "right_steps": steps, "right_reaches": reaches}
        return arrays

    @staticmethod
    def size(n: int, rank: int = 0) -> int:
        """Bytes that the rows of an n × n matrix take, and those of a prior's right factor of this rank.

        Examples
        --------
        >>> QuantisedRows.size(40_000) / 40_000**2
        1.0625
        """
        strips = -(-n // STRIP)
        return n * strips * (STRIP + 4) + QuantisedRight.size(n, rank)

    @classmethod
    def fill(cls, precision: PackedSymmetric, buffer: Any = None, right: NDArray[np.float32] | None = None) -> Self:
        """Make the rows of P, in one pass over it: a second or two for 3 GB on two cores.

        Parameters
        ----------
        precision : PackedSymmetric
            P; a ParameterError says so if its numbers are not finite, or so large or small that lists could differ.
        buffer : object with the buffer protocol, optional
            :meth:`size` bytes to write to, from a multiple of 64 on, such as a shared mapping; new memory
            if not given.
        right : ndarray of float32, n × rank, optional
            That of a prior of low rank, whose histories are to be ranked by the rows, too.
        """
        n, tile = precision.n, precision.tile
        if tile < n and tile % STRIP:
            raise ValueError(f"scoring needs tiles that are multiples of {STRIP}, got {tile}")
        if buffer is None:
            buffer = np.empty(cls.size(n, 0 if right is None else right.shape[1]) + LINE, np.uint8)
            buffer = buffer[-buffer.ctypes.data % LINE :]
        if right is not None:
            right = np.ascontiguousarray(right, np.float32)
        rows = cls.from_buffer(precision, buffer, right)
        if not _in_safe_range(rows.roots, _ORDINARY):
            raise ParameterError(
                f"no rows can be made of this P: its diagonal goes from {precision.diagonal().min():.3g} to "
                f"{precision.diagonal().max():.3g}, but must lie between {_ORDINARY**-2:.0e} and {_ORDINARY**2:.0e}"
            )
        tops = np.array([(left, top) for left in range(0, n, tile) for top in range(left, n, STRIP)])
        bounds = even_bounds(len(tops), min(len(tops), 64))
        run_slices(_fill, bounds, *rows.stored, tile, 1.0 / rows.roots, tops, *_views(buffer, n))
        if right is not None and (of_right := _right_views(buffer, n, right)) is not None:
            of_right.fill(right)
        if not rows.steps.max() < _LARGEST_STEP:  # nor is NaN
            raise ParameterError(
                "no rows can be made of this P: it has numbers that are not finite, or is not positive definite"
            )
        return cls.from_buffer(precision, buffer, right)

    def covers(
        self,
        gains: NDArray[np.float64],
        shifts: NDArray[np.float64],
        matrix: csr_array,
        prior: PriorTerm | None = None,
    ) -> bool:
        """Whether :meth:`rank` gives the right lists: no number may be near a float's limits.

        ``_error_bound`` in quantised_kernels.py says why. Nor may there be a prior but that of the rows, of low rank.
        """
        values = matrix.data.astype(self.precision.dtype, copy=False)
        return self._covers_prior(prior, matrix) and all(
            _in_safe_range(numbers.ravel(), _ORDINARY) for numbers in (gains, shifts, values)
        )

    def hold(self, right: NDArray[np.float32] | None) -> bool:
        """Whether they can rank with this right factor of a prior; with none they all can."""
        return right is None or (self.right is not None and _same_memory(right, self.right))

    def _covers_prior(self, prior: PriorTerm | None, matrix: csr_array) -> bool:
        if prior is None:
            return True
        if prior.right is None or not self.hold(prior.right):
            return False
        lengths = row_lengths(run_slices, prior.left, np.unique(matrix.indices).astype(np.int64))
        return self._is_ordinary and all(
            _in_safe_range(numbers.ravel(), ORDINARY_FACTORS) for numbers in (prior.scale, lengths)
        )

    def rank(
        self,
        run: Callable[..., None],
        gains: NDArray[np.float64],
        shifts: NDArray[np.float64],
        matrix: csr_array,
        exclude_seen: bool,
        allowed: NDArray[np.bool_],
        factors: Factors,
        items: NDArray[np.int32],
        scores: NDArray[np.float64],
    ) -> None:
        """Write the best items of each history, and their exact scores, into the outputs, models × users × k.

        Only for models and histories that the rows cover.
        """
        n, users = self.precision.n, matrix.shape[0]
        weights = np.full((len(gains), self.codes.shape[1]), np.nan)  # above no bar
        weights[:, :n] = np.where(allowed, gains * self.roots, np.nan)
        scales = np.zeros((len(gains), self.codes.shape[1] if factors.rank else 0))
        scales[:, : factors.scales.shape[1]] = factors.scales
        threads = min(thread_count(), matrix.nnz * n // _WORK_PER_THREAD)
        slices = min(users, max(4 * threads if threads > 1 else 1, users // _USERS_PER_SLICE))
        run(
            rank_users, even_bounds(users, slices), self.codes, self.steps, self.roots, weights,
            *self.of_right, scales, *self.stored, gains, shifts, *factors,
            matrix.indptr, matrix.indices, matrix.data.astype(self.precision.dtype, copy=False),
            allowed, exclude_seen, items, scores,
        )  # fmt: skip


def _views(buffer: Any, n: int) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Codes, rows × columns filled up to whole strips, and steps, rows × strips."""
    strips = -(-n // STRIP)
    codes = np.frombuffer(buffer, np.int8, n * strips * STRIP)
    steps = np.frombuffer(buffer, np.float32, n * strips, offset=codes.nbytes)
    return codes.reshape(n, -1), steps.reshape(n, -1)


def _right_views(buffer: Any, n: int, right: NDArray[np.float32] | None) -> QuantisedRight | None:
    """What is behind the rows of P in a buffer."""
    return None if right is None else QuantisedRight.views(buffer, QuantisedRows.size(n), n, right.shape[1])


def _same_memory(one: NDArray[Any], other: NDArray[Any]) -> bool:
    return one.shape == other.shape and one.strides == other.strides and one.ctypes.data == other.ctypes.data


@njit(cache=True, nogil=True)
def _in_safe_range(numbers, most):  # type: ignore[no-untyped-def]
    strange = 0
    for t in range(len(numbers)):
        size = np.float64(abs(numbers[t]))
        strange += not ((size >= 1.0 / most) & (size <= most) | (size == 0.0))
    return strange == 0


@njit(cache=True, nogil=True)
def _fill(first, last, data, base, width, tile, inverse_roots, tops, codes, steps):  # type: ignore[no-untyped-def]
    # Of block column ``left`` the rows from ``top`` on, as many as a strip has columns: one run of memory. Then square
    # by square, as it is and turned.
    n = len(inverse_roots)
    scaled = np.zeros((STRIP, -(-tile // STRIP) * STRIP), np.float32)
    square, turned = np.zeros((STRIP, STRIP), np.float32), np.zeros((STRIP, STRIP), np.float32)
    for t in range(first, last):
        left, top = tops[t]
        rows, columns = min(STRIP, n - top), min(tile, n - left)
        scaled[:] = 0.0
        for r in range(rows):
            place = base[left] + (top + r) * width[left]
            _scale(
                data[place : place + columns], inverse_roots[top + r], inverse_roots[left : left + columns], scaled[r]
            )
        for low in range(left, min(left + tile, top + 1), STRIP):
            square[:] = scaled[:, low - left : low - left + STRIP]
            for r in range(STRIP):
                for c in range(STRIP):
                    turned[c, r] = square[r, c]
            if low == top:  # only what lies below the diagonal counts
                for r in range(STRIP):
                    square[r, r:] = turned[r, r:]
                    square[r, r] = 0.0
            else:
                _encode(turned, STRIP, codes, steps, low, top)
            _encode(square, rows, codes, steps, top, low)


@njit(cache=True, nogil=True)
def _scale(numbers, factor, factors, out):  # type: ignore[no-untyped-def]
    for c in range(len(numbers)):
        out[c] = numbers[c] * (factor * factors[c])


@njit(cache=True, nogil=True)
def _encode(square, rows, codes, steps, top, left):  # type: ignore[no-untyped-def]
    largest = np.empty(1, np.float32)
    for r in range(rows):
        # Sizes of floats are in the order of their bits, NaN above all, and a maximum of whole numbers takes a tenth
        # of the time.
        largest[0] = _SMALLEST
        bits, most = square[r].view(np.int32), largest.view(np.int32)[0]
        for c in range(STRIP):
            most = max(most, bits[c] & np.int32(0x7FFFFFFF))
        largest.view(np.int32)[0] = most
        steps[top + r, left // STRIP] = largest[0] / np.float32(_LARGEST)
        _round(square[r], np.float32(_LARGEST) / largest[0], codes[top + r, left : left + STRIP])


@njit(cache=True, nogil=True)
def _round(numbers, factor, out):  # type: ignore[no-untyped-def]
    for c in range(STRIP):
        out[c] = np.int8(np.int32(np.rint(numbers[c] * factor)))
