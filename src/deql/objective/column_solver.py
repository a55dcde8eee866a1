"""The minimiser of any DEQL (eq. 8): one Cholesky factor for each column, columns in threads."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrf, dpotrs

from deql._system.checks import check_whole
from deql._system.progress import stages
from deql._system.threads import blas_limited, map_ahead
from deql.errors import DataError, NotPositiveDefiniteError, ParameterError
from deql.objective.moment_checks import (
    as_real,
    check_callable,
    check_items,
    check_ridge,
    check_symmetric,
    item_name,
    shape_of,
)
from deql.objective.updates import solve_updates

__all__ = ["solve"]

Matrix = NDArray[np.float64]
Moments = Callable[[int], tuple[Any, Any]]


def solve(
    moments: Moments,
    n: int | None = None,
    *,
    lam: float = 0.0,
    zero_diagonal: bool = False,
    items: Any = None,
    progress: bool = False,
) -> Matrix:
    """W with W_i = (H^(i) + λI)⁻¹ v^(i) for every column i: the minimiser of any DEQL (eq. 8, eq. 16).

    Columns are solved in threads, O(n³) each. It is O(n³) for all of them together where the moments
    allow it: a :class:`~deql.objective.Corruption` goes through :func:`~deql.objective.solve_updates`, and an H
    that is the very same array for consecutive items is factored once.

    Parameters
    ----------
    moments : callable
        ``moments(i)`` gives H^(i), n × n, and v^(i), n numbers. It is called once for each i, in order and
        from one thread; each H is copied.
    n : int, optional
        How many items; ``moments.n`` if not given, else the length of the first v.
    lam : float, default 0
        The paper's λ, added to the diagonal of every H^(i).
    zero_diagonal : bool, default False
        Minimise subject to W_ii = 0, over the other entries (eq. 15).
    items : sequence, optional
        Item ids for error messages; ``moments.items`` if not given.
    progress : bool, default False
        Show a progress bar on standard error.

    Returns
    -------
    ndarray, n × n

    Raises
    ------
    NotPositiveDefiniteError
        With the item whose H has no inverse.

    Examples
    --------
    >>> S = np.array([[1.0, 1.0], [1.0, 2.0]])
    >>> solve(lambda i: (S, S[:, i]), lam=1.0)  # the ridge LAE
    array([[0.4, 0.2],
           [0.2, 0.6]])
    """
    check_ridge(lam)
    check_callable("moments", moments, "H and v of item i")
    items = getattr(moments, "items", None) if items is None else items
    count, first_pair = _count(moments, n)
    low_rank = getattr(moments, "as_updates", None)
    found = None if low_rank is None else low_rank(lam)
    if found is not None:
        return solve_updates(*found, zero_diagonal=zero_diagonal, items=items, progress=progress)
    check_items(items, count)
    groups = _groups(moments, count, items, first_pair)
    first = next(groups)
    work = partial(_solve_group, lam=lam, zero_diagonal=zero_diagonal, items=items)
    if len(first.V) == count:
        with blas_limited():
            return work(first).T
    W = np.empty((count, count))
    done = 0
    # One thread of BLAS in each of ours: threads within threads wait for one another.
    with (
        stages(progress) as stage,
        blas_limited(1),
        closing(cast(Generator[Matrix, None, None], map_ahead(work, chain([first], groups)))) as solved,
    ):
        report = stage("Columns")
        for rows in solved:
            W[:, done : done + len(rows)] = rows.T
            done += len(rows)
            if report is not None:
                report(done, count)
    return W


@dataclass(frozen=True, eq=False)
class _Group:
    """Consecutive items that share H: v^(start), v^(start + 1), … are the rows of V."""

    start: int
    H: Matrix
    V: Matrix


def _count(moments: Moments, n: int | None) -> tuple[int, tuple[Any, Any] | None]:
    """How many items there are, and the first moments if they had to be asked for that."""
    own = getattr(moments, "n", None)
    if n is not None and own is not None and n != own:
        raise ParameterError(f"n must be {own:,}, the number of items of these moments, got {n!r}", parameter="n")
    count = own if n is None else n
    if count is not None:
        check_whole("n", count)
        return int(count), None
    first = _pair(moments(0), "0")
    shape = shape_of(first[1])
    if len(shape) != 1 or not shape[0]:
        raise DataError(f"v of item 0 must be an array of a number for each item, got the shape {shape}")
    return shape[0], first


def _pair(found: Any, name: str) -> tuple[Any, Any]:
    if not isinstance(found, tuple | list) or len(found) != 2:
        kind = f"{len(found)} things" if isinstance(found, tuple | list) else type(found).__name__
        raise DataError(f"the moments of item {name} must be a pair, H and v, got {kind}")
    return found[0], found[1]


def _groups(moments: Moments, n: int, items: Any, first: tuple[Any, Any] | None) -> Iterator[_Group]:
    """Moments, checked for their shapes and copied, so that the caller's arrays may change afterwards."""
    start, given, H, rows = 0, None, np.empty((0, 0)), list[Matrix]()
    for i in range(n):
        name = item_name(i, items)
        found, v = first if i == 0 and first is not None else _pair(moments(i), name)
        checked = as_real(found, f"H of item {name}", (n, n))
        if found is not given:
            if rows:
                yield _Group(start, H, np.array(rows))
            start, given, H, rows = i, found, np.array(checked, order="C"), []
        # An array that was filled anew would pass for the same H: its row i and its diagonal give it away, and all of
        # it, which would cost n² for each item, after 1, 2, 4, … items and at the last.
        elif not (
            _same(checked[i], H[i])
            and _same(checked.diagonal(), H.diagonal())
            and (((i - start).bit_count() != 1 and i != n - 1) or _same(checked, H))
        ):
            raise DataError(
                f"H of item {name} is in the same array as that of item {item_name(start, items)} but differs: "
                "return a new array for each H"
            )
        rows.append(as_real(v, f"v of item {name}", (n,)).copy())
        if not np.isfinite(rows[-1]).all():
            raise DataError(f"v of item {name} has entries that are NaN or infinite")
    yield _Group(start, H, np.array(rows))


