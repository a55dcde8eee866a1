"""From rows with holes to P: rounds of expectation under a ridge that goes down, and where it should end.

A round takes P, computes the Gram matrix S to be expected under it, and inverts A = S + l2·I again. Its fixed point is
the most probable A under a prior worth l2 rows of unrelated columns. Many rounds at a small ridge follow noise where
much is missing. So the ridge begins at the number of rows, where columns hardly speak of each other, and
goes down a path (as in cross-validation along a regularisation path, stopped early): how small it gets and how many
rounds of EM there are become one choice, where to end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from deql.impute.expectation import IncompleteRows, Matrix, expected_gram, left_out_errors, ridge_inverse

__all__ = ["EMResult", "choose_l2", "fit_precision", "follow_path", "iterate_to_convergence", "ridge_values"]

_STEP = 10.0**0.5
"""Each ridge on the way is that much smaller than the one before."""
_LOWEST = 1e-4
"""The smallest of them, as a share of the number of rows."""
_ROUNDS = 2
"""Rounds at each ridge. With one, tables with half of their entries missing stop too early."""
_FOLDS = 5
"""Parts of the rows, each held out once."""
_PATIENCE = 2
"""Steps that may pass without a new best."""


class EMResult(NamedTuple):
    """P, the rounds that it took, and whether the last of them changed little enough."""

    precision: Matrix
    rounds: int
    converged: bool


def ridge_values(l2: float, count: int) -> list[float]:
    """The way from a ridge of about ``count`` rows down to ``l2``.

    Examples
    --------
    >>> [round(ridge, 1) for ridge in ridge_values(2.0, 100)]
    [63.2, 20.0, 6.3, 2.0]
    """
    lowest = max(l2, _LOWEST * count)
    steps = int(np.floor(np.log(count / lowest) / np.log(_STEP) + 1e-9))
    way = [float(lowest * _STEP**step) for step in range(steps, 0, -1)]
    return [*way, lowest, l2] if l2 < lowest else [*way, l2]


def follow_path(rows: IncompleteRows, way: Iterable[float]) -> Iterator[tuple[float, Matrix]]:
    """Each ridge of a way, and P after the rounds at it."""
    count = len(rows.values)
    # Before anything is known, columns have unit variance and do not speak of each other.
    P, weight = np.eye(rows.values.shape[1]) / count, float(count)
    for ridge in way:
        for _ in range(_ROUNDS):
            # A prior worth ``ridge`` rows of unit variance: A is that many more rows' Gram matrix.
            P, weight = ridge_inverse(expected_gram(rows, P, weight), ridge), count + ridge
        yield ridge, P


def iterate_to_convergence(rows: IncompleteRows, P: Matrix, l2: float, max_iter: int, tol: float) -> EMResult:
    """Further rounds at one ridge, until no entry of A changes by more than ``tol`` a row."""
    count = len(rows.values)
    before = np.full_like(P, np.inf)
    converged, rounds = False, 0
    while rounds < max_iter and not converged:
        S = expected_gram(rows, P, count + l2)
        P = ridge_inverse(S, l2)
        rounds += 1
        # Without holes S is known, whatever P is.
        converged = not len(rows.columns) or bool(np.abs(S - before).max() <= tol * count)
        before = S
    return EMResult(P, rounds, converged)


def fit_precision(values: Matrix, l2: float, max_iter: int, tol: float) -> EMResult:
    """P at the end of the way to ``l2``.

    Of many rows a sample goes the way and all of them make the last rounds. ``max_iter`` of these may be made,
    until ``tol``; if it is 0, as many as at each step of the way, and none where there is no sample.
    """
    sample = _sample(values)
    way = ridge_values(l2, len(sample))
    *_, (_, P) = follow_path(IncompleteRows.of(sample), way)
    found = EMResult(P, 0, True)
    if max_iter or len(sample) < len(values):
        found = iterate_to_convergence(IncompleteRows.of(values), P, l2, max_iter or _ROUNDS, tol)
    return EMResult(found.precision, _ROUNDS * len(way) + found.rounds, found.converged or not max_iter)


def choose_l2(values: Matrix) -> float:
    """The ridge at which observed entries of rows held out are predicted best from the others in their row.

    Parameters
    ----------
    values : ndarray of float64
        Columns of mean 0 and variance 1 with NaN where an entry is missing; at least two rows.

    Returns
    -------
    float
        In units of the Gram matrix. What the prior is worth in rows hardly depends on how many rows there are,
        so that of many rows a part is enough to find it.
    """
    sample = _sample(values)
    way = ridge_values(_LOWEST * len(sample), len(sample))
    part = np.random.default_rng(0).permutation(len(sample)) % _FOLDS
    folds = [
        (IncompleteRows.of(sample[part == fold]), follow_path(IncompleteRows.of(sample[part != fold]), way))
        for fold in range(min(_FOLDS, len(sample)))
    ]
    errors: list[float] = []
    for _ in way:
        errors.append(sum(left_out_errors(held_out, next(path)[1]) for held_out, path in folds))
        if len(errors) - 1 - int(np.argmin(errors)) >= _PATIENCE:
            break
    return way[int(np.argmin(errors))]


def _sample(values: Matrix) -> Matrix:
    """Rows enough to tell which columns belong together, drawn at random: rows in order may have a period."""
    m, n = values.shape
    most = max(1000, 5 * n)
    return values if m <= most else values[np.random.default_rng(1).choice(m, most, replace=False)]
