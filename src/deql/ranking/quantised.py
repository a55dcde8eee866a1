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
from deql.ranking.candidates import keep_best, sort_best
from deql.ranking.kernels import contributions
from deql.ranking.prior_scan import Factors
from deql.ranking.prior_term import PriorTerm
from deql.ranking.quantised_right import ORDINARY_FACTORS, QuantisedRight, add_extras, history_vector

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

_CHUNK = 32 * STRIP
"""Columns summed at once: their sums stay in the nearest cache, and of each row a run of memory is read."""

_AT_ONCE = 4
"""Rows added at once, so that sums go through memory a fourth as often."""

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
                raise ValueError(f"its quantised rows have {name.replace('_', ' ')} of {arrays[name].dtype}")
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
    def fill(
        cls, precision: PackedSymmetric, buffer: Any = None, right: NDArray[np.float32] | None = None
    ) -> Self:
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
        if of_right := _right_views(buffer, n, right):
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
        """Whether :meth:`rank` gives the right lists: no number may be near a float's limits (see ``_error_bound``).

        Nor may there be a prior but that of the rows, of low rank.
        """
        values = matrix.data.astype(self.precision.dtype, copy=False)
        return self._covers_prior(prior, matrix) and all(
            _in_safe_range(numbers.ravel(), _ORDINARY) for numbers in (gains, shifts, values)
        )

    def _covers_prior(self, prior: PriorTerm | None, matrix: csr_array) -> bool:
        if prior is None:
            return True
        if prior.right is None or self.right is None or not _same_memory(prior.right, self.right):
            return False
        rows = prior.left[np.unique(matrix.indices)].astype(np.float64)
        lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))
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
            _rank_users, even_bounds(users, slices), self.codes, self.steps, self.roots, weights,
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


@njit(cache=True, nogil=True, fastmath={"contract", "reassoc"})
def _add(x, y, z, w, a, b, d, e, sums):  # type: ignore[no-untyped-def]
    for c in range(STRIP):
        sums[c] += x * a[c] + y * b[c] + z * d[c] + w * e[c]


@njit(cache=True, nogil=True)
def _sum_rows(codes, steps, rows, weights, sums, errors):  # type: ignore[no-untyped-def]
    # sums[c] = Σ_p weights[p]·row[c], and for each strip Σ_p |weights[p]|·step. The number of rows is a multiple
    # of _AT_ONCE.
    sums[:] = 0.0
    errors[:] = 0.0
    count, padded = len(rows), len(sums)
    for low in range(0, padded, _CHUNK):
        high = min(low + _CHUNK, padded)
        for p in range(0, count, _AT_ONCE):
            i, j, k, m = rows[p], rows[p + 1], rows[p + 2], rows[p + 3]
            for start in range(low, high, STRIP):
                strip, end = start // STRIP, start + STRIP
                x, y = weights[p] * steps[i, strip], weights[p + 1] * steps[j, strip]
                z, w = weights[p + 2] * steps[k, strip], weights[p + 3] * steps[m, strip]
                errors[strip] += abs(x) + abs(y) + abs(z) + abs(w)
                _add(
                    x, y, z, w, codes[i, start:end], codes[j, start:end], codes[k, start:end], codes[m, start:end],
                    sums[start:end],
                )  # fmt: skip