_same = partial(np.array_equal, equal_nan=True)


def _solve_group(group: _Group, *, lam: float, zero_diagonal: bool, items: Any) -> Matrix:
    """The columns of a group, as rows. Its H is overwritten."""
    check_symmetric(group.H, f"H of item {item_name(group.start, items)}")
    group.H.flat[:: len(group.H) + 1] += lam
    return _minimise(group, lam, zero_diagonal, items)


def _minimise(group: _Group, lam: float, zero_diagonal: bool, items: Any) -> Matrix:
    """The same where λ is in H already, and ``lam`` is for what is said."""
    H, V = group.H, group.V
    places = np.arange(len(V)), group.start + np.arange(len(V))
    if zero_diagonal and len(V) == 1:
        # H without its row and column i (eq. 13), which alone must be positive definite: H itself need not be.
        i = group.start
        H[i] = H[:, i] = V[0, i] = 0
        H[i, i] = 1
    try:
        upper = _factor(H, group.start, lam, zero_diagonal, items)
    except NotPositiveDefiniteError:
        if not zero_diagonal or len(V) == 1:
            raise
        # Without its row and column i, H may yet be regular.
        singles = (_Group(group.start + k, H.copy(), V[k : k + 1]) for k in range(len(V)))
        return np.vstack([_minimise(one, lam, True, items) for one in singles])
    rows = _substitute(upper, V)
    if zero_diagonal and len(V) > 1:
        units = np.zeros_like(V)
        units[places] = 1
        back = _substitute(upper, units)  # eq. 17: H⁻¹·e_i, taken off so often that W_ii is 0
        rows -= (rows[places] / back[places])[:, None] * back
    if zero_diagonal:
        rows[places] = 0
    return rows


def _factor(H: Matrix, i: int, lam: float, zero_diagonal: bool, items: Any) -> Matrix:
    """The upper Cholesky factor, in the order LAPACK likes; NotPositiveDefiniteError if there is none.

    NumPy's routine, since SciPy's keeps the interpreter's lock while it works.
    """
    try:
        lower: Any = np.linalg.cholesky(H)
        # What is left of an item that follows from others is rounding: a share of its own diagonal entry.
        lost = np.flatnonzero(lower.diagonal() ** 2 <= len(H) * np.finfo(float).eps * H.diagonal())
        pivot = int(lost[0]) if lost.size else None
    except np.linalg.LinAlgError:
        info = int(dpotrf(H, lower=1)[1])
        pivot = info - 1 if info > 0 else i  # the two may differ by a rounding
    if pivot is None:
        return cast(Matrix, lower.T)
    negative = np.flatnonzero(H.diagonal() < 0)
    if negative.size:
        raise NotPositiveDefiniteError(
            f"H of item {item_name(i, items)} is not positive definite: its diagonal is negative at item "
            f"{item_name(int(negative[0]), items)}, which E[XᵀX] cannot be",
            [i],
        )
    advice = f"set lam above {lam:g}" + ("" if zero_diagonal or pivot != i else " or zero_diagonal=True")
    raise NotPositiveDefiniteError(
        f"H of item {item_name(i, items)} is not positive definite: what it says of item {item_name(pivot, items)} "
        f"is zero or follows from the items before it; {advice}",
        [i],
    )


def _substitute(upper: Matrix, rows: Matrix) -> Matrix:
    """H⁻¹ times each row."""
    solved: Matrix = dpotrs(upper, rows.T)[0].T
    return solved
