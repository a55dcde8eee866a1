"""Moments by Monte Carlo, for corruption that has no formula."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, cast

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from deql._system.checks import check_whole
from deql._system.progress import ProgressCallback, stages
from deql._system.threads import even_bounds, run_slices, thread_count
from deql.errors import DataError
from deql.objective.moment_checks import check_callable, check_item

__all__ = ["SampledMoments", "from_sampler"]

Matrix = NDArray[np.float64]

_BLOCK = 2**29
"""Bytes for the emphasised H^(i) held at a time, each with its squares and one draw of it."""


_LARGEST = 1e35
"""Of X, Y and A: squares of A²·X·Y are summed."""


def from_sampler(
    sampler: Callable[..., tuple[Any, ...]],
    n_samples: int,
    *,
    per_item: bool = False,
    n: int | None = None,
    seed: int = 0,
    progress: bool = False,
) -> SampledMoments:
    """Estimate H^(i) and v^(i) from draws of X and Y, for :func:`~deql.objective.solve`.

    Parameters
    ----------
    sampler : callable
        ``sampler(generator)`` draws once for all columns, with a :class:`numpy.random.Generator` as the only source of
        chance. It returns X and Y, users × items, sparse or dense, or X, Y and the emphasis A: then the error at
        (u, i) counts A_ui² (eq. 5), and H^(i) differs from item to item.
        With ``per_item``, ``sampler(generator, i)`` draws from D^(i) and returns X and the column Y_i.
    n_samples : int
        How many draws, at least 2. The error falls with its square root; see :meth:`SampledMoments.relative_error`.
    per_item : bool, default False
        Whether every item has draws of its own: n times as many in all.
    n : int, optional
        How many items; as many as X has columns if not given.
    seed : int, default 0
    progress : bool, default False
        Show a progress bar on standard error.

    Returns
    -------
    SampledMoments
        Without emphasis H is one array for all items. With it, as many H^(i) as half a GiB holds are summed at a
        time, and the same draws are made again for the next ones.

    Examples
    --------
    Dropout that rises with popularity:

    >>> from scipy.sparse import csr_array
    >>> import deql
    >>> R = csr_array(np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0], [1.0, 0.0, 1.0], [1.0, 0.0, 0.0]]))
    >>> dropout = 0.1 + 0.5 * R.sum(axis=0) / R.shape[0]
    >>> def sampler(generator):
    ...     X = R.copy()
    ...     X.data *= generator.random(R.nnz) >= dropout[R.indices]
    ...     return X, R
    >>> moments = from_sampler(sampler, 1000)
    >>> moments.relative_error(0) < 0.05
    True
    >>> deql.objective.solve(moments, lam=1.0).shape
    (3, 3)
    """
    check_callable("sampler", sampler, "a draw of X and Y")
    check_whole("n_samples", n_samples, least=2)
    if n is not None:
        check_whole("n", n)
    draws = _Draws(sampler, int(n_samples), n, check_whole("seed", seed, least=0), per_item)
    if per_item:
        return _PerItem(draws)
    with stages(progress) as stage:
        report = stage("Draws")
        return _Emphasised(draws, report) if draws.parts == 3 else _Shared(draws, report)


class _Draws:
    """A sampler with its seed: every draw can be made again, and is checked. The first says what all must be like."""

    def __init__(self, sampler: Callable[..., Any], n_samples: int, n: int | None, seed: int, per_item: bool) -> None:
        self.n_samples, self._sampler, self._seed, self._per_item = n_samples, sampler, seed, per_item
        first = self._draw(0, 0)
        self.n = first[0].shape[1] if n is None else n
        self.parts = len(first)
        self._check(first, self._where(0, 0))

    def __call__(self, item: int = 0, report: ProgressCallback | None = None) -> Iterator[tuple[Any, ...]]:
        for s in range(self.n_samples):
            found = self._draw(s, item)
            self._check(found, self._where(s, item))
            yield found
            if report is not None:
                report(s + 1, self.n_samples)

    def _where(self, s: int, item: int) -> str:
        return f"draw {s} of item {item}" if self._per_item else f"draw {s}"

    def _draw(self, s: int, item: int) -> tuple[Any, ...]:
        own = (item,) if self._per_item else ()
        found = self._sampler(np.random.default_rng([self._seed, s, *own]), *own)
        wanted, lengths = ("(X, y)", (2,)) if self._per_item else ("(X, Y) or (X, Y, A)", (2, 3))
        where = self._where(s, item)
        if not isinstance(found, tuple | list) or len(found) not in lengths:
            kind = f"{len(found)} things" if isinstance(found, tuple | list) else type(found).__name__
            raise DataError(f"the sampler must return {wanted}, got {kind} in {where}")
        parts = tuple(_numbers(part, f"{name} in {where}") for part, name in zip(found, "XYA", strict=False))
        if parts[0].ndim != 2:
            raise DataError(f"X in {where} must be users × items, got the shape {parts[0].shape}")
        return parts

    def _check(self, found: tuple[Any, ...], where: str) -> None:
        if len(found) != self.parts:
            raise DataError(f"the sampler returned {self.parts} things in draw 0 and {len(found)} in {where}")
        shape = found[0].shape
        if shape[1] != self.n:
            raise DataError(f"X in {where} must have {self.n:,} columns, one for each item, got the shape {shape}")
        expected = shape[:1] if self._per_item else shape
        for name, part in zip("YA", found[1:], strict=False):
            if part.shape != expected:
                rule = "a number for each of X's rows" if self._per_item else "as X is"
                raise DataError(f"{name} in {where} must be of the shape {expected}, {rule}, got {part.shape}")


def _numbers(value: Any, what: str) -> Any:
    """A matrix of finite real numbers in float64: sparse ones as CSR, others as arrays."""
    matrix: Any = value if issparse(value) else np.asarray(value)
    if matrix.dtype.kind not in "biuf":
        raise DataError(
            f"{what} must hold real numbers, got {matrix.dtype if matrix.dtype != object else type(value).__name__}"
        )
    sparse = issparse(matrix)
    matrix = csr_array(matrix, dtype=np.float64) if sparse else matrix.astype(np.float64, copy=False)
    values = matrix.data if sparse else matrix
    if not np.isfinite(values).all():
        raise DataError(f"{what} has entries that are NaN or infinite")
    if np.abs(values).max(initial=0.0) > _LARGEST:
        raise DataError(f"{what} has entries above {_LARGEST:g}: divide all values by one number")
    return matrix


class _Sums:
    """Sum and sum of squares over draws: a mean and its standard error."""

    def __init__(self, *shape: int) -> None:
        self.total, self.squares = np.zeros(shape), np.zeros(shape)

    def add(self, drawn: Any) -> None:
        if issparse(drawn):
            entries = cast(Any, drawn).tocoo()
            places = entries.row.astype(np.int64) * self.total.shape[1] + entries.col
            self.total.ravel()[places] += entries.data
            self.squares.ravel()[places] += entries.data**2
        else:
            self.total += drawn
            self.squares += drawn**2

    def mean(self, count: int, at: Any = ...) -> Matrix:
        mean: Matrix = np.ascontiguousarray(self.total[at]) / count
        return mean

    def error(self, count: int, at: Any = ...) -> Matrix:
        spread = self.squares[at] - self.total[at] ** 2 / count
        error: Matrix = np.sqrt(np.maximum(spread, 0) / (count - 1) / count)
        return error


class _Estimate(NamedTuple):
    H: Matrix
    v: Matrix
    H_error: Matrix
    v_error: Matrix


class SampledMoments(ABC):
    """Estimated moments, as :func:`~deql.objective.from_sampler` makes them; ``moments(i)`` gives H^(i) and v^(i).

    Attributes
    ----------
    n : int
        How many items.
    n_samples : int
        How many draws each estimate is from.
    """

    def __init__(self, draws: _Draws) -> None:
        self.n, self.n_samples, self._draws = draws.n, draws.n_samples, draws
        self._measured: tuple[Matrix | None, float] = (None, 0.0)

    @abstractmethod
    def _estimate(self, i: int) -> _Estimate:
        """Moments of item i and their standard errors."""

    def _checked(self, i: int) -> _Estimate:
        check_item(i, self.n)
        return self._estimate(i)

    def __call__(self, i: int) -> tuple[Matrix, Matrix]:
        """H^(i) and v^(i)."""
        return self._checked(i)[:2]

    def standard_errors(self, i: int) -> tuple[Matrix, Matrix]:
        """Standard errors of the entries of H^(i) and v^(i)."""
        return self._checked(i)[2:]

    def relative_error(self, i: int) -> float:
        """Whether the draws are enough: ‖standard errors‖/‖moments‖ of H^(i) or of v^(i), the larger.

        Four times as many draws halve it.
        """
        H, v, H_error, v_error = self._checked(i)
        if H is not self._measured[0]:  # an H that all items share is measured once
            self._measured = H, _ratio(H_error, H)
        return max(self._measured[1], _ratio(v_error, v))


def _ratio(error: Matrix, mean: Matrix) -> float:
    length = float(np.linalg.norm(mean))
    return float(np.linalg.norm(error)) / length if length else 0.0


class _Shared(SampledMoments):
    """Draws without emphasis: one H, and v^(i) is column i of XᵀY."""

    def __init__(self, draws: _Draws, report: ProgressCallback | None) -> None:
        super().__init__(draws)
        second, cross = _Sums(self.n, self.n), _Sums(self.n, self.n)
        for X, Y in draws(report=report):
            second.add(X.T @ X)
            cross.add(X.T @ Y)
        count = self.n_samples
        self._of_all = second.mean(count), cross.mean(count), second.error(count), cross.error(count)

    def _estimate(self, i: int) -> _Estimate:
        H, V, H_error, V_error = self._of_all
        return _Estimate(H, V[:, i], H_error, V_error[:, i])


class _Emphasised(SampledMoments):
    """Draws with emphasis: H^(i) = E[Xᵀ·diag(A_i²)·X], a block of items at a time."""

    def __init__(self, draws: _Draws, report: ProgressCallback | None) -> None:
        super().__init__(draws)
        self._width = int(np.clip(_BLOCK // (3 * 8 * self.n**2), 1, self.n))
        self._cross = _Sums(self.n, self.n)
        self._sum_block(0, report, self._cross)

    def _sum_block(self, start: int, report: ProgressCallback | None = None, cross: _Sums | None = None) -> None:
        stop = min(self.n, start + self._width)
        self._start, self._second = start, _Sums(self.n, self.n, stop - start)
        one = np.empty_like(self._second.total)
        bounds = even_bounds(self.n, min(self.n // 16 + 1, 4 * thread_count()))
        for X, Y, A in self._draws(report=report):
            if cross is not None:
                counted = csr_array(A).power(2).multiply(Y)
                cross.add(X.T @ csr_array(counted))
            own = A[:, start:stop]
            squares = np.ascontiguousarray(own.toarray() if issparse(A) else own) ** 2
            rows = csr_array(X)
            one[:] = 0
            run_slices(_add_weighted, bounds, rows.indptr, rows.indices, rows.data, squares, one)
            self._second.add(one)

    def _estimate(self, i: int) -> _Estimate:
        if not self._start <= i < self._start + self._second.total.shape[2]:
            self._sum_block(i // self._width * self._width)
        count, at = self.n_samples, (..., i - self._start)
        second, cross = self._second, self._cross
        v, v_error = cross.mean(count, (..., i)), cross.error(count, (..., i))
        return _Estimate(second.mean(count, at), v, second.error(count, at), v_error)


class _PerItem(SampledMoments):
    """Draws of its own for each item; those of the last one asked for are kept."""

    def __init__(self, draws: _Draws) -> None:
        super().__init__(draws)
        self._last: tuple[int, _Estimate] | None = None

    def _estimate(self, i: int) -> _Estimate:
        if self._last is None or self._last[0] != i:
            second, cross = _Sums(self.n, self.n), _Sums(self.n)
            for X, y in self._draws(i):
                second.add(X.T @ X)
                cross.add(X.T @ y)
            count = self.n_samples
            means, errors = (second.mean(count), cross.mean(count)), (second.error(count), cross.error(count))
            self._last = i, _Estimate(*means, *errors)
        return self._last[1]


@njit(cache=True, nogil=True)
def _add_weighted(first, last, indptr, indices, values, weights, out):  # type: ignore[no-untyped-def]
    # out[j, k, :] += X_uj·X_uk·weights[u, :] for first ≤ j < last: the slices of threads do not meet.
    for u in range(len(indptr) - 1):
        for p in range(indptr[u], indptr[u + 1]):
            j = indices[p]
            if first <= j < last:
                for q in range(indptr[u], indptr[u + 1]):
                    k = indices[q]
                    x = values[p] * values[q]
                    for i in range(weights.shape[1]):
                        out[j, k, i] += x * weights[u, i]