@njit(cache=True, nogil=True)
def _row_weights(history, values, roots):  # type: ignore[no-untyped-def]
    # What each row counts, filled up with rows that count nothing. All together count 1 (see _error_bound).
    filled = -(-len(history) // _AT_ONCE) * _AT_ONCE
    rows, weights = np.full(filled, history[0], np.int64), np.zeros(filled, np.float32)
    total = 0.0
    for p in range(len(history)):
        total += abs(values[p] * roots[history[p]])
    for p in range(len(history)):
        rows[p] = history[p]
        weights[p] = values[p] * roots[history[p]] / total if total > 0.0 else 0.0
    return rows, weights, total


@njit(cache=True, nogil=True)
def _error_bound(m):  # type: ignore[no-untyped-def]
    """What share of E a sum of m rows is off by at most: the error bound that all rests on.

    Let r_i = √P_ii (1 if that is 0), v_ji = P_ji/(r_j·r_i), T = Σ_j |x_j|·r_j, w_j = x_j·r_j/T and f_i = gain_i·r_i.
    The score of an item i outside the history is f_i·T·Σ_j w_j·v_ji, and T is the same for all items: the sum times f_i
    decides. (If T is 0, so are all sums and E: every item reaches the bar and is scored exactly.)
    E = Σ_j |w_j|·step_j, where step_j is that of row j's strip with i in it. With u = 2⁻²⁴, in shares of E:

    1. Codes: 1/2 as they are whole, and 4·127·u < 2⁻¹⁵ for v, step, 127/peak and v·127/peak in float32.
    2. The sum: w, w·step, its product with the code and at most m + 3 additions in whatever order are m + 6
       roundings in float32 of what is 127·E in size: 127·((1 + u)ᵐ⁺⁶ − 1) < 1.04·(m + 6)·2⁻¹⁷.
    3. What underflows in float32: less than 2⁻¹¹⁰ for each row, as codes·steps are below 127·2³². As Σ_j |w_j| is 1 and
       a step at least 2⁻⁶⁷, E is at least 2⁻⁶⁷, too: less than m·2⁻⁴².
    4. The exact score, which is rounded itself: 3·2⁻⁵³ for each part, and m·2⁻⁵¹ as parts are made to add up, of
       128·E at most; products and sums with f_i in float64 less still: together less than (m + 1)·2⁻⁴².
    5. What underflows there: a part is off by 2⁻¹⁰⁷⁵·(1 + |x_j|) < 2⁻⁹⁰⁴, if |x_j| is ordinary, while |f_i|·T·E is
       2⁻⁴·¹⁷⁰⁻⁶⁷ = 2⁻⁷⁴⁷ at least, if r, gains and weights are ordinary; nor can anything overflow then.

    A prior adds scale_i·(y·right_i)/T to the sum times f_i, with a bound of its own (see
    :func:`~deql.ranking.quantised_right.add_extras`).

    E as computed may be too small by (m + 8)·u of it. For m ≤ 2²⁰, and rows of more items take a terabyte,
    (1/2 + (m + 16)·2⁻¹⁶)·(1 − (m + 8)·u) > 1/2 + 0.9·(m + 16)·2⁻¹⁶: more than all of these together.
    """
    return np.float32(0.5 + (m + 16) * 2.0**-16)


@njit(cache=True, nogil=True)
def _bound(sums, factors, error, extras, scales, reaches, sign, out):  # type: ignore[no-untyped-def]
    # What scores of a strip are at most, or at least if the sign is −1.
    if len(extras) == 0:
        for c in range(STRIP):
            out[c] = sums[c] * factors[c] + sign * error * abs(factors[c])
    else:
        for c in range(STRIP):
            off = error * abs(factors[c]) + reaches[c] * abs(scales[c])
            out[c] = sums[c] * factors[c] + extras[c] * scales[c] + sign * off


@njit(cache=True, nogil=True)
def _count_reaching(bounds, bar):  # type: ignore[no-untyped-def]
    count = 0
    for c in range(STRIP):
        count += bounds[c] >= bar
    return count


@njit(cache=True, nogil=True)
def _lower_bound(sums, errors, factors, extras, scales, reaches, k):  # type: ignore[no-untyped-def]
    # The k-th largest of what scores are at least: −∞ if there are fewer.
    room = 2 * k + 16
    least, places, lows = np.empty(room), np.zeros(room, np.int32), np.empty(STRIP)
    fill, bar = 0, -np.inf
    for strip in range(len(errors)):
        part = slice(strip * STRIP, (strip + 1) * STRIP)
        _bound(sums[part], factors[part], errors[strip], extras[part], scales[part], reaches[part], -1.0, lows)
        if _count_reaching(lows, bar) > 0:
            for c in range(STRIP):
                if lows[c] > bar:
                    least[fill] = lows[c]
                    fill += 1
                    if fill == room:
                        bar = keep_best(least, places, fill, k)
                        fill = k
    return keep_best(least, places, fill, k) if fill >= k else -np.inf


@njit(cache=True, nogil=True)
def _shortlist(sums, errors, factors, extras, scales, reaches, bar, others):  # type: ignore[no-untyped-def]
    # Items whose scores may reach the bar, behind the others.
    reaching, highs = np.empty(len(errors), np.int64), np.empty(STRIP)
    for strip in range(len(errors)):
        part = slice(strip * STRIP, (strip + 1) * STRIP)
        _bound(sums[part], factors[part], errors[strip], extras[part], scales[part], reaches[part], 1.0, highs)
        reaching[strip] = _count_reaching(highs, bar)
    items = np.empty(len(others) + reaching.sum(), np.int32)
    items[: len(others)] = others
    fill = len(others)
    for strip in range(len(errors)):
        if reaching[strip] > 0:
            part = slice(strip * STRIP, (strip + 1) * STRIP)
            _bound(sums[part], factors[part], errors[strip], extras[part], scales[part], reaches[part], 1.0, highs)
            for c in range(STRIP):
                if highs[c] >= bar:
                    items[fill] = strip * STRIP + c
                    fill += 1
    return items


@njit(cache=True, nogil=True)
def _rank_users(  # type: ignore[no-untyped-def]
    first, last, codes, steps, roots, factors, right_steps, right_reaches, right_codes, padded_scales,
    data, base, width, gains, shifts, left, right, scales, indptr, indices, values,
    allowed, exclude_seen, out_items, out_scores,
):  # fmt: skip
    models, k = gains.shape[0], out_items.shape[2]
    sums, errors = np.empty(codes.shape[1], np.float32), np.empty(steps.shape[1], np.float32)
    extras, reaches = np.zeros(padded_scales.shape[1]), np.zeros(padded_scales.shape[1])
    y = np.empty(left.shape[1], np.float32)
    for u in range(first, last):
        history, given = indices[indptr[u] : indptr[u + 1]], values[indptr[u] : indptr[u + 1]]
        if len(history) == 0:
            continue
        rows, weights, total = _row_weights(history, given, roots)
        _sum_rows(codes, steps, rows, weights, sums, errors)
        errors *= _error_bound(len(history))
        if len(extras) > 0:
            length, sizes = history_vector(left, history, given, y)
            add_extras(
                right_steps, right_reaches, right_codes, y, length, sizes, len(history), total if total > 0.0 else 1.0,
                extras, reaches,
            )  # fmt: skip
        sums[history] = np.nan
        seen = history[allowed[history] & (not exclude_seen)]
        parts = np.empty(len(history))
        for m in range(models):
            bar = _lower_bound(sums, errors, factors[m], extras, padded_scales[m], reaches, k)
            items = _shortlist(sums, errors, factors[m], extras, padded_scales[m], reaches, bar, seen)
            scores = np.empty(len(items))
            for t in range(len(items)):
                scores[t] = contributions(
                    data, base, width, gains[m], shifts[m], left, right, scales[m], history, given, items[t], parts
                )
            sort_best(scores, items, len(items))
            best = min(k, len(items))
            out_items[m, u, :best], out_scores[m, u, :best] = items[:best], scores[:best]
